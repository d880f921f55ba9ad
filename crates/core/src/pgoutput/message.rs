//! Message bodies of pgoutput, protocol version 1: no streaming, hence no xid before each message.
//!
//! Decoding a row borrows and does not allocate. An unknown tag is an error: a message that is
//! skipped because it is not understood may have been an event. Every message is checked to its last
//! byte, except that the columns of an [`Message::Insert`] are checked while they are walked, which
//! the outbox stage does once for each row that it wants.
//! <https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html>

use std::borrow::Cow;

use super::cursor::{Cursor, DecodeError};
use super::relation::Relation;
use crate::base::lsn::Lsn;

/// Microseconds from the Unix epoch to 2000-01-01 UTC, the epoch of Postgres.
const PG_EPOCH_UNIX_US: i64 = 946_684_800_000_000;

/// One decoded message. Commit times are microseconds since the Unix epoch; relations are named by
/// the object id of their table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Postgres sends a transaction only once it has committed.
    Begin {
        /// Start of the commit record.
        final_lsn: Lsn,
        commit_ts: i64,
        xid: u32,
    },
    Commit {
        /// Start of the commit record: `final_lsn` of its Begin.
        commit_lsn: Lsn,
        /// End of the commit record: the position to acknowledge.
        end_lsn: Lsn,
        commit_ts: i64,
    },
    /// The transaction came to this server by replication.
    Origin,
    /// Sent before the first row of a table, and again after the table has changed.
    Relation(Relation),
    /// A type that is not built in. Sent before the tables that have columns of the type.
    Type {
        oid: u32,
        /// The schema of the type, or of the base type of a domain; empty for `pg_catalog`.
        schema: Cow<'a, str>,
        name: Cow<'a, str>,
    },
    Insert {
        relation: u32,
        tuple: Tuple<'a>,
    },
    Update {
        relation: u32,
    },
    Delete {
        relation: u32,
    },
    Truncate {
        relations: Vec<u32>,
    },
    /// `pg_logical_emit_message`.
    Logical {
        /// A message that is not transactional is sent even if its transaction is rolled back.
        transactional: bool,
        lsn: Lsn,
        prefix: Cow<'a, str>,
        content: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Does it come only between a Begin and a Commit?
    #[inline]
    pub const fn is_change(&self) -> bool {
        matches!(
            self,
            Message::Insert { .. }
                | Message::Update { .. }
                | Message::Delete { .. }
                | Message::Truncate { .. }
                | Message::Logical { transactional: true, .. }
        )
    }

    /// Decodes the body of a [`super::frame::Frame::XLogData`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let unknown = cursor.error("unknown message");
        let message = match cursor.u8("message tag")? {
            b'I' => {
                let relation = cursor.u32("insert relation")?;
                expect_new_tuple(&mut cursor)?;
                Message::Insert { relation, tuple: Tuple { bytes: cursor.rest() } }
            }
            b'B' => Message::Begin {
                final_lsn: cursor.lsn("begin final lsn")?,
                commit_ts: unix_us(cursor.i64("begin commit time")?),
                xid: cursor.u32("begin xid")?,
            },
            b'C' => {
                cursor.u8("commit flags")?;
                Message::Commit {
                    commit_lsn: cursor.lsn("commit lsn")?,
                    end_lsn: cursor.lsn("commit end lsn")?,
                    commit_ts: unix_us(cursor.i64("commit time")?),
                }
            }
            b'R' => Message::Relation(Relation::read(&mut cursor)?),
            b'U' => update(&mut cursor)?,
            b'D' => delete(&mut cursor)?,
            b'T' => truncate(&mut cursor)?,
            b'M' => logical(&mut cursor)?,
            b'O' => {
                cursor.lsn("origin lsn")?;
                cursor.cstr("origin name")?;
                Message::Origin
            }
            b'Y' => Message::Type {
                oid: cursor.u32("type oid")?,
                schema: cursor.cstr("type namespace")?,
                name: cursor.cstr("type name")?,
            },
            _ => return Err(unknown),
        };
        cursor.finish()?;
        Ok(message)
    }
}

/// Saturates: `infinity` and hostile numbers stay ordered instead of wrapping.
const fn unix_us(pg_us: i64) -> i64 {
    pg_us.saturating_add(PG_EPOCH_UNIX_US)
}

#[inline]
fn expect_new_tuple(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
    let missing = cursor.error("new tuple expected");
    if cursor.u8("tuple tag")? == b'N' { Ok(()) } else { Err(missing) }
}

fn update<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let relation = cursor.u32("update relation")?;
    let mut peek = *cursor;
    if matches!(peek.u8("tuple tag")?, b'K' | b'O') {
        *cursor = peek;
        skip_tuple(cursor)?;
    }
    expect_new_tuple(cursor)?;
    skip_tuple(cursor)?;
    Ok(Message::Update { relation })
}

fn delete<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let relation = cursor.u32("delete relation")?;
    let missing = cursor.error("old tuple or key expected");
    if !matches!(cursor.u8("tuple tag")?, b'K' | b'O') {
        return Err(missing);
    }
    skip_tuple(cursor)?;
    Ok(Message::Delete { relation })
}

fn skip_tuple(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
    for _ in 0..cursor.count16("tuple column count")? {
        value(cursor)?;
    }
    Ok(())
}

fn truncate<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let count = cursor.count32("truncate relation count")?;
    cursor.u8("truncate options")?;
    let length = count.checked_mul(4).ok_or_else(|| cursor.error("truncate relations"))?;
    let (oids, _) = cursor.take(length, "truncate relations")?.as_chunks::<4>();
    Ok(Message::Truncate { relations: oids.iter().map(|oid| u32::from_be_bytes(*oid)).collect() })
}

fn logical<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let transactional = cursor.u8("message flags")? & 1 == 1;
    let lsn = cursor.lsn("message lsn")?;
    let prefix = cursor.cstr("message prefix")?;
    let length = cursor.count32("message length")?;
    let content = cursor.take(length, "message content")?;
    Ok(Message::Logical { transactional, lsn, prefix, content })
}

/// A column value in the form in which Postgres sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    /// A toasted value that an UPDATE did not change; Postgres does not send it.
    Unchanged,
    Text(&'a [u8]),
    Binary(&'a [u8]),
}

#[inline]
fn value<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>, DecodeError> {
    let unknown = cursor.error("unknown column form");
    match cursor.u8("column form")? {
        b'b' => {
            let length = cursor.count32("column length")?;
            cursor.take(length, "column value").map(Value::Binary)
        }
        b't' => {
            let length = cursor.count32("column length")?;
            cursor.take(length, "column value").map(Value::Text)
        }
        b'n' => Ok(Value::Null),
        b'u' => Ok(Value::Unchanged),
        _ => Err(unknown),
    }
}

/// The columns of a row, not yet decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple<'a> {
    bytes: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// `bytes` are TupleData of the protocol.
    pub const fn of(bytes: &'a [u8]) -> Tuple<'a> {
        Tuple { bytes }
    }

    #[inline]
    pub fn values(&self) -> Result<TupleValues<'a>, DecodeError> {
        let mut cursor = Cursor::new(self.bytes);
        let left = cursor.count16("tuple column count")?;
        Ok(TupleValues { cursor, left })
    }
}

/// Iterates over the columns of a row and ends at the first error. [`TupleValues::finish`] checks
/// that nothing follows the last column.
#[derive(Clone, Debug)]
pub struct TupleValues<'a> {
    cursor: Cursor<'a>,
    left: u16,
}

impl TupleValues<'_> {
    #[inline]
    pub const fn left(&self) -> usize {
        self.left as usize
    }

    #[inline]
    pub const fn finish(&self) -> Result<(), DecodeError> {
        if self.left > 0 {
            return Err(self.cursor.error("columns not walked"));
        }
        self.cursor.finish()
    }
}

impl<'a> Iterator for TupleValues<'a> {
    type Item = Result<Value<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let value = value(&mut self.cursor);
        if value.is_err() {
            self.left = 0;
        }
        Some(value)
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
