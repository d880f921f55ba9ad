//! Postgres as the source: its settings, what it says of the slot and of the publication, and the
//! replication stream.

pub mod catalog;
pub mod faults;
pub mod progress;
pub mod publication;
pub mod quote;
pub mod read_pacing;
pub mod require_auth;
pub mod server;
pub mod settings;
pub mod shipped_table;
pub mod sightings;
pub mod slot_state;
pub mod stream;
pub mod walsender;
