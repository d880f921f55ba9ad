//! Polling: the outbox without a slot. Rows are claimed, published and marked.
//!
//! ```text
//! table ─▶ worker ─▶ loop (crate::relay::polled) ─▶ sink ─▶ broker
//!   ▲      claim      offer, retry, dead letter                │
//!   └───── settle ◀── verdicts ◀────────────────────── receipts
//! ```
//!
//! Workers and maintenance live on the control runtime, each with a connection of its own; the loop
//! is the data thread, which never waits for a database. A worker has one claim at a time: it hands
//! its rows over and waits for the verdicts. What takes longer than its claim (a row that waits for
//! its retry) is settled by maintenance, which also renews claims, frees rows whose claims nobody
//! renews, and deletes what was published long ago.
//!
//! * P1 A row is marked as published only after the broker has confirmed it.
//! * P2 The rows of a key are in one claim at a time, and in order ([`statements`]).
//! * P3 A row is settled under the name of its claim: what another claim has taken since is left
//!   alone.
//! * P4 A claim that is not renewed ends after the lease: nothing is lost with a process.

pub(crate) mod admin_rows;
pub mod batch;
pub(crate) mod claim_schedule;
pub(crate) mod handover;
pub(crate) mod maintenance;
#[cfg(test)]
mod plan_tests;
pub(crate) mod prepare;
pub(crate) mod session;
pub mod settings;
pub(crate) mod statements;
pub(crate) mod table_facts;
pub(crate) mod worker;
