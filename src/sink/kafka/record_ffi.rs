//! A record on its way into librdkafka, and on its way back when its delivery failed.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::slice::from_raw_parts;

use rdkafka::bindings as c;
use rdkafka::message::BorrowedMessage;
use rdkafka::types::RDKafkaErrorCode;

use crate::base::event::Outbound;
use crate::sink::kafka::answer_ffi::text_of;

/// A record of one's own.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) topic: String,
    pub(super) key: Option<Box<[u8]>>,
    pub(super) value: Option<Box<[u8]>>,
    /// Its id: that of the event, or what its header `id` says.
    pub(super) id: String,
    pub(super) headers: Vec<(String, Box<[u8]>)>,
    /// Its timestamp, microseconds since the Unix epoch.
    pub(super) commit_unix_us: i64,
    /// The partition that its event asked for.
    pub(super) partition: Option<i32>,
}

impl Record {
    /// A copy of an event.
    pub(super) fn copy(event: &Outbound<'_>) -> Record {
        let own = |(name, value): &(&str, &[u8])| ((*name).to_owned(), Box::from(*value));
        Record {
            topic: event.topic.to_owned(),
            key: event.key.map(Box::from),
            value: event.value.map(Box::from),
            id: event.id.to_owned(),
            headers: event.headers.iter().map(own).collect(),
            commit_unix_us: event.commit_unix_us,
            partition: event.partition,
        }
    }

    /// Hands it to `give` as the event that it was.
    pub(super) fn with_outbound<T>(&self, give: impl FnOnce(&Outbound<'_>) -> T) -> T {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), &**value)).collect();
        give(&Outbound {
            exchange: "",
            topic: &self.topic,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            id: &self.id,
            event_type: None,
            content_type: None,
            headers: &headers,
            commit_unix_us: self.commit_unix_us,
            partition: self.partition,
        })
    }

    pub(super) fn size_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, it)| name.len() + it.len()).sum();
        let length = |bytes: &Option<Box<[u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        self.topic.len() + length(&self.key) + length(&self.value) + headers
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Payloads do not belong in logs.
        let (topic, id) = (&self.topic, &self.id);
        f.debug_struct("Record").field("topic", topic).field("id", id).finish_non_exhaustive()
    }
}

/// Null for an absent value; an empty one keeps its (dangling, never read) address.
pub(super) fn pointer_of(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    bytes.map_or((ptr::null_mut(), 0), |bytes| (bytes.as_ptr().cast_mut().cast(), bytes.len()))
}

pub(super) fn native_headers(
    event: &Outbound<'_>,
) -> Result<*mut c::rd_kafka_headers_t, RDKafkaErrorCode> {
    if event.headers.is_empty() {
        return Ok(ptr::null_mut());
    }
    // SAFETY: the list is fresh; names and values are copied with their lengths.
    unsafe {
        let list = c::rd_kafka_headers_new(event.headers.len());
        for (name, value) in event.headers.iter() {
            let name_len = isize::try_from(name.len()).unwrap_or(isize::MAX);
            let value_len = isize::try_from(value.len()).unwrap_or(isize::MAX);
            let code = c::rd_kafka_header_add(
                list,
                name.as_ptr().cast(),
                name_len,
                value.as_ptr().cast(),
                value_len,
            );
            if code != c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                c::rd_kafka_headers_destroy(list);
                return Err(code.into());
            }
        }
        Ok(list)
    }
}

/// The record whose delivery failed. `own_partition` says whether its event had asked for the one
/// that it has. librdkafka tells no time of what has failed: that is for whoever knows it.
///
/// # Safety
/// `message` is one that an event holds, and the event lives.
pub(super) unsafe fn copy_back(
    message: *const c::rd_kafka_message_t,
    own_partition: bool,
) -> Record {
    // SAFETY: key and payload have their lengths beside them and live as long as the message.
    unsafe {
        let headers = headers_of(message);
        let id = headers.iter().find(|(name, _)| name == "id");
        Record {
            topic: text_of(c::rd_kafka_topic_name((*message).rkt)),
            key: bytes_at((*message).key, (*message).key_len),
            value: bytes_at((*message).payload, (*message).len),
            id: id.map(|(_, id)| String::from_utf8_lossy(id).into_owned()).unwrap_or_default(),
            headers,
            commit_unix_us: 0,
            partition: own_partition.then_some((*message).partition),
        }
    }
}

/// # Safety
/// `bytes` is null, or points to `length` bytes.
unsafe fn bytes_at(bytes: *const c_void, length: usize) -> Option<Box<[u8]>> {
    // SAFETY: see above.
    (!bytes.is_null()).then(|| unsafe { Box::from(from_raw_parts(bytes.cast::<u8>(), length)) })
}

/// The headers of a message that was read. Names are not always text: anybody may write to a topic.
pub(super) fn headers_of_read(message: &BorrowedMessage<'_>) -> Vec<(String, Box<[u8]>)> {
    // SAFETY: the message lives for as long as it is borrowed.
    unsafe { headers_of(message.ptr()) }
}

/// # Safety
/// As for [`copy_back`].
unsafe fn headers_of(message: *const c::rd_kafka_message_t) -> Vec<(String, Box<[u8]>)> {
    let mut list = ptr::null_mut();
    // SAFETY: the list belongs to the message, which lives.
    unsafe {
        let code = c::rd_kafka_message_headers(message, &mut list);
        let ok = code == c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        if ok { headers_in(list) } else { Vec::new() }
    }
}

/// # Safety
/// The list lives.
unsafe fn headers_in(list: *const c::rd_kafka_headers_t) -> Vec<(String, Box<[u8]>)> {
    let ok = c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
    let mut headers = Vec::new();
    // SAFETY: names end with NUL, values have the length beside them.
    unsafe {
        let (mut name, mut value, mut length) = (ptr::null(), ptr::null(), 0);
        while c::rd_kafka_header_get_all(list, headers.len(), &mut name, &mut value, &mut length)
            == ok
        {
            headers.push((text_of(name), bytes_at(value, length).unwrap_or_default()));
        }
    }
    headers
}

#[cfg(test)]
#[path = "record_ffi_tests.rs"]
mod tests;
