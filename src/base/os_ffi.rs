//! What the system is told: when a socket wakes its reader, how many arenas malloc grows, and when it
//! gives memory back.
#![allow(unsafe_code)]

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

/// What is larger is taken from the system by itself, and given back when it is free.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: c_int = 1 << 20;

/// Gives every large piece of memory back when it is free. By itself glibc raises the limit to the
/// largest piece of up to 32 MB that was ever freed, and keeps twice as much. Call before any other
/// thread exists.
#[cfg(target_env = "gnu")]
pub fn return_large_pieces() {
    // SAFETY: mallopt only sets a tunable.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * LARGE_BYTES);
    }
}

/// Other allocators have limits of their own.
#[cfg(not(target_env = "gnu"))]
pub fn return_large_pieces() {}

/// Gives free memory back to the system. glibc does so by itself only where it lies at the end of an
/// arena, or was taken in one large piece.
#[cfg(target_env = "gnu")]
pub fn trim_malloc() {
    // SAFETY: malloc_trim releases pages that hold nothing.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators look after it themselves.
#[cfg(not(target_env = "gnu"))]
pub fn trim_malloc() {}
