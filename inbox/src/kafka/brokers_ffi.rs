//! Names brokers to a running client.
#![allow(unsafe_code)]

use std::ffi::CString;

use rdkafka::ClientContext;
use rdkafka::bindings as c;
use rdkafka::client::Client;

/// Adds those of `host:port,host:port` that the client does not know.
pub(super) fn add_brokers<C: ClientContext>(client: &Client<C>, brokers: &str) {
    let Ok(brokers) = CString::new(brokers) else { return };
    // SAFETY: the handle lives as long as the client; the text is copied.
    unsafe { c::rd_kafka_brokers_add(client.native_ptr(), brokers.as_ptr()) };
}
