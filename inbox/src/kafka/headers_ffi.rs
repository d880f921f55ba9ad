//! Reads the headers of a record. The safe API panics at a name that is not UTF-8.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use bytes::Bytes;
use rdkafka::bindings as c;
use rdkafka::message::BorrowedMessage;

const NO_ERROR: c::rd_kafka_resp_err_t = c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;

/// A name that is not UTF-8 gets replacement characters; a NULL value is empty.
pub(super) fn headers_of(message: &BorrowedMessage<'_>) -> Vec<(String, Bytes)> {
    let mut list = ptr::null_mut();
    let mut headers = Vec::new();
    // SAFETY: the list belongs to the message, which lives for as long as it is borrowed. Names
    // end with NUL, values have the length beside them, and both are copied.
    unsafe {
        if c::rd_kafka_message_headers(message.ptr(), &mut list) != NO_ERROR {
            return headers;
        }
        let (mut name, mut value, mut length) = (ptr::null::<c_char>(), ptr::null::<c_void>(), 0);
        while c::rd_kafka_header_get_all(list, headers.len(), &mut name, &mut value, &mut length)
            == NO_ERROR
        {
            let name = CStr::from_ptr(name).to_string_lossy().into_owned();
            let value = if value.is_null() {
                Bytes::new()
            } else {
                Bytes::copy_from_slice(std::slice::from_raw_parts(value.cast::<u8>(), length))
            };
            headers.push((name, value));
        }
    }
    headers
}
