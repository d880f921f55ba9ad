//! What is wrong with a publication and its tables, and what was changed since they were in order.

pub mod fingerprint;
pub mod publication;
pub mod tables;
