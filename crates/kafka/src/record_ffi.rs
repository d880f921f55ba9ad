//! Key, value and headers of a record as librdkafka wants them, and as it returns them when the
//! delivery failed.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::slice::from_raw_parts;

use rdkafka::bindings as c;
use rdkafka::bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR as NO_ERROR;
use rdkafka::message::BorrowedMessage;
use walrelay_core::base::headers::Headers;
use walrelay_core::sink::kafka::Code;
use walrelay_core::sink::kafka::record::Record;

use super::answer_ffi::text_of;
use walrelay_base::event::Outbound;

/// Null for an absent value; an empty one keeps its (dangling, never read) address.
pub(super) fn pointer_of(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    bytes.map_or((ptr::null_mut(), 0), |bytes| (bytes.as_ptr().cast_mut().cast(), bytes.len()))
}

pub(super) fn native_headers(event: &Outbound<'_>) -> Result<*mut c::rd_kafka_headers_t, Code> {
    if event.headers.is_empty() {
        return Ok(ptr::null_mut());
    }
    // SAFETY: the list is fresh; names and values are copied with their lengths.
    unsafe {
        let list = c::rd_kafka_headers_new(event.headers.len());
        for (name, value) in event.headers.iter() {
            let name_len = isize::try_from(name.len()).unwrap_or(isize::MAX);
            let value_len = isize::try_from(value.len()).unwrap_or(isize::MAX);
            let (name, value) = (name.as_ptr().cast(), value.as_ptr().cast());
            let code = c::rd_kafka_header_add(list, name, name_len, value, value_len);
            if code != NO_ERROR {
                c::rd_kafka_headers_destroy(list);
                return Err(Code::of(code as i32));
            }
        }
        Ok(list)
    }
}

/// The record whose delivery failed, without lane and commit time, which librdkafka does not return.
/// `own_partition`: its event asked for the partition that the message has.
///
/// # Safety
/// `message` is held by an event that lives.
pub(super) unsafe fn copy_back(
    message: *const c::rd_kafka_message_t,
    own_partition: bool,
) -> Record {
    // SAFETY: key and payload have their lengths beside them and live as long as the message.
    unsafe {
        let headers = headers_of(message);
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let id = headers.clone().find(|(name, _)| *name == "id");
        Record {
            topic: text_of(c::rd_kafka_topic_name((*message).rkt)),
            key: bytes_at((*message).key, (*message).key_len),
            value: bytes_at((*message).payload, (*message).len),
            id: id.map(|(_, id)| String::from_utf8_lossy(id).into_owned()).unwrap_or_default(),
            headers: Headers::copy(headers),
            partition: own_partition.then_some((*message).partition),
            ..Record::default()
        }
    }
}

/// # Safety
/// `bytes` is null, or points to `length` bytes.
unsafe fn bytes_at(bytes: *const c_void, length: usize) -> Option<Vec<u8>> {
    // SAFETY: see above.
    (!bytes.is_null()).then(|| unsafe { from_raw_parts(bytes.cast::<u8>(), length) }.to_vec())
}

/// The headers of a message that was read. Their names may be any bytes: others may write to the
/// topic.
pub(super) fn headers_of_read(message: &BorrowedMessage<'_>) -> Vec<(String, Vec<u8>)> {
    // SAFETY: the message lives for as long as it is borrowed.
    unsafe { headers_of(message.ptr()) }
}

/// # Safety
/// As for [`copy_back`].
unsafe fn headers_of(message: *const c::rd_kafka_message_t) -> Vec<(String, Vec<u8>)> {
    let mut list = ptr::null_mut();
    // SAFETY: the list belongs to the message, which lives.
    unsafe {
        let code = c::rd_kafka_message_headers(message, &mut list);
        if code == NO_ERROR { headers_in(list) } else { Vec::new() }
    }
}

/// # Safety
/// The list lives.
unsafe fn headers_in(list: *const c::rd_kafka_headers_t) -> Vec<(String, Vec<u8>)> {
    let mut headers = Vec::new();
    // SAFETY: names end with NUL, values have the length beside them.
    unsafe {
        let (mut name, mut value, mut length) = (ptr::null(), ptr::null(), 0);
        while c::rd_kafka_header_get_all(list, headers.len(), &mut name, &mut value, &mut length)
            == NO_ERROR
        {
            headers.push((text_of(name), bytes_at(value, length).unwrap_or_default()));
        }
    }
    headers
}

#[cfg(test)]
#[path = "record_ffi_tests.rs"]
mod tests;
