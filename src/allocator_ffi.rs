//! The allocator of the whole program, librdkafka included, and its settings.
#![allow(unsafe_code)]

use std::ffi::c_char;

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Read by jemalloc when the process starts. One arena, because librdkafka allocates on one thread
/// and frees on another. What is freed goes back to the system within a second, and blocks of a
/// mebibyte or more, those of large events, at once.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
// SAFETY: the text ends with a zero byte and is never changed.
pub(crate) static malloc_conf: Option<&c_char> = Some(unsafe {
    &*c"narenas:1,oversize_threshold:1048576,dirty_decay_ms:1000,muzzy_decay_ms:0".as_ptr()
});
