//! What has been admitted and not yet confirmed.

pub mod settings;
