use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

/// Far more than a producer without a broker needs to end.
const LIMIT: Duration = Duration::from_secs(30);

unsafe extern "C" {
    /// `None` for the two last arguments of the callback is `getaddrinfo` and `freeaddrinfo`; the
    /// library's bindings have no name for it.
    fn rd_kafka_conf_set_resolve_cb(
        conf: *mut c::rd_kafka_conf_t,
        resolve: unsafe extern "C" fn(
            *const c_char,
            *const c_char,
            *const c_void,
            *mut *mut c_void,
            *mut c_void,
        ) -> i32,
    );
}

/// The server of names answers nobody who asks while this is locked.
static NAMES: Mutex<()> = Mutex::new(());
static IS_ASKED: AtomicBool = AtomicBool::new(false);

fn names() -> MutexGuard<'static, ()> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn resolve(
    node: *const c_char,
    _: *const c_char,
    _: *const c_void,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> i32 {
    /// EAI_AGAIN.
    const TRY_AGAIN: i32 = -3;
    if !node.is_null() {
        IS_ASKED.store(true, Ordering::SeqCst);
        drop(names());
    }
    TRY_AGAIN
}

#[test]
fn the_end_of_a_producer_does_not_wait_for_the_server_of_names() {
    let silent = names();
    let properties = [("bootstrap.servers".to_owned(), "broker.invalid:9092".to_owned())];
    let conf = configuration(&properties).unwrap();
    // SAFETY: the configuration is fresh; the callback writes no addresses, and says so.
    let mut producer = unsafe {
        rd_kafka_conf_set_resolve_cb(conf, resolve);
        Producer::of(conf, partitioner(&properties)).unwrap()
    };
    // GIVEN a producer one of whose threads asks for the address of its broker
    while !IS_ASKED.load(Ordering::SeqCst) {
        producer.poll(10);
    }
    // WHEN it is dropped while nobody answers THEN its end does not wait for the answer
    let (dropped, is_dropped) = mpsc::channel::<()>();
    let dropping = thread::spawn(move || {
        drop(producer);
        drop(dropped);
    });
    let ended = is_dropped.recv_timeout(LIMIT);
    drop(silent);
    dropping.join().unwrap();
    assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
}
