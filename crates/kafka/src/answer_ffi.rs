//! Reads librdkafka's answers, error codes and log lines.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use rdkafka::bindings as c;
use walrelay_core::sink::kafka::Code;

/// # Safety
/// `event` is the answer to `DescribeTopics`; what is returned lives as long.
unsafe fn descriptions(
    event: *mut c::rd_kafka_event_t,
) -> Vec<*const c::rd_kafka_TopicDescription_t> {
    let mut count = 0;
    // SAFETY: the array belongs to the event, and has the length that is written.
    unsafe {
        let answer = c::rd_kafka_event_DescribeTopics_result(event);
        if answer.is_null() {
            return Vec::new();
        }
        let topics = c::rd_kafka_DescribeTopics_result_topics(answer, &mut count);
        (0..count).map(|index| *topics.add(index)).collect()
    }
}

/// How many partitions each topic has, of topics that have any; and its id.
///
/// # Safety
/// `event` is the answer to `DescribeTopics`, and lives.
pub(super) unsafe fn described(event: *mut c::rd_kafka_event_t) -> Vec<(String, usize, u128)> {
    let mut found = Vec::new();
    // SAFETY: the descriptions belong to the event.
    unsafe {
        for topic in descriptions(event) {
            let mut partitions = 0;
            c::rd_kafka_TopicDescription_partitions(topic, &mut partitions);
            if partitions > 0 {
                let name = text_of(c::rd_kafka_TopicDescription_name(topic));
                found.push((name, partitions, id_of(c::rd_kafka_TopicDescription_topic_id(topic))));
            }
        }
    }
    found
}

/// The topics of which the answer says what the login may do, and that it may not write.
///
/// # Safety
/// `event` is the answer to `DescribeTopics`, and lives.
pub(super) unsafe fn unwritable(event: *mut c::rd_kafka_event_t) -> Vec<String> {
    const WRITE: [c_int; 2] = [
        c::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_ALL as c_int,
        c::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_WRITE as c_int,
    ];
    let mut found = Vec::new();
    // SAFETY: the descriptions belong to the event; an operation is a C int, and a newer broker may name one that is
    // no value of the enum.
    unsafe {
        for topic in descriptions(event) {
            let mut count = 0;
            let operations = c::rd_kafka_TopicDescription_authorized_operations(topic, &mut count);
            let is_known = !operations.is_null() && count > 0;
            let mut known = (0..count).map(|index| operations.cast::<c_int>().add(index).read());
            if is_known && !known.any(|operation| WRITE.contains(&operation)) {
                found.push(text_of(c::rd_kafka_TopicDescription_name(topic)));
            }
        }
    }
    found
}

/// # Safety
/// The id lives, or is null.
unsafe fn id_of(id: *const c::rd_kafka_Uuid_t) -> u128 {
    if id.is_null() {
        return 0;
    }
    // SAFETY: both read numbers of what lives.
    let (high, low) = unsafe {
        (c::rd_kafka_Uuid_most_significant_bits(id), c::rd_kafka_Uuid_least_significant_bits(id))
    };
    u128::from(high.cast_unsigned()) << 64 | u128::from(low.cast_unsigned())
}

/// The topic's own limit, or the broker's where the topic has none.
const RECORD_LIMIT: &str = "max.message.bytes";

/// The topic that was asked for, and the most bytes that a batch of it may have.
///
/// # Safety
/// `event` is the answer to `DescribeConfigs`, and lives.
pub(super) unsafe fn record_limit(event: *mut c::rd_kafka_event_t) -> Option<(String, usize)> {
    let (mut resources, mut settings) = (0, 0);
    // SAFETY: the arrays belong to the event, and have the lengths that are written.
    unsafe {
        let answer = c::rd_kafka_event_DescribeConfigs_result(event);
        if answer.is_null() {
            return None;
        }
        let found = c::rd_kafka_DescribeConfigs_result_resources(answer, &mut resources);
        if resources == 0 {
            return None;
        }
        let topic = text_of(c::rd_kafka_ConfigResource_name(*found));
        let found = c::rd_kafka_ConfigResource_configs(*found, &mut settings);
        let settings = (0..settings).map(|index| *found.add(index));
        let mut limits = settings
            .filter(|setting| text_of(c::rd_kafka_ConfigEntry_name(*setting)) == RECORD_LIMIT);
        let bytes_max = text_of(c::rd_kafka_ConfigEntry_value(limits.next()?)).parse().ok()?;
        Some((topic, bytes_max))
    }
}

/// A code that a broker may have sent. A broker newer than the bindings may send a number that is
/// no value of their enum, so the code is read as a number.
///
/// # Safety
/// `code` points into a message or an answer that lives.
pub(super) unsafe fn code_at(code: *const c::rd_kafka_resp_err_t) -> Code {
    // SAFETY: the enum is a C int.
    let number = unsafe { code.cast::<c_int>().read() };
    let code = Code::of(number);
    if code == Code::Unlisted {
        tracing::warn!(
            code = "sink.unknown-answer",
            number,
            "the broker gave an error that this version does not know"
        );
    }
    code
}

/// # Safety
/// `text` is null or NUL-terminated.
pub(super) unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// librdkafka calls it from its own threads.
pub(super) unsafe extern "C" fn forward_log(
    _: *const c::rd_kafka_t,
    level: c_int,
    facility: *const c_char,
    line: *const c_char,
) {
    // SAFETY: librdkafka passes NUL-terminated strings.
    let (facility, line) = unsafe { (text_of(facility), text_of(line)) };
    match level {
        // Warnings about properties; one of them is about a default of ours that is intended.
        _ if facility == "CONFWARN" => tracing::debug!(target: "librdkafka", facility, "{line}"),
        0..=3 => tracing::warn!(target: "librdkafka", code = "sink.client", facility, "{line}"),
        4 => tracing::info!(target: "librdkafka", facility, "{line}"),
        _ => tracing::debug!(target: "librdkafka", facility, "{line}"),
    }
}
