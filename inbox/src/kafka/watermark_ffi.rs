//! The end of a partition, as the last answer of its broker has told it.
#![allow(unsafe_code)]

use std::ffi::CString;

use rdkafka::ClientContext;
use rdkafka::bindings as c;
use rdkafka::client::Client;

const NO_ERROR: c::rd_kafka_resp_err_t = c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;

/// Without asking the broker. The offset that its next record gets; not known before the first
/// answer.
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
