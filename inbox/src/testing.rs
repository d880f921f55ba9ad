//! A Postgres that the unit tests of this crate share.

use std::sync::OnceLock;

use tokio_postgres::{Client, NoTls};
use walrelay_harness::{Postgres, PostgresOptions};

pub(crate) fn postgres_url() -> String {
    static POSTGRES: OnceLock<Postgres> = OnceLock::new();
    let postgres = POSTGRES.get_or_init(|| Postgres::start(PostgresOptions::default()).unwrap());
    postgres.url("postgres")
}

/// A connection to the database, in which the tables exist.
pub(crate) async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&postgres_url(), NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client.batch_execute(include_str!("../sql/inbox.sql")).await.unwrap();
    client
}
