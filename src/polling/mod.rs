//! Polling: the outbox without a slot. Rows are claimed, published and marked.
//!
//! ```text
//! table ─▶ worker ─▶ loop (crate::relay) ─▶ sink ─▶ broker
//!   ▲      claim      offer, retry, dead letter        │
//!   └───── settle ◀── verdicts ◀────────────── confirms
//! ```
//!
//! Workers and maintenance run on the control runtime, each with a connection of its own; the loop
//! runs on the data thread, which never waits for a database. A worker has one claim at a time: it
//! passes the rows to the loop and waits for the verdicts. Maintenance writes the verdicts that
//! come after the worker has gone on (of rows that were retried), frees rows whose claims are no
//! longer renewed, and deletes old published rows. Another task renews the claims.
//!
//! * P1 A row is marked as published only after the broker has confirmed it.
//! * P2 The rows of a key are in one claim at a time, and in order ([`statements`]).
//! * P3 A row is settled only while it still carries the name of its claim, so a row that another
//!   claim has taken since is not touched.
//! * P4 The rows of a claim that is not renewed are free after the lease, so a process that dies loses
//!   nothing. One that could not renew them for half of it, or finds rows of them gone, publishes none
//!   of them any more ([`claim_lease`], [`lost_rows`]).

pub(crate) mod admin_rows;
pub mod batch;
pub(crate) mod handover;
pub(crate) mod live_claims;
pub(crate) mod lock_wait;
pub(crate) mod locked_verdicts;
mod lost_rows;
pub(crate) mod maintenance;
#[cfg(test)]
mod plan_tests;
pub(crate) mod renewal;
pub(crate) mod session;
pub mod settings;
pub(crate) mod statements;
pub(crate) mod table_facts;
pub(crate) mod worker;

pub(crate) use walrelay_core::polling::{claim_lease, claim_schedule};
