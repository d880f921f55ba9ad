//! Names brokers to a running client, and asks it what it knows of a partition.
#![allow(unsafe_code)]

use std::ffi::CString;

use rdkafka::bindings as c;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

use super::reachability::ConnectionErrors;

/// Adds those of `host:port,host:port` that the client does not know.
///
/// # Safety
/// `client` is a handle of librdkafka, and lives.
pub(super) unsafe fn add_brokers(client: *mut c::rd_kafka_t, brokers: &str) {
    let Ok(brokers) = CString::new(brokers) else { return };
    // SAFETY: see above; the text is copied.
    unsafe { c::rd_kafka_brokers_add(client, brokers.as_ptr()) };
}

pub(super) fn add_brokers_to(consumer: &BaseConsumer<ConnectionErrors>, brokers: &str) {
    // SAFETY: the handle lives as long as the consumer.
    unsafe { add_brokers(consumer.client().native_ptr(), brokers) }
}

/// The high watermark of the partition in the last answer to a fetch; not known before the first answer,
/// and after an error.
pub(super) fn known_end(
    consumer: &BaseConsumer<ConnectionErrors>,
    topic: &str,
    partition: i32,
) -> Option<i64> {
    let topic = CString::new(topic).ok()?;
    let (mut low, mut high) = (-1, -1);
    let handle = consumer.client().native_ptr();
    // SAFETY: the handle lives as long as the consumer; the name is copied, and the numbers are written
    // before the call returns.
    let answer = unsafe {
        c::rd_kafka_get_watermark_offsets(handle, topic.as_ptr(), partition, &mut low, &mut high)
    };
    let is_known = answer == c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0;
    is_known.then_some(high)
}
