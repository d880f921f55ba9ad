//! librdkafka's producer with an integer opaque, a topic handle per topic and an event queue that
//! is polled by the loop that owns the window. The safe API costs a `CString`, a locked scan of the
//! topic list and a callback per message; its futures reorder when the queue is full.
//!
//! Soundness of the whole file: every pointer below is created here, checked for null, owned by
//! exactly one value, and destroyed in its `Drop`; librdkafka copies key, value and headers before
//! the call returns, so borrowed slices need to live no longer than the call; handles are `Send`
//! because librdkafka's API is thread-safe, and not `Sync` because nobody needs that.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{ptr, thread};

use rdkafka::bindings as c;
use rdkafka::bindings::rd_kafka_conf_res_t as Set;
use rdkafka::bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR as NO_ERROR;
use rdkafka::error::{KafkaError, KafkaResult};
use walrelay_core::sink::kafka::Code;
use walrelay_core::sink::kafka::port::{ProducerAnswers, TopicDescription, TopicId};

use super::answer_ffi::{code_at, described, forward_log, record_limit, text_of, unwritable};
use super::brokers_ffi;
use super::properties::plain_name;
use super::record_ffi::{copy_back, native_headers, pointer_of};
use super::sockets_ffi::Sockets;
use walrelay_base::event::{Outbound, Sequence};

pub(super) struct Producer {
    rk: *mut c::rd_kafka_t,
    queue: *mut c::rd_kafka_queue_t,
    /// Places in `handles`, by name.
    topics: HashMap<Box<str>, TopicId>,
    handles: Vec<*mut c::rd_kafka_topic_t>,
    partitioner: Partitioner,
    pub(super) sockets: Arc<Sockets>,
}

// SAFETY: librdkafka handles may be used from any thread.
unsafe impl Send for Producer {}

/// How long the end of the client's threads is waited for before closed sockets are enough: the data thread
/// waits meanwhile.
const THREADS_END_WITHIN: Duration = Duration::from_millis(20);

/// `RD_KAFKA_PARTITION_UA`: librdkafka chooses the partition.
const ANY_PARTITION: i32 = -1;

type Partitioner = unsafe extern "C" fn(
    *const c::rd_kafka_topic_t,
    *const c_void,
    usize,
    i32,
    *mut c_void,
    *mut c_void,
) -> i32;

impl Producer {
    /// Makes a producer. The error is [`KafkaError::ClientConfig`], without the value, or [`KafkaError::ClientCreation`].
    pub(super) fn new(properties: &[(String, String)]) -> KafkaResult<Producer> {
        // SAFETY: the configuration is fresh, and nobody else has it.
        unsafe { Producer::of(configuration(properties)?, partitioner(properties)) }
    }

    /// # Safety
    /// The configuration lives, and is given away.
    unsafe fn of(conf: *mut c::rd_kafka_conf_t, partitioner: Partitioner) -> KafkaResult<Producer> {
        let mut message: [c_char; 512] = [0; 512];
        let sockets = Arc::<Sockets>::default();
        // SAFETY: on success `rd_kafka_new` takes `conf` over, otherwise it is destroyed here; `message`
        // outlives the call; the sockets outlive the client (`Remains`).
        unsafe {
            c::rd_kafka_conf_set_events(conf, c::RD_KAFKA_EVENT_DR | c::RD_KAFKA_EVENT_ERROR);
            c::rd_kafka_conf_set_log_cb(conf, Some(forward_log));
            sockets.install(conf);
            let kind = c::rd_kafka_type_t::RD_KAFKA_PRODUCER;
            let rk = c::rd_kafka_new(kind, conf, message.as_mut_ptr(), message.len());
            if rk.is_null() {
                c::rd_kafka_conf_destroy(conf);
                return Err(KafkaError::ClientCreation(text_of(message.as_ptr())));
            }
            let queue = c::rd_kafka_queue_get_main(rk);
            let (topics, handles) = (HashMap::new(), Vec::new());
            Ok(Producer { rk, queue, topics, handles, partitioner, sockets })
        }
    }

    /// Enqueues a record for `partition`, or for the one that librdkafka chooses. The record's
    /// timestamp is the time of this call: topics keep records by it, and an event of a backlog may
    /// be older than its topic's retention.
    pub(super) fn produce(
        &mut self,
        topic: TopicId,
        sequence: Sequence,
        event: &Outbound<'_>,
        partition: Option<i32>,
    ) -> Result<(), Code> {
        let headers = native_headers(event)?;
        let (key, key_len) = pointer_of(event.key);
        let (value, value_len) = pointer_of(event.value);
        // The opaque is a number that is never dereferenced: the sequence, and in the lowest bit
        // whether the event asked for its partition.
        let opaque = (sequence as usize) << 1 | usize::from(event.partition.is_some());
        use c::rd_kafka_vtype_t as kind;
        let vus = [
            vu(kind::RD_KAFKA_VTYPE_RKT, |u| u.rkt = self.handles[topic]),
            vu(kind::RD_KAFKA_VTYPE_MSGFLAGS, |u| u.i = c::RD_KAFKA_MSG_F_COPY),
            vu(kind::RD_KAFKA_VTYPE_KEY, |u| u.mem = mem(key, key_len)),
            vu(kind::RD_KAFKA_VTYPE_VALUE, |u| u.mem = mem(value, value_len)),
            vu(kind::RD_KAFKA_VTYPE_OPAQUE, |u| u.ptr = ptr::without_provenance_mut(opaque)),
            vu(kind::RD_KAFKA_VTYPE_PARTITION, |u| u.i32_ = partition.unwrap_or(ANY_PARTITION)),
            vu(kind::RD_KAFKA_VTYPE_HEADERS, |u| u.headers = headers),
        ];
        // SAFETY: the array is initialised as each vtype wants it, and null headers are none; on
        // success librdkafka owns `headers`, on failure it is still ours.
        unsafe {
            let error = c::rd_kafka_produceva(self.rk, vus.as_ptr(), vus.len());
            if error.is_null() {
                return Ok(());
            }
            let code = Code::of(c::rd_kafka_error_code(error) as i32);
            c::rd_kafka_error_destroy(error);
            if !headers.is_null() {
                c::rd_kafka_headers_destroy(headers);
            }
            Err(code)
        }
    }

    /// Drops what was not sent, and does not send again what was: each is answered as purged, or as
    /// confirmed if the broker has answered already.
    pub(super) fn purge(&mut self) {
        let all = c::RD_KAFKA_PURGE_F_QUEUE
            | c::RD_KAFKA_PURGE_F_INFLIGHT
            | c::RD_KAFKA_PURGE_F_NON_BLOCKING;
        // SAFETY: `rk` lives.
        unsafe { c::rd_kafka_purge(self.rk, all) };
    }

    /// Collects all answers, waiting at most `timeout_ms` for the first.
    pub(super) fn poll(&mut self, mut timeout_ms: i32) -> ProducerAnswers {
        let mut answers = ProducerAnswers::default();
        loop {
            // SAFETY: the queue is ours; the event is destroyed before the next is taken, and its
            // messages are not used after that.
            unsafe {
                let event = c::rd_kafka_queue_poll(self.queue, timeout_ms);
                if event.is_null() {
                    return answers;
                }
                timeout_ms = 0;
                match c::rd_kafka_event_type(event) {
                    c::RD_KAFKA_EVENT_DR => loop {
                        let message = c::rd_kafka_event_message_next(event);
                        if message.is_null() {
                            break;
                        }
                        let opaque = (*message)._private.addr();
                        let sequence = (opaque >> 1) as Sequence;
                        match code_at(&raw const (*message).err) {
                            Code::NoError => {
                                answers.confirmed.push((sequence, (*message).partition))
                            }
                            code => {
                                let record = copy_back(message, opaque & 1 == 1);
                                answers.failed.push((sequence, code, record));
                            }
                        }
                    },
                    c::RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT => {
                        let topics = described(event).into_iter();
                        let known = topics.filter_map(|(name, partitions, id)| {
                            let topic = *self.topics.get(name.as_str())?;
                            Some(TopicDescription { topic, partitions, id })
                        });
                        answers.topics.extend(known);
                    }
                    c::RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT => {
                        answers.record_limits.extend(record_limit(event));
                    }
                    c::RD_KAFKA_EVENT_ERROR => {
                        let text = text_of(c::rd_kafka_event_error_string(event));
                        let code = Code::of(c::rd_kafka_event_error(event) as i32);
                        answers.errors.push((code, text));
                    }
                    _ => {}
                }
                c::rd_kafka_event_destroy(event);
            }
        }
    }

    /// Asks how many partitions these topics have. The answer comes with [`Producer::poll`], or
    /// never.
    pub(super) fn ask_partitions(&mut self, topics: &[TopicId]) {
        // SAFETY: the names belong to the handles; the collection copies them, and is destroyed
        // once they were asked for; no options are the defaults.
        unsafe {
            let names = topics.iter().map(|topic| c::rd_kafka_topic_name(self.handles[*topic]));
            let mut names: Vec<*const c_char> = names.collect();
            let topics =
                c::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
            c::rd_kafka_DescribeTopics(self.rk, topics, ptr::null(), self.queue);
            c::rd_kafka_TopicCollection_destroy(topics);
        }
    }

    /// Which of these topics this login may describe and not write. The answer is awaited; without one the right is
    /// not known, and no topic is named.
    pub(super) fn unwritable(&mut self, topics: &[&str], timeout_ms: i32) -> Vec<String> {
        let names: Vec<CString> = topics.iter().filter_map(|it| CString::new(*it).ok()).collect();
        let mut names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let kind = c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        // SAFETY: queue, options and collection are ours, and are destroyed once the answer is read; the names
        // outlive the collection, which copies them; destroying no error does nothing.
        unsafe {
            let queue = c::rd_kafka_queue_new(self.rk);
            let options = c::rd_kafka_AdminOptions_new(self.rk, kind);
            let error = c::rd_kafka_AdminOptions_set_include_authorized_operations(options, 1);
            c::rd_kafka_error_destroy(error);
            let topics =
                c::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
            c::rd_kafka_DescribeTopics(self.rk, topics, options, queue);
            c::rd_kafka_TopicCollection_destroy(topics);
            c::rd_kafka_AdminOptions_destroy(options);
            let event = c::rd_kafka_queue_poll(queue, timeout_ms);
            let found = if event.is_null() { Vec::new() } else { unwritable(event) };
            c::rd_kafka_event_destroy(event);
            c::rd_kafka_queue_destroy(queue);
            found
        }
    }

    /// Asks how large a batch this topic takes. The answer comes with [`Producer::poll`], or
    /// never: the login may lack the right to describe the topic's configuration.
    pub(super) fn ask_record_limit(&mut self, topic: &str) {
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

    /// User and password of SASL for the connections to come.
    pub(super) fn set_login(&mut self, user: &str, password: &str) {
        let (Ok(user), Ok(password)) = (CString::new(user), CString::new(password)) else { return };
        // SAFETY: `rk` lives; both texts are copied; destroying no error does nothing.
        unsafe {
            let error = c::rd_kafka_sasl_set_credentials(self.rk, user.as_ptr(), password.as_ptr());
            c::rd_kafka_error_destroy(error);
        }
    }

    /// Names the brokers again, as `host:port,host:port`.
    pub(super) fn add_brokers(&mut self, brokers: &str) {
        // SAFETY: `rk` lives.
        unsafe { brokers_ffi::add_brokers(self.rk, brokers) }
    }

    /// The partition of a key in a topic of `count` partitions.
    pub(super) fn partition_of(&self, key: &[u8], count: i32) -> i32 {
        partition_by(self.partitioner, key, count)
    }

    /// The fatal error that has made the producer unusable, if there is one.
    pub(super) fn fatal(&mut self) -> Option<(Code, String)> {
        let mut message: [c_char; 512] = [0; 512];
        // SAFETY: `message` outlives the call, which NUL-terminates what it writes.
        unsafe {
            let code = c::rd_kafka_fatal_error(self.rk, message.as_mut_ptr(), message.len());
            (code != NO_ERROR).then(|| (Code::of(code as i32), text_of(message.as_ptr())))
        }
    }

    /// The id of the cluster, once the client has heard it.
    pub(super) fn cluster_id(&self) -> Option<String> {
        // SAFETY: `rk` lives; the text is read before it is freed, by the client that has made it.
        unsafe {
            let id = c::rd_kafka_clusterid(self.rk, 0);
            if id.is_null() {
                return None;
            }
            let text = text_of(id);
            c::rd_kafka_mem_free(self.rk, id.cast());
            Some(text)
        }
    }

    /// Asks the cluster for metadata of `topic`, or, without one, only whether it answers. `Ok` is
    /// the reason why the topic cannot be used, if it cannot.
    pub(super) fn metadata(
        &mut self,
        topic: Option<&str>,
        timeout_ms: i32,
    ) -> Result<Option<Code>, Code> {
        let handle = match topic {
            Some(name) => self.topic(name).map(|topic| self.handles[topic])?,
            None => ptr::null_mut(),
        };
        let mut answer: *const c::rd_kafka_metadata = ptr::null();
        // SAFETY: `answer` is written on success only, read before it is destroyed, and its array
        // of topics has the length beside it.
        unsafe {
            let code = c::rd_kafka_metadata(self.rk, 0, handle, &mut answer, timeout_ms);
            if code != NO_ERROR {
                return Err(Code::of(code as i32));
            }
            let count = usize::try_from((*answer).topic_cnt).unwrap_or(0);
            let mut topics = (0..count).map(|index| (*answer).topics.add(index));
            let found = topics.find(|found| topic.is_some_and(|it| text_of((**found).topic) == it));
            let code = match found {
                Some(found) => match code_at(&raw const (*found).err) {
                    Code::NoError if (*found).partition_cnt > 0 => None,
                    Code::NoError => Some(Code::UnknownTopicOrPartition),
                    code => Some(code),
                },
                None => topic.map(|_| Code::UnknownTopicOrPartition),
            };
            c::rd_kafka_metadata_destroy(answer);
            Ok(code)
        }
    }

    pub(super) fn topic_name(&self, topic: TopicId) -> Option<&str> {
        self.topics.iter().find(|(_, it)| **it == topic).map(|(name, _)| &**name)
    }

    pub(super) fn topic(&mut self, name: &str) -> Result<TopicId, Code> {
        if let Some(topic) = self.topics.get(name) {
            return Ok(*topic);
        }
        let c_name = CString::new(name).map_err(|_| Code::InvalidTopic)?;
        // SAFETY: `rk` lives; a null configuration means the producer's own.
        let handle = unsafe { c::rd_kafka_topic_new(self.rk, c_name.as_ptr(), ptr::null_mut()) };
        if handle.is_null() {
            return Err(Code::InvalidTopic);
        }
        let topic = self.handles.len();
        self.handles.push(handle);
        self.topics.insert(name.into(), topic);
        Ok(topic)
    }
}

impl Drop for Producer {
    /// When it returns, nothing more is sent: it waits as long as a socket is open. A thread that asks for the
    /// address of a broker may still live: it has no socket, and gets none.
    fn drop(&mut self) {
        // Keeps destruction from waiting for a broker that does not answer.
        self.purge();
        self.sockets.shut();
        let handles = std::mem::take(&mut self.handles);
        let (rk, queue, sockets) = (self.rk, self.queue, Arc::clone(&self.sockets));
        let remains = Remains { rk, queue, handles, _sockets: sockets };
        let (ended, end) = mpsc::channel::<()>();
        let ending = thread::Builder::new().name("kafka-end".to_owned()).spawn(move || {
            drop(remains);
            drop(ended);
        });
        while ending.is_ok()
            && end.recv_timeout(THREADS_END_WITHIN) == Err(RecvTimeoutError::Timeout)
            && !self.sockets.are_closed()
        {}
    }
}

/// The parts of a producer that librdkafka destroys.
struct Remains {
    rk: *mut c::rd_kafka_t,
    queue: *mut c::rd_kafka_queue_t,
    handles: Vec<*mut c::rd_kafka_topic_t>,
    _sockets: Arc<Sockets>,
}

// SAFETY: as for the producer.
unsafe impl Send for Remains {}

impl Drop for Remains {
    fn drop(&mut self) {
        // SAFETY: everything here was created by the producer and is not used again.
        unsafe {
            for handle in &self.handles {
                c::rd_kafka_topic_destroy(*handle);
            }
            c::rd_kafka_queue_destroy(self.queue);
            c::rd_kafka_destroy_flags(self.rk, c::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
        }
    }
}

/// A configuration with these properties. If one has two values the later one counts.
fn configuration(properties: &[(String, String)]) -> KafkaResult<*mut c::rd_kafka_conf_t> {
    let mut message: [c_char; 512] = [0; 512];
    // SAFETY: `conf` is fresh, and is destroyed if it is not returned; strings are NUL-terminated;
    // `message` outlives each call.
    unsafe {
        let conf = c::rd_kafka_conf_new();
        for (name, value) in properties {
            let refused = |result, reason| {
                c::rd_kafka_conf_destroy(conf);
                Err(KafkaError::ClientConfig(result, reason, name.clone(), String::new()))
            };
            let texts = (CString::new(name.as_str()), CString::new(value.as_str()));
            let (Ok(key), Ok(value)) = texts else {
                let reason = format!("property {name} contains a NUL byte");
                return refused(Set::RD_KAFKA_CONF_INVALID, reason);
            };
            let (text, length) = (message.as_mut_ptr(), message.len());
            let set = c::rd_kafka_conf_set(conf, key.as_ptr(), value.as_ptr(), text, length);
            if set != Set::RD_KAFKA_CONF_OK {
                return refused(set, text_of(message.as_ptr()));
            }
        }
        Ok(conf)
    }
}

type Slot = c::rd_kafka_vu_s__bindgen_ty_1;

fn vu(kind: c::rd_kafka_vtype_t, fill: impl FnOnce(&mut Slot)) -> c::rd_kafka_vu_t {
    let mut slot = Slot { _pad: [0; 64] };
    fill(&mut slot);
    c::rd_kafka_vu_t { vtype: kind, u: slot }
}

fn mem(ptr: *mut c_void, size: usize) -> c::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
    c::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr, size }
}

/// The partition to which a producer of these properties sends a key, in a topic of `count`
/// partitions.
pub(super) fn key_partition(properties: &[(String, String)], key: &[u8], count: i32) -> i32 {
    partition_by(partitioner(properties), key, count)
}

fn partition_by(partitioner: Partitioner, key: &[u8], count: i32) -> i32 {
    let (key, length) = pointer_of(Some(key));
    let none = ptr::null_mut();
    // SAFETY: the partitioners hash the key and read nothing else, so they need no topic.
    unsafe { partitioner(ptr::null(), key, length, count, none, none) }
}

/// The function that hashes keys. `_random` in a name is about records without a key.
fn partitioner(properties: &[(String, String)]) -> Partitioner {
    let wanted = properties.iter().rev().find(|(name, _)| plain_name(name) == "partitioner");
    match wanted.map(|(_, value)| value.as_str()) {
        Some("consistent" | "consistent_random") => c::rd_kafka_msg_partitioner_consistent,
        Some("fnv1a" | "fnv1a_random") => c::rd_kafka_msg_partitioner_fnv1a,
        _ => c::rd_kafka_msg_partitioner_murmur2,
    }
}

#[cfg(test)]
#[path = "producer_ffi_tests.rs"]
mod tests;
