//! System calls and libc functions without a safe wrapper: `SO_RCVLOWAT`, glibc's malloc, `mmap`.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lets `poll` report a socket readable only once `bytes` are waiting (or it ended).
pub(crate) fn set_receive_low_water(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
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

/// Makes all threads share one malloc arena. Call before any other thread exists. librdkafka allocates
/// on one thread and frees on another, which makes glibc grow an arena for each.
pub(crate) fn share_malloc_arena() {
    // SAFETY: mallopt only sets a tunable.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives every large piece of memory back when it is free. By itself glibc raises the limit to the
/// largest piece of up to 32 MB that was ever freed, and keeps twice as much. Call before any other
/// thread exists.
pub(crate) fn return_large_pieces() {
    // SAFETY: mallopt only sets a tunable.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 << 20);
    }
}

/// Gives free memory back to the system. glibc does so by itself only where it lies at the end of an
/// arena, or was taken in one large piece.
pub(crate) fn trim_malloc() {
    // SAFETY: malloc_trim releases pages that hold nothing.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A file of 64-bit words, mapped into memory: what is stored in it outlives the process and costs one
/// store.
#[derive(Debug)]
pub(crate) struct SharedWords {
    words: ptr::NonNull<AtomicU64>,
    count: usize,
    /// Keeps the lock that its owner may hold.
    _file: File,
}

// SAFETY: the mapping belongs to this value, and its words are atomics.
unsafe impl Send for SharedWords {}

impl SharedWords {
    /// Maps the first `count` words of a file that has at least as many.
    pub(crate) fn map(file: &File, count: usize) -> io::Result<SharedWords> {
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

    /// One of the words.
    #[must_use]
    pub(crate) fn load(&self, index: usize) -> u64 {
        self.words()[index].load(Ordering::Relaxed)
    }

    /// Sets one of the words.
    #[inline]
    pub(crate) fn store(&self, index: usize, value: u64) {
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
