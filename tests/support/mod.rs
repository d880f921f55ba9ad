//! Services of the whole run: started once, by whoever asks first.
//!
//! Tests keep out of each other's way by database, slot and topic. A test that hurts a service, or
//! needs it with other settings, starts its own. The harness ends these with the process.

use std::sync::OnceLock;

use walrelay_harness::{Kafka, Postgres, PostgresOptions};

pub(crate) mod faults;

/// The Postgres that no test hurts.
pub(crate) fn shared_postgres() -> &'static Postgres {
    static POSTGRES: OnceLock<Postgres> = OnceLock::new();
    POSTGRES.get_or_init(|| {
        let settings = [
            ("max_connections", "400"),
            ("max_wal_senders", "100"),
            ("max_replication_slots", "300"),
            ("max_prepared_transactions", "20"),
            ("track_commit_timestamp", "on"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = PostgresOptions { settings: settings.into(), ..PostgresOptions::default() };
        Postgres::start(options).unwrap()
    })
}

/// The Kafka that no test hurts.
pub(crate) fn shared_kafka() -> &'static Kafka {
    static KAFKA: OnceLock<Kafka> = OnceLock::new();
    KAFKA.get_or_init(|| Kafka::start().unwrap())
}
