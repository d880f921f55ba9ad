//! Types that every other folder may use; this folder uses none of the others.

pub mod clock;
pub mod host;
pub mod http;
pub mod log;
pub mod os_ffi;
pub mod path;
pub mod random;
pub mod runtime;
pub mod secret;
pub mod service_manager;
pub mod stop_requests;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;
pub mod transport;
pub mod web;

pub use walrelay_core::base::{
    backoff, encoding, error, event, figures, finding, fingerprint, lock, lsn, readiness, settings,
    stop, template, text, time,
};
