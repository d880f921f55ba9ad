//! A file as words in memory, for what must outlive the process at the cost of a store.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file of 64-bit words, mapped into memory and shared with whoever reads the file: a store is
/// all it takes, and it outlives the process.
#[derive(Debug)]
pub struct SharedWords {
    words: ptr::NonNull<AtomicU64>,
    count: usize,
    /// Keeps the lock that its owner may hold.
    _file: File,
}

// SAFETY: the mapping belongs to this value, and its words are atomics.
unsafe impl Send for SharedWords {}

impl SharedWords {
    /// Maps the first `count` words of a file that has at least as many.
    pub fn map(file: &File, count: usize) -> std::io::Result<SharedWords> {
        let file = file.try_clone()?;
        let bytes = count * size_of::<AtomicU64>();
        if file.metadata()?.len() < bytes as u64 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
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
            return Err(std::io::Error::last_os_error());
        }
        let words = ptr::NonNull::new(address.cast()).ok_or(std::io::ErrorKind::InvalidData)?;
        Ok(SharedWords { words, count, _file: file })
    }

    /// One of the words.
    #[must_use]
    pub fn load(&self, index: usize) -> u64 {
        self.words()[index].load(Ordering::Relaxed)
    }

    /// Sets one of the words.
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
