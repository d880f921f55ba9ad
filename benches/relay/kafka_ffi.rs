//! librdkafka with nothing around it: records are enqueued, and confirms counted.
//!
//! Soundness of the whole file: every pointer below is created here, checked for null, owned by one
//! value and destroyed in its `Drop`; librdkafka copies key and payload before the call returns.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::{Duration, Instant};

use rdkafka::bindings as c;
use rdkafka::bindings::rd_kafka_resp_err_t::{
    RD_KAFKA_RESP_ERR__QUEUE_FULL as QUEUE_FULL, RD_KAFKA_RESP_ERR_NO_ERROR as NO_ERROR,
};
use walrelay_harness::{HarnessError, Result};

const LIMIT: Duration = Duration::from_secs(60);
/// `RD_KAFKA_PARTITION_UA`: librdkafka chooses the partition.
const ANY_PARTITION: i32 = -1;
/// The properties that the relay sets, except that the queue is no larger than the relay's default
/// window.
const PROPERTIES: &[(&str, &str)] = &[
    ("acks", "all"),
    ("enable.idempotence", "true"),
    ("enable.gapless.guarantee", "true"),
    ("max.in.flight", "2"),
    ("linger.ms", "0"),
    ("batch.size", "1000000"),
    ("batch.num.messages", "10000"),
    ("message.timeout.ms", "0"),
    ("queue.buffering.max.messages", "16384"),
    ("partitioner", "murmur2_random"),
    ("socket.nagle.disable", "true"),
    ("reconnect.backoff.ms", "50"),
    ("reconnect.backoff.max.ms", "500"),
    ("retry.backoff.ms", "50"),
    ("log_level", "0"),
];

/// An idempotent producer for one topic.
pub(crate) struct Producer {
    rk: *mut c::rd_kafka_t,
    queue: *mut c::rd_kafka_queue_t,
    topic: *mut c::rd_kafka_topic_t,
    enqueued: u64,
    confirmed: u64,
}

impl Producer {
    pub(crate) fn new(brokers: &str, topic: &str) -> Result<Producer> {
        let topic = text(topic)?;
        let mut message: [c_char; 512] = [0; 512];
        // SAFETY: `conf` is fresh; strings are NUL-terminated; `message` outlives each call; on
        // success `rd_kafka_new` takes `conf` over, otherwise it is destroyed here. No topic
        // configuration is the default.
        unsafe {
            let conf = c::rd_kafka_conf_new();
            let own = [("bootstrap.servers", brokers)];
            for (name, value) in PROPERTIES.iter().chain(&own) {
                let (name, value) = (text(name)?, text(value)?);
                let (said, length) = (message.as_mut_ptr(), message.len());
                if c::rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), said, length)
                    != c::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK
                {
                    c::rd_kafka_conf_destroy(conf);
                    return Err(failed(said));
                }
            }
            c::rd_kafka_conf_set_events(conf, c::RD_KAFKA_EVENT_DR);
            let kind = c::rd_kafka_type_t::RD_KAFKA_PRODUCER;
            let rk = c::rd_kafka_new(kind, conf, message.as_mut_ptr(), message.len());
            if rk.is_null() {
                c::rd_kafka_conf_destroy(conf);
                return Err(failed(message.as_ptr()));
            }
            let queue = c::rd_kafka_queue_get_main(rk);
            let topic = c::rd_kafka_topic_new(rk, topic.as_ptr(), ptr::null_mut());
            let producer = Producer { rk, queue, topic, enqueued: 0, confirmed: 0 };
            if topic.is_null() {
                return Err(failed(c::rd_kafka_err2str(c::rd_kafka_last_error())));
            }
            Ok(producer)
        }
    }

    /// Enqueues a record; false while the queue is full.
    pub(crate) fn enqueue(
        &mut self,
        key: &[u8],
        payload: &[u8],
        headers: &[(&str, &str)],
    ) -> Result<bool> {
        let error = if headers.is_empty() {
            self.produce(key, payload)
        } else {
            self.produce_with_headers(key, payload, headers)
        };
        if error == NO_ERROR {
            self.enqueued += 1;
            return Ok(true);
        }
        // SAFETY: the text is a constant.
        if error == QUEUE_FULL {
            Ok(false)
        } else {
            Err(unsafe { failed(c::rd_kafka_err2str(error)) })
        }
    }

    fn produce(&mut self, key: &[u8], payload: &[u8]) -> c::rd_kafka_resp_err_t {
        let (start, length) = (payload.as_ptr().cast_mut().cast(), payload.len());
        let (copy, topic, none) = (c::RD_KAFKA_MSG_F_COPY, self.topic, ptr::null_mut());
        let (key, key_length) = (key.as_ptr().cast(), key.len());
        // SAFETY: the topic lives, the slices outlive the call, and with the flag the payload is
        // only read; the opaque is not used. The error is a variable of this thread.
        unsafe {
            match c::rd_kafka_produce(
                topic,
                ANY_PARTITION,
                copy,
                start,
                length,
                key,
                key_length,
                none,
            ) {
                0 => NO_ERROR,
                _ => c::rd_kafka_last_error(),
            }
        }
    }

    fn produce_with_headers(
        &mut self,
        key: &[u8],
        payload: &[u8],
        headers: &[(&str, &str)],
    ) -> c::rd_kafka_resp_err_t {
        use c::rd_kafka_vtype_t as kind;
        let mem = |bytes: &[u8]| c::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
            ptr: bytes.as_ptr().cast_mut().cast(),
            size: bytes.len(),
        };
        // SAFETY: the list is fresh, and names and values are copied with their lengths; each union
        // holds what its type says; librdkafka takes the list over only if it takes the record.
        unsafe {
            let list = c::rd_kafka_headers_new(headers.len());
            for (name, value) in headers {
                let (name_length, value_length) = (name.len() as isize, value.len() as isize);
                let (name, value) = (name.as_ptr().cast(), value.as_ptr().cast());
                c::rd_kafka_header_add(list, name, name_length, value, value_length);
            }
            let vu = |vtype, u| c::rd_kafka_vu_t { vtype, u };
            type Value = c::rd_kafka_vu_s__bindgen_ty_1;
            let record = [
                vu(kind::RD_KAFKA_VTYPE_RKT, Value { rkt: self.topic }),
                vu(kind::RD_KAFKA_VTYPE_MSGFLAGS, Value { i: c::RD_KAFKA_MSG_F_COPY }),
                vu(kind::RD_KAFKA_VTYPE_KEY, Value { mem: mem(key) }),
                vu(kind::RD_KAFKA_VTYPE_VALUE, Value { mem: mem(payload) }),
                vu(kind::RD_KAFKA_VTYPE_HEADERS, Value { headers: list }),
            ];
            let error = c::rd_kafka_produceva(self.rk, record.as_ptr(), record.len());
            if error.is_null() {
                return NO_ERROR;
            }
            let code = c::rd_kafka_error_code(error);
            c::rd_kafka_error_destroy(error);
            c::rd_kafka_headers_destroy(list);
            code
        }
    }

    /// Counts the confirms that are there, and waits at most so long for the first.
    pub(crate) fn poll(&mut self, mut timeout_ms: i32) -> Result<()> {
        loop {
            // SAFETY: the queue is ours; the event is destroyed before the next is taken, and its
            // messages are not used after that.
            unsafe {
                let event = c::rd_kafka_queue_poll(self.queue, timeout_ms);
                if event.is_null() {
                    return Ok(());
                }
                timeout_ms = 0;
                let mut error = 0;
                let mut message = c::rd_kafka_event_message_next(event);
                while !message.is_null() {
                    error |= (&raw const (*message).err).cast::<i32>().read();
                    self.confirmed += 1;
                    message = c::rd_kafka_event_message_next(event);
                }
                c::rd_kafka_event_destroy(event);
                if error != 0 {
                    // What is refused ends the measurement.
                    return Err(HarnessError::Other(format!("librdkafka: error {error}")));
                }
            }
        }
    }

    /// Waits until all is confirmed.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let began = Instant::now();
        while self.confirmed < self.enqueued {
            if began.elapsed() > LIMIT {
                let what = format!("{} confirms, {} came", self.enqueued, self.confirmed);
                return Err(HarnessError::Late { what, limit: LIMIT });
            }
            self.poll(10)?;
        }
        Ok(())
    }

    /// Since the start.
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // SAFETY: nothing is used after this, and the handles go before the client.
        unsafe {
            if !self.topic.is_null() {
                c::rd_kafka_topic_destroy(self.topic);
            }
            c::rd_kafka_queue_destroy(self.queue);
            c::rd_kafka_destroy(self.rk);
        }
    }
}

fn text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| HarnessError::Other(format!("{text:?} holds a NUL byte")))
}

/// # Safety
/// `message` is NUL-terminated and lives.
unsafe fn failed(message: *const c_char) -> HarnessError {
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(message) };
    HarnessError::Other(format!("librdkafka: {}", text.to_string_lossy()))
}
