//! Two settings of the system: when a socket wakes its reader, and how many arenas malloc grows.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

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
