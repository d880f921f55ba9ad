//! Problems of a publication and its tables, and changes since they were in order.

pub mod fingerprint;
pub mod publication;
pub mod tables;
