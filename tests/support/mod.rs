//! Services of the whole run: started once, by whoever asks first.
//!
//! Tests keep out of each other's way by database, slot and topic. A test that hurts a service, or
//! needs it with other settings, starts its own. The harness ends these with the process.

use std::sync::OnceLock;

use walrelay_harness::{Kafka, Postgres, PostgresOptions};

pub(crate) mod faults;

/// What every test may use and none may hurt.
pub(crate) struct Services {
    /// Superuser `postgres`, trust for all.
    pub(crate) postgres: Postgres,
    /// One broker, no automatic topics.
    pub(crate) kafka: Kafka,
}

/// The services; the first caller waits for their start.
pub(crate) fn services() -> &'static Services {
    static SERVICES: OnceLock<Services> = OnceLock::new();
    SERVICES.get_or_init(|| {
        let kafka = std::thread::spawn(|| Kafka::start().unwrap());
        let settings = [
            ("max_connections", "400"),
            ("max_wal_senders", "100"),
            ("max_replication_slots", "300"),
            ("max_prepared_transactions", "20"),
            ("track_commit_timestamp", "on"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = PostgresOptions { settings: settings.into(), ..PostgresOptions::default() };
        let postgres = Postgres::start(options).unwrap();
        Services { postgres, kafka: kafka.join().unwrap() }
    })
}
