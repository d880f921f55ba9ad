//! How large a record a topic takes, asked of the cluster.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::ptr;

use rdkafka::bindings as c;

use crate::sink::kafka::answer_ffi::text_of;
use crate::sink::kafka::producer_ffi::Producer;

/// The topic's own, or what the broker says for all topics.
const SETTING: &str = "max.message.bytes";

impl Producer {
    /// Asks how large a record this topic takes; the answer comes with [`Producer::poll`], or never:
    /// the login may not be allowed to know.
    pub fn ask_record_limit(&mut self, topic: &str) {
        let Ok(name) = CString::new(topic) else { return };
        // SAFETY: the resource is ours; the request copies it, and it is destroyed once it was
        // asked for; no options are the defaults.
        unsafe {
            let kind = c::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC;
            let resource = c::rd_kafka_ConfigResource_new(kind, name.as_ptr());
            if resource.is_null() {
                return;
            }
            let mut resources = [resource];
            let none = ptr::null();
            c::rd_kafka_DescribeConfigs(self.rk, resources.as_mut_ptr(), 1, none, self.queue);
            c::rd_kafka_ConfigResource_destroy(resource);
        }
    }
}

/// The limit in an answer.
///
/// # Safety
/// `event` is the answer to `DescribeConfigs`, and lives.
pub(crate) unsafe fn record_limit(event: *mut c::rd_kafka_event_t) -> Option<usize> {
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
        let found = c::rd_kafka_ConfigResource_configs(*found, &mut settings);
        let settings = (0..settings).map(|index| *found.add(index));
        let mut values =
            settings.filter(|setting| text_of(c::rd_kafka_ConfigEntry_name(*setting)) == SETTING);
        let value = c::rd_kafka_ConfigEntry_value(values.next()?);
        (!value.is_null()).then(|| text_of(value))?.parse().ok()
    }
}
