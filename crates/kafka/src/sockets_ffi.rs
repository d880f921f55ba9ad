//! The sockets of a librdkafka client, so that its end is known before all its threads have ended: a
//! thread may be asking for the address of a broker for half a minute.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rdkafka::bindings as c;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

#[derive(Debug, Default)]
pub(super) struct Sockets {
    open: AtomicUsize,
    is_shut: AtomicBool,
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

    pub(super) fn are_closed(&self) -> bool {
        self.open.load(Ordering::SeqCst) == 0
    }

    /// Counted before it is asked whether it may be: otherwise [`Sockets::are_closed`] could come between
    /// the two.
    fn open(&self, domain: c_int, kind: c_int, protocol: c_int) -> Option<Socket> {
        self.open.fetch_add(1, Ordering::SeqCst);
        let (domain, kind) = (Domain::from(domain), Type::from(kind));
        let is_shut = self.is_shut.load(Ordering::SeqCst);
        let socket = Some(Protocol::from(protocol)).filter(|_| !is_shut);
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
