//! Names brokers to a running client.
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
