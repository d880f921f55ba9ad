//! Types that every other folder may use; this folder uses none of the others.

pub mod clock;
pub mod encoding;
pub mod error;
pub mod event;
pub mod figures;
pub mod finding;
pub mod fingerprint;
pub mod hash;
pub mod headers;
pub mod json_path;
pub mod lock;
pub mod lsn;
pub mod random;
pub mod readiness;
pub mod secret;
pub mod settings;
pub mod stop;
pub mod template;
pub mod text;

pub use walrelay_dead_letter::{backoff, time};
