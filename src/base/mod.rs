//! Types that every other folder may use; this folder uses none of the others.

pub(crate) mod clock;
pub mod features;
pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod os_ffi;
pub(crate) mod random;
pub mod runtime;
pub mod secret;
pub(crate) mod service_manager;
#[cfg(test)]
pub(crate) mod testing;
pub mod tls;
pub mod transport;

pub use walrelay_core::base::{
    backoff, encoding, error, event, figures, finding, fingerprint, lsn, readiness, settings, stop,
    template, text, time,
};
