//! Message bodies of pgoutput, protocol version 1: no streaming, hence no xid before each message.
//!
//! Decoding borrows and never allocates. An unknown tag is an error: a message that is skipped
//! because it is not understood may have been an event. Every message is checked to its last byte,
//! except that the columns of an [`Message::Insert`] are checked while they are walked, which the
//! outbox stage does once for each row it wants.
//! <https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html>

use super::cursor::{Cursor, DecodeError};
use crate::base::lsn::Lsn;

/// Microseconds from the Unix epoch to 2000-01-01 UTC, where Postgres begins to count.
const PG_EPOCH_UNIX_US: i64 = 946_684_800_000_000;

/// One decoded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A transaction begins; it is sent only once it has committed.
    Begin {
        /// Where its commit record begins.
        final_lsn: Lsn,
        /// Commit time, microseconds since the Unix epoch.
        commit_ts: i64,
        /// Transaction id.
        xid: u32,
    },
    /// The transaction is complete.
    Commit {
        /// Where its commit record begins: `final_lsn` of its Begin.
        commit_lsn: Lsn,
        /// Where its commit record ends: the position to acknowledge.
        end_lsn: Lsn,
        /// Commit time, microseconds since the Unix epoch.
        commit_ts: i64,
    },
    /// The transaction came to this server by replication.
    Origin,
    /// The shape of a table; sent before its first row, and again when it changes.
    Relation(RelationRef<'a>),
    /// A type that is not built in.
    Type,
    /// A new row.
    Insert {
        /// Table oid.
        relation: u32,
        /// Its columns.
        tuple: Tuple<'a>,
    },
    /// A changed row.
    Update {
        /// Table oid.
        relation: u32,
    },
    /// A deleted row.
    Delete {
        /// Table oid.
        relation: u32,
    },
    /// Emptied tables.
    Truncate {
        /// Table oids.
        relations: Oids<'a>,
    },
    /// `pg_logical_emit_message`.
    Logical {
        /// Part of the transaction; otherwise it may be of one that was rolled back.
        transactional: bool,
        /// Where it stands.
        lsn: Lsn,
        /// Prefix.
        prefix: &'a str,
        /// Content.
        content: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Is it part of a transaction's content, which comes between its Begin and its Commit?
    #[inline]
    #[must_use]
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

    /// Reads one message: the body of [`super::frame::Frame::XLogData`].
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
                final_lsn: Lsn::from_wire(cursor.u64("begin final lsn")?),
                commit_ts: unix_us(cursor.i64("begin commit time")?),
                xid: cursor.u32("begin xid")?,
            },
            b'C' => {
                cursor.u8("commit flags")?;
                Message::Commit {
                    commit_lsn: Lsn::from_wire(cursor.u64("commit lsn")?),
                    end_lsn: Lsn::from_wire(cursor.u64("commit end lsn")?),
                    commit_ts: unix_us(cursor.i64("commit time")?),
                }
            }
            b'R' => Message::Relation(relation(&mut cursor)?),
            b'U' => update(&mut cursor)?,
            b'D' => delete(&mut cursor)?,
            b'T' => truncate(&mut cursor)?,
            b'M' => logical(&mut cursor)?,
            b'O' => {
                cursor.u64("origin lsn")?;
                cursor.cstr("origin name")?;
                Message::Origin
            }
            b'Y' => {
                cursor.u32("type oid")?;
                cursor.cstr("type namespace")?;
                cursor.cstr("type name")?;
                Message::Type
            }
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

fn relation<'a>(cursor: &mut Cursor<'a>) -> Result<RelationRef<'a>, DecodeError> {
    let oid = cursor.u32("relation oid")?;
    let namespace = cursor.cstr("relation namespace")?;
    let name = cursor.cstr("relation name")?;
    cursor.u8("relation replica identity")?;
    let count = cursor.count16("relation column count")?;
    let start = *cursor;
    for _ in 0..count {
        column(cursor)?;
    }
    Ok(RelationRef { oid, namespace, name, columns: ColumnRefs { cursor: start, left: count } })
}

fn column<'a>(cursor: &mut Cursor<'a>) -> Result<ColumnRef<'a>, DecodeError> {
    cursor.u8("column flags")?;
    let name = cursor.cstr("column name")?;
    let type_oid = cursor.u32("column type")?;
    cursor.u32("column type modifier")?;
    Ok(ColumnRef { name, type_oid })
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
    let bytes = cursor.take(length, "truncate relations")?;
    Ok(Message::Truncate { relations: Oids { bytes } })
}

fn logical<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let transactional = cursor.u8("message flags")? & 1 == 1;
    let lsn = Lsn::from_wire(cursor.u64("message lsn")?);
    let prefix = cursor.cstr("message prefix")?;
    let length = cursor.count32("message length")?;
    let content = cursor.take(length, "message content")?;
    Ok(Message::Logical { transactional, lsn, prefix, content })
}

/// A column value as it lies on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A toasted value that an UPDATE did not touch; it was not sent.
    Unchanged,
    /// Text form.
    Text(&'a [u8]),
    /// Binary form.
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

/// The columns of a row, not yet looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple<'a> {
    bytes: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// A row in the form in which the stream brings it.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Tuple<'a> {
        Tuple { bytes }
    }

    /// Walks the columns. [`TupleValues::finish`] checks that nothing follows the last.
    #[inline]
    pub fn values(&self) -> Result<TupleValues<'a>, DecodeError> {
        let mut cursor = Cursor::new(self.bytes);
        let left = cursor.count16("tuple column count")?;
        Ok(TupleValues { cursor, left })
    }
}

/// A walk over the columns of a row; it ends at the first error.
#[derive(Clone, Debug)]
pub struct TupleValues<'a> {
    cursor: Cursor<'a>,
    left: u16,
}

impl TupleValues<'_> {
    /// Columns not yet walked.
    #[inline]
    #[must_use]
    pub const fn left(&self) -> usize {
        self.left as usize
    }

    /// Fails when columns or bytes are left.
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

/// A table's shape, borrowed; [`super::relation::Relation`] owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelationRef<'a> {
    /// Table oid.
    pub oid: u32,
    /// Schema; empty for `pg_catalog`.
    pub namespace: &'a str,
    /// Table.
    pub name: &'a str,
    columns: ColumnRefs<'a>,
}

impl<'a> RelationRef<'a> {
    /// Its columns in order.
    #[must_use]
    pub const fn columns(&self) -> ColumnRefs<'a> {
        self.columns
    }
}

/// A column of a [`RelationRef`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnRef<'a> {
    /// Column.
    pub name: &'a str,
    /// Type oid.
    pub type_oid: u32,
}

/// A walk over columns that were already checked.
#[derive(Clone, Copy, Debug)]
pub struct ColumnRefs<'a> {
    cursor: Cursor<'a>,
    left: u16,
}

impl<'a> Iterator for ColumnRefs<'a> {
    type Item = ColumnRef<'a>;

    fn next(&mut self) -> Option<ColumnRef<'a>> {
        self.left = self.left.checked_sub(1)?;
        column(&mut self.cursor).ok()
    }
}

impl PartialEq for ColumnRefs<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl Eq for ColumnRefs<'_> {}

/// Table oids of a TRUNCATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oids<'a> {
    bytes: &'a [u8],
}

impl<'a> Oids<'a> {
    /// Walks the oids.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let mut cursor = Cursor::new(self.bytes);
        std::iter::from_fn(move || cursor.u32("oid").ok())
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
