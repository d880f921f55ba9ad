//! The one place with `unsafe`: calls into C that no safe crate offers at the cost we need.
//!
//! * librdkafka's producer with an integer opaque, a topic handle per topic and an event queue that
//!   is polled by the loop that owns the window. The safe API costs a `CString`, a locked scan of
//!   the topic list and a callback per message; its futures reorder when the queue is full.
//! * `SO_RCVLOWAT`, so that a lone Begin or Commit wakes nobody.
//! * `mallopt`, so that librdkafka's threads share one arena instead of growing one each.
//!
//! Soundness, once for all: every pointer below is created here, checked for null, owned by exactly
//! one value, and destroyed in its `Drop`; librdkafka copies key, value and headers before the call
//! returns, so borrowed slices need to live no longer than the call; handles are `Send` because
//! librdkafka's API is thread-safe, and not `Sync` because nobody needs that.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rdkafka::bindings as c;
use rdkafka::types::RDKafkaErrorCode;

use crate::message::{Outbound, Sequence};

/// A librdkafka producer.
pub struct Producer {
    rk: *mut c::rd_kafka_t,
    queue: *mut c::rd_kafka_queue_t,
    topics: HashMap<Box<str>, *mut c::rd_kafka_topic_t>,
    vus: Vec<c::rd_kafka_vu_t>,
}

// SAFETY: librdkafka handles may be used from any thread.
unsafe impl Send for Producer {}

/// What librdkafka tells its user.
#[derive(Debug)]
pub enum ProducerEvent {
    /// The broker has the record that was given to [`Producer::produce`] under this number.
    Confirmed(Sequence),
    /// It does not, or may not.
    Failed {
        /// Given to [`Producer::produce`].
        sequence: Sequence,
        /// Why.
        code: RDKafkaErrorCode,
        /// Where it was to go.
        topic: String,
        /// Its header `id`, if it has one.
        id: String,
    },
    /// Something about the client as a whole.
    Error {
        /// Its code; `Fatal` when the producer is unusable from now on.
        code: RDKafkaErrorCode,
        /// For people.
        text: String,
    },
}

/// What the cluster says about a topic.
#[derive(Debug)]
pub struct TopicMetadata {
    /// Its name.
    pub name: String,
    /// How many partitions it has.
    pub partitions: i32,
    /// `NoError`, or why it cannot be used.
    pub code: RDKafkaErrorCode,
}

impl Producer {
    /// A producer with these properties; the error names the property.
    pub fn new(properties: &[(String, String)]) -> Result<Producer, String> {
        let mut message: [c_char; 512] = [0; 512];
        // SAFETY: `conf` is fresh; strings are NUL-terminated; `message` outlives each call; on
        // success `rd_kafka_new` takes `conf` over, otherwise it is destroyed here.
        unsafe {
            let conf = c::rd_kafka_conf_new();
            for (name, value) in properties {
                let (Ok(c_name), Ok(c_value)) =
                    (CString::new(name.as_str()), CString::new(value.as_str()))
                else {
                    c::rd_kafka_conf_destroy(conf);
                    return Err(format!("property {name} contains a NUL byte"));
                };
                let outcome = c::rd_kafka_conf_set(
                    conf,
                    c_name.as_ptr(),
                    c_value.as_ptr(),
                    message.as_mut_ptr(),
                    message.len(),
                );
                if outcome != c::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK {
                    c::rd_kafka_conf_destroy(conf);
                    return Err(text_of(message.as_ptr()));
                }
            }
            c::rd_kafka_conf_set_events(conf, c::RD_KAFKA_EVENT_DR | c::RD_KAFKA_EVENT_ERROR);
            c::rd_kafka_conf_set_log_cb(conf, Some(forward_log));
            let kind = c::rd_kafka_type_t::RD_KAFKA_PRODUCER;
            let rk = c::rd_kafka_new(kind, conf, message.as_mut_ptr(), message.len());
            if rk.is_null() {
                c::rd_kafka_conf_destroy(conf);
                return Err(text_of(message.as_ptr()));
            }
            let queue = c::rd_kafka_queue_get_main(rk);
            Ok(Producer { rk, queue, topics: HashMap::new(), vus: Vec::with_capacity(8) })
        }
    }

    /// Hands one record over. `Err` means librdkafka did not take it.
    pub fn produce(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
    ) -> Result<(), RDKafkaErrorCode> {
        let topic = self.topic(event.topic)?;
        let headers = native_headers(event)?;
        let (key, key_len) = pointer_of(event.key);
        let (value, value_len) = pointer_of(event.value);
        use c::rd_kafka_vtype_t as kind;
        self.vus.clear();
        let vus = &mut self.vus;
        vus.push(vu(kind::RD_KAFKA_VTYPE_RKT, |u| u.rkt = topic));
        vus.push(vu(kind::RD_KAFKA_VTYPE_MSGFLAGS, |u| u.i = c::RD_KAFKA_MSG_F_COPY));
        vus.push(vu(kind::RD_KAFKA_VTYPE_KEY, |u| u.mem = mem(key, key_len)));
        vus.push(vu(kind::RD_KAFKA_VTYPE_VALUE, |u| u.mem = mem(value, value_len)));
        vus.push(vu(kind::RD_KAFKA_VTYPE_TIMESTAMP, |u| u.i64_ = event.commit_unix_us / 1000));
        // The opaque is a number that is never dereferenced.
        vus.push(vu(kind::RD_KAFKA_VTYPE_OPAQUE, |u| {
            u.ptr = ptr::without_provenance_mut(sequence as usize)
        }));
        if let Some(partition) = event.partition {
            vus.push(vu(kind::RD_KAFKA_VTYPE_PARTITION, |u| u.i32_ = partition));
        }
        if !headers.is_null() {
            vus.push(vu(kind::RD_KAFKA_VTYPE_HEADERS, |u| u.headers = headers));
        }
        // SAFETY: the array is initialised as each vtype wants it; on success librdkafka owns
        // `headers`, on failure it is still ours.
        unsafe {
            let error = c::rd_kafka_produceva(self.rk, vus.as_ptr(), vus.len());
            if error.is_null() {
                return Ok(());
            }
            let code = c::rd_kafka_error_code(error).into();
            c::rd_kafka_error_destroy(error);
            if !headers.is_null() {
                c::rd_kafka_headers_destroy(headers);
            }
            Err(code)
        }
    }

    /// Hands over all that librdkafka has to tell, waiting at most `timeout_ms` for the first.
    pub fn poll(&mut self, timeout_ms: i32, mut tell: impl FnMut(ProducerEvent)) {
        let mut timeout_ms = timeout_ms;
        loop {
            // SAFETY: the queue is ours; the event is destroyed before the next is taken, and its
            // messages are not used after that.
            unsafe {
                let event = c::rd_kafka_queue_poll(self.queue, timeout_ms);
                if event.is_null() {
                    return;
                }
                timeout_ms = 0;
                match c::rd_kafka_event_type(event) {
                    c::RD_KAFKA_EVENT_DR => loop {
                        let message = c::rd_kafka_event_message_next(event);
                        if message.is_null() {
                            break;
                        }
                        let sequence = (*message)._private.addr() as Sequence;
                        tell(match code_at(&raw const (*message).err) {
                            RDKafkaErrorCode::NoError => ProducerEvent::Confirmed(sequence),
                            code => {
                                let topic = text_of(c::rd_kafka_topic_name((*message).rkt));
                                ProducerEvent::Failed { sequence, code, topic, id: id_of(message) }
                            }
                        });
                    },
                    c::RD_KAFKA_EVENT_ERROR => tell(ProducerEvent::Error {
                        code: c::rd_kafka_event_error(event).into(),
                        text: text_of(c::rd_kafka_event_error_string(event)),
                    }),
                    _ => {}
                }
                c::rd_kafka_event_destroy(event);
            }
        }
    }

    /// Asks the cluster about one topic (or, without one, only whether it answers).
    pub fn metadata(
        &mut self,
        topic: Option<&str>,
        timeout_ms: i32,
    ) -> Result<Vec<TopicMetadata>, RDKafkaErrorCode> {
        let handle = match topic {
            Some(name) => self.topic(name)?,
            None => ptr::null_mut(),
        };
        let mut answer: *const c::rd_kafka_metadata = ptr::null();
        // SAFETY: `answer` is written on success only, read before it is destroyed, and its arrays
        // have the lengths beside them.
        unsafe {
            let code = c::rd_kafka_metadata(self.rk, 0, handle, &mut answer, timeout_ms);
            if code != c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                return Err(code.into());
            }
            let count = usize::try_from((*answer).topic_cnt).unwrap_or(0);
            let topics = (0..count).map(|index| (*answer).topics.add(index));
            let found = topics
                .map(|topic| TopicMetadata {
                    name: text_of((*topic).topic),
                    partitions: (*topic).partition_cnt,
                    code: code_at(&raw const (*topic).err),
                })
                .collect();
            c::rd_kafka_metadata_destroy(answer);
            Ok(found)
        }
    }

    fn topic(&mut self, name: &str) -> Result<*mut c::rd_kafka_topic_t, RDKafkaErrorCode> {
        if let Some(handle) = self.topics.get(name) {
            return Ok(*handle);
        }
        let c_name = CString::new(name).map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
        // SAFETY: `rk` lives; a null configuration means the producer's own.
        let handle = unsafe { c::rd_kafka_topic_new(self.rk, c_name.as_ptr(), ptr::null_mut()) };
        if handle.is_null() {
            return Err(RDKafkaErrorCode::InvalidTopic);
        }
        self.topics.insert(name.into(), handle);
        Ok(handle)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // SAFETY: everything here was created in `new` or `topic` and is not used again. Purging
        // first keeps destruction from waiting for a broker that does not answer.
        unsafe {
            let all = c::RD_KAFKA_PURGE_F_QUEUE
                | c::RD_KAFKA_PURGE_F_INFLIGHT
                | c::RD_KAFKA_PURGE_F_NON_BLOCKING;
            c::rd_kafka_purge(self.rk, all);
            for handle in self.topics.values() {
                c::rd_kafka_topic_destroy(*handle);
            }
            c::rd_kafka_queue_destroy(self.queue);
            c::rd_kafka_destroy_flags(self.rk, c::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
        }
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

/// Null for an absent value; an empty one keeps its (dangling, never read) address.
fn pointer_of(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    bytes.map_or((ptr::null_mut(), 0), |bytes| (bytes.as_ptr().cast_mut().cast(), bytes.len()))
}

fn native_headers(event: &Outbound<'_>) -> Result<*mut c::rd_kafka_headers_t, RDKafkaErrorCode> {
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

/// A code that a broker may have sent. One newer than the bindings may send a number that their enum
/// does not have, so it is read as a number.
///
/// # Safety
/// `code` points into a message or an answer that lives.
unsafe fn code_at(code: *const c::rd_kafka_resp_err_t) -> RDKafkaErrorCode {
    // SAFETY: the enum is a C int.
    let number = unsafe { code.cast::<c_int>().read() };
    c::rd_kafka_resp_err_t::try_from(number).map_or(RDKafkaErrorCode::Unknown, Into::into)
}

/// The header `id` of a record whose delivery failed.
///
/// # Safety
/// `message` is one that an event holds, and the event lives.
unsafe fn id_of(message: *const c::rd_kafka_message_t) -> String {
    let mut headers = ptr::null_mut();
    let (mut value, mut length) = (ptr::null(), 0);
    let ok = c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
    // SAFETY: the list belongs to the message; the value has the length beside it.
    unsafe {
        if c::rd_kafka_message_headers(message, &mut headers) != ok
            || c::rd_kafka_header_get_last(headers, c"id".as_ptr(), &mut value, &mut length) != ok
            || value.is_null()
        {
            return "without id".to_owned();
        }
        String::from_utf8_lossy(std::slice::from_raw_parts(value.cast::<u8>(), length)).into_owned()
    }
}

/// # Safety
/// `text` is null or NUL-terminated.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// librdkafka's own log lines, from its own threads.
unsafe extern "C" fn forward_log(
    _: *const c::rd_kafka_t,
    level: c_int,
    facility: *const c_char,
    line: *const c_char,
) {
    // SAFETY: librdkafka passes NUL-terminated strings.
    let (facility, line) = unsafe { (text_of(facility), text_of(line)) };
    match level {
        // Opinions on properties, one of which we set for good reason.
        _ if facility == "CONFWARN" => tracing::debug!(target: "librdkafka", facility, "{line}"),
        0..=3 => tracing::warn!(target: "librdkafka", facility, "{line}"),
        4 => tracing::info!(target: "librdkafka", facility, "{line}"),
        _ => tracing::debug!(target: "librdkafka", facility, "{line}"),
    }
}

/// Lets `poll` report a socket readable only once `bytes` are waiting (or it ended).
pub fn set_receive_low_water(socket: BorrowedFd<'_>, bytes: i32) -> std::io::Result<()> {
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the borrow; the option is an int.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            length,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// One malloc arena for all threads. Call before any other thread exists. librdkafka allocates on
/// one thread and frees on another, which makes glibc grow an arena for each.
#[cfg(target_env = "gnu")]
pub fn share_malloc_arena() {
    // SAFETY: mallopt only sets a tunable.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Only glibc has arenas.
#[cfg(not(target_env = "gnu"))]
pub fn share_malloc_arena() {}
