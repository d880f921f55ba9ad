//! Calls of librdkafka that its safe API lacks, or makes with a panic.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use bytes::Bytes;
use rdkafka::ClientContext;
use rdkafka::bindings as c;
use rdkafka::client::Client;
use rdkafka::message::BorrowedMessage;

const NO_ERROR: c::rd_kafka_resp_err_t = c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;

/// Adds those of `host:port,host:port` that the client does not know.
pub(super) fn add_brokers<C: ClientContext>(client: &Client<C>, brokers: &str) {
    let Ok(brokers) = CString::new(brokers) else { return };
    // SAFETY: the handle lives as long as the client; the text is copied.
    unsafe { c::rd_kafka_brokers_add(client.native_ptr(), brokers.as_ptr()) };
}

/// The end of a partition, as the last answer of its broker has told it, without asking the broker: the
/// offset that its next record gets. Not known before the first answer.
pub(super) fn known_end<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    partition: i32,
) -> Option<i64> {
    let topic = CString::new(topic).ok()?;
    let (mut low, mut high) = (-1, -1);
    // SAFETY: the handle lives as long as the client; the name is copied, and the numbers are
    // written before the call returns.
    let answer = unsafe {
        c::rd_kafka_get_watermark_offsets(
            client.native_ptr(),
            topic.as_ptr(),
            partition,
            &mut low,
            &mut high,
        )
    };
    (answer == NO_ERROR && high >= 0).then_some(high)
}

/// Reads the headers of a record. A name that is not UTF-8, at which the safe API panics, gets
/// replacement characters; a NULL value is empty.
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
