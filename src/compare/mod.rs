//! `walrelay compare`: what polling costs and how late it is, beside the slot, on one's own database
//! and broker.

pub mod page;
pub mod report;
