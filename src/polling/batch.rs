//! Rows of the server's answer to a claim, as the loop takes them.

use std::error::Error;

use tokio_postgres::Row as SqlRow;
use tokio_postgres::types::{FromSql, Type};

use super::statements::{ATTEMPTS, CREATED, EVENT, ID};
pub(crate) use walrelay_core::polling::batch::*;

pub(crate) fn read(rows: &[SqlRow]) -> Result<Vec<PolledRow>, tokio_postgres::Error> {
    let read = |row: &SqlRow| {
        let attempts = row.try_get::<_, Option<i32>>(ATTEMPTS)?.unwrap_or_default();
        Ok(PolledRow {
            id: row.try_get(ID)?,
            created_unix_us: row.try_get::<_, Option<i64>>(CREATED)?.unwrap_or_default(),
            attempts: u32::try_from(attempts).unwrap_or(0),
            tuple: tuple(row)?,
        })
    };
    rows.iter().map(read).collect()
}

/// A text as the server sends it: in a database without an encoding it need not be UTF-8.
struct RawText<'a>(&'a [u8]);

impl<'a> FromSql<'a> for RawText<'a> {
    fn from_sql(_: &Type, bytes: &'a [u8]) -> Result<RawText<'a>, Box<dyn Error + Sync + Send>> {
        Ok(RawText(bytes))
    }

    fn accepts(column_type: &Type) -> bool {
        *column_type == Type::TEXT
    }
}

/// The event's columns as pgoutput writes a row in text form. As many columns without values follow them.
fn tuple(row: &SqlRow) -> Result<Vec<u8>, tokio_postgres::Error> {
    let value = |at| Ok(row.try_get::<_, Option<RawText<'_>>>(at)?.map(|text| text.0));
    let end = usize::midpoint(EVENT, row.len());
    Ok(encode(&(EVENT..end).map(value).collect::<Result<Vec<_>, _>>()?))
}

fn encode(values: &[Option<&[u8]>]) -> Vec<u8> {
    let size: usize = values.iter().map(|value| 5 + value.map_or(0, <[u8]>::len)).sum();
    let mut bytes = Vec::with_capacity(2 + size);
    // A table has at most 1,600 columns.
    bytes.extend_from_slice(&u16::try_from(values.len()).unwrap_or(u16::MAX).to_be_bytes());
    for value in values {
        match value {
            None => bytes.push(b'n'),
            Some(text) => {
                bytes.push(b't');
                // A value has at most a gigabyte.
                bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_be_bytes());
                bytes.extend_from_slice(text);
            }
        }
    }
    bytes
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
