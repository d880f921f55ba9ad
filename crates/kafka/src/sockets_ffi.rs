//! The sockets of a librdkafka client, so that its end is known before all its threads have ended: a
//! thread may be asking for the address of a broker for half a minute. And none is opened when another
//! relay may have the slot: after a process was frozen, librdkafka's threads may run before the relay's,
//! and would connect again and send what it holds.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rdkafka::bindings as c;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

const WITHOUT_LIMIT: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Sockets {
    open: AtomicUsize,
    is_shut: AtomicBool,
    made_at: Instant,
    /// Until when sockets are opened, in nanoseconds since these were made.
    until_ns: AtomicU64,
}

impl Default for Sockets {
    fn default() -> Sockets {
        Sockets {
            open: AtomicUsize::default(),
            is_shut: AtomicBool::default(),
            made_at: Instant::now(),
            until_ns: AtomicU64::new(WITHOUT_LIMIT),
        }
    }
}

impl Sockets {
    /// Lets a client open and close its sockets here.
    ///
    /// # Safety
    /// The configuration lives, and has no other opaque; the client must end before these sockets do.
    pub(super) unsafe fn install(self: &Arc<Sockets>, conf: *mut c::rd_kafka_conf_t) {
        // SAFETY: as the caller promises.
        unsafe {
            c::rd_kafka_conf_set_opaque(conf, Arc::as_ptr(self).cast_mut().cast());
            c::rd_kafka_conf_set_socket_cb(conf, Some(open));
            c::rd_kafka_conf_set_closesocket_cb(conf, Some(close));
        }
    }

    /// Refuses further sockets.
    pub(super) fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    /// Refuses sockets from `until` on; of an idle client only until it is told again.
    pub(super) fn open_until(&self, until: Instant, is_idle: bool, now: Instant) {
        let until_ns = until.saturating_duration_since(self.made_at).as_nanos();
        let until_ns = match is_idle && until <= now {
            true => WITHOUT_LIMIT,
            false => u64::try_from(until_ns).unwrap_or(WITHOUT_LIMIT),
        };
        self.until_ns.store(until_ns, Ordering::SeqCst);
    }

    fn is_refused(&self, now: Instant) -> bool {
        let since_ns = now.saturating_duration_since(self.made_at).as_nanos();
        let until_ns = self.until_ns.load(Ordering::SeqCst);
        self.is_shut.load(Ordering::SeqCst)
            || until_ns != WITHOUT_LIMIT && since_ns >= u128::from(until_ns)
    }

    pub(super) fn are_closed(&self) -> bool {
        self.open.load(Ordering::SeqCst) == 0
    }

    /// Counted before it is asked whether it may be: otherwise [`Sockets::are_closed`] could come between
    /// the two.
    fn open(&self, domain: c_int, kind: c_int, protocol: c_int) -> Option<Socket> {
        self.open.fetch_add(1, Ordering::SeqCst);
        let (domain, kind) = (Domain::from(domain), Type::from(kind));
        let is_refused = self.is_refused(Instant::now());
        let socket = Some(Protocol::from(protocol)).filter(|_| !is_refused);
        let socket = socket.and_then(|protocol| Socket::new(domain, kind, Some(protocol)).ok());
        if socket.is_none() {
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
        socket
    }
}

unsafe extern "C" fn open(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: `install` has set the opaque, and the client ends before it.
    let sockets = unsafe { &*opaque.cast::<Sockets>() };
    sockets.open(domain, kind, protocol).map_or(-1, Socket::into_raw_fd)
}

/// The kernel must not go on sending what the client has withdrawn.
unsafe extern "C" fn close(socket: c_int, opaque: *mut c_void) -> c_int {
    // SAFETY: librdkafka owns the socket, and does not use it again; for the opaque as in `open`.
    let (socket, sockets) = unsafe { (OwnedFd::from_raw_fd(socket), &*opaque.cast::<Sockets>()) };
    let _best_effort = SockRef::from(&socket).set_linger(Some(Duration::ZERO)).is_ok();
    drop(socket);
    sockets.open.fetch_sub(1, Ordering::SeqCst);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_socket_is_opened_for_records_that_another_relay_may_have() {
        let sockets = Sockets::default();
        let (now, second) = (sockets.made_at + Duration::from_secs(10), Duration::from_secs(1));
        assert!(!sockets.is_refused(now));
        sockets.open_until(now, false, now - second);
        assert!(!sockets.is_refused(now - second) && sockets.is_refused(now));
        // WHEN it is told later that there is more time, or that nothing is held
        sockets.open_until(now + second, false, now);
        assert!(!sockets.is_refused(now));
        sockets.open_until(now, true, now + second);
        assert!(!sockets.is_refused(now + second));
        // AND a client that was idle when it was told last has not lost the limit
        sockets.open_until(now + second, true, now);
        assert!(sockets.is_refused(now + second));
        let made_at = sockets.made_at;
        sockets.open_until(made_at, false, now);
        assert!(sockets.open(2, 1, 6).is_none() && sockets.are_closed());
    }
}
