//! What every other folder may use, and what uses none of them.

pub mod backoff;
pub(crate) mod clock;
pub(crate) mod encoding;
pub mod error;
pub mod event;
pub(crate) mod figures;
pub mod finding;
pub(crate) mod fingerprint;
pub(crate) mod host;
pub(crate) mod http;
pub mod log;
pub(crate) mod log_queue;
pub mod lsn;
pub(crate) mod os_ffi;
pub(crate) mod runtime;
pub mod secret;
pub(crate) mod service_manager;
pub(crate) mod settings;
pub mod stop;
pub mod template;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod text;
pub mod time;
pub mod tls;
