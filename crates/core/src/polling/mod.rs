//! Rows that are claimed instead of received: what workers and the loop pass to each other, and how
//! long a claim counts.

pub mod batch;
pub mod claim_lease;
pub mod claim_schedule;
