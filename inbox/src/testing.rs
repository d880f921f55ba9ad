//! A Postgres and messages that the unit tests of this crate share.

use std::sync::OnceLock;

use bytes::Bytes;
use walrelay_harness::{Postgres, PostgresOptions};

use crate::Settings;
use crate::connection::{Database, OwnClient};
use crate::message::Received;

pub(crate) fn postgres_url() -> String {
    static POSTGRES: OnceLock<Postgres> = OnceLock::new();
    let postgres = POSTGRES.get_or_init(|| Postgres::start(PostgresOptions::default()).unwrap());
    postgres.url("postgres")
}

/// A connection to the database, in which the tables exist.
pub(crate) async fn client() -> OwnClient {
    let database = Database::new(&Settings::new("test", postgres_url())).unwrap();
    let client = database.connect().await.unwrap();
    client.batch_execute(include_str!("../sql/inbox.sql")).await.unwrap();
    client
}

/// A message of these headers, without a key and a value.
pub(crate) fn received(topic: &str, headers: &[(&str, &str)]) -> Received {
    let own = |(name, value): &(&str, &str)| {
        ((*name).to_owned(), Bytes::copy_from_slice(value.as_bytes()))
    };
    let headers = headers.iter().map(own).collect();
    Received { topic: topic.to_owned(), headers, ..Received::default() }
}
