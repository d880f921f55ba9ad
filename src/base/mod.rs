//! What every other folder may use, and what uses none of them.

pub mod backoff;
pub mod error;
pub mod event;
pub mod html;
pub mod log_throttle;
pub mod lsn;
pub mod os_ffi;
pub mod percent;
pub mod secret;
pub mod shared_words_ffi;
pub mod text;
pub mod time;
pub mod tls;
