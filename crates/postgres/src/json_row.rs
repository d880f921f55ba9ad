//! Statements that return one JSON document, which serde reads. A column that only newer servers
//! have is absent from the documents of older ones.

use std::error::Error as StdError;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Error};

use walrelay_base::lsn::Lsn;

pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Runs a statement that returns one JSON document. Parameter types are given, so that it takes one
/// round trip instead of three.
pub async fn document<T: DeserializeOwned>(
    client: &Client,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<T, Error> {
    let row = client.query_typed_one(sql, parameters).await?;
    row.try_get(0).map(|JsonText(value)| value)
}

/// Like [`document`], for a statement that may return no row.
pub async fn document_opt<T: DeserializeOwned>(
    client: &Client,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Option<T>, Error> {
    let row = client.query_typed_opt(sql, parameters).await?;
    row.map(|row| row.try_get(0).map(|JsonText(value)| value)).transpose()
}

/// Reads a column of type text as JSON.
pub struct JsonText<T>(pub T);

impl<'a, T: DeserializeOwned> FromSql<'a> for JsonText<T> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(JsonText(serde_json::from_slice(raw)?))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TEXT
    }
}

/// A transaction id in its text form.
pub fn xid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

/// With `serde(default)`: a column that the server has, and its value.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// An LSN in its text form; NULL is `0/0`.
pub fn lsn<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Lsn, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map_or(Ok(Lsn::ZERO), |text| text.parse().map_err(D::Error::custom))
}
