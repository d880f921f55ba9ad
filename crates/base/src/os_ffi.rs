//! System calls and libc functions without a safe wrapper: `SO_RCVLOWAT`, `SIOCOUTQ`, `mmap`,
//! `clock_gettime` and `_exit`.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// `poll` reports the socket readable only when so many bytes have arrived, or it was closed.
pub fn set_receive_low_water(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
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
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes of a TCP socket that the other end has not acknowledged, sent or not.
pub fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: the descriptor is open for the length of the borrow; the pointer is to an int on the stack.
    // On a socket the number is that of `SIOCOUTQ`.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if outcome == 0 { Ok(bytes.unsigned_abs().into()) } else { Err(io::Error::last_os_error()) }
}

/// Microseconds on `CLOCK_MONOTONIC`, which systemd compares with its own.
pub fn monotonic_us() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a `timespec` on the stack; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let (seconds, nanoseconds) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds * 1_000_000 + nanoseconds / 1000
}

/// Ends the process without the exit handlers of C libraries. OpenSSL's frees what threads of librdkafka
/// may still use: a connection that is being made is not waited for, and would end the process by
/// a signal.
pub fn exit(code: u8) -> ! {
    // SAFETY: it takes no memory and does not return.
    unsafe { libc::_exit(code.into()) }
}

/// A file of 64-bit words mapped into memory: writing costs one store, and outlives the process.
#[derive(Debug)]
pub struct SharedWords {
    words: ptr::NonNull<AtomicU64>,
    count: usize,
    /// Open as long as the mapping, because the owner may hold a lock on it.
    _file: File,
}

// SAFETY: the mapping belongs to this value, and its words are atomics.
unsafe impl Send for SharedWords {}
// SAFETY: the same.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `count` words of a file that has at least as many.
    pub fn map(file: &File, count: usize) -> io::Result<SharedWords> {
        let file = file.try_clone()?;
        let bytes = count * size_of::<AtomicU64>();
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice, page-aligned and so fit for
        // words; unmapped in `drop` only.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = ptr::NonNull::new(address.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(SharedWords { words, count, _file: file })
    }

    pub fn load(&self, index: usize) -> u64 {
        self.words()[index].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        self.words()[index].store(value, Ordering::Relaxed);
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped, aligned, as long as said, and only ever touched atomically.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and not used any more.
        unsafe {
            libc::munmap(self.words.as_ptr().cast(), self.count * size_of::<AtomicU64>());
        }
    }
}
