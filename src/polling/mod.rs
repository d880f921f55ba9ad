//! Polling: the outbox without a slot. Rows are claimed, published and marked.
//!
//! ```text
//! table ─▶ worker ─▶ loop (crate::relay::polled) ─▶ sink ─▶ broker
//!   ▲      claim      offer, retry, dead letter                │
//!   └───── settle ◀── verdicts ◀────────────────────── receipts
//! ```
//!
//! Workers and keeper live on the control runtime, each with a connection of its own; the loop is
//! the data thread, which never waits for a database. A worker has one claim at a time: it hands
//! its rows over and waits for the verdicts. What takes longer than its claim (a row that waits for
//! its retry) is left to the keeper, which also renews claims, voids those that nobody renews,
//! and deletes what was published long ago.
//!
//! * P1 A row is marked as published only after the broker has confirmed it.
//! * P2 The rows of a key are in one claim at a time, and in order ([`statements`]).
//! * P3 Whoever settles a row shows the name of the claim: what somebody else has claimed since is
//!   left alone.
//! * P4 A claim that is not renewed is void after the lease: nothing is lost with a process.

pub mod admin_rows;
pub mod batch;
pub mod claim_schedule;
pub mod handover;
pub mod maintenance;
#[cfg(test)]
mod plan_tests;
pub mod prepare;
pub mod session;
pub mod settings;
pub mod statements;
pub(crate) mod table_facts;
pub mod worker;
