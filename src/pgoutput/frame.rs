//! The CopyData envelope of streaming replication: WAL data or a keepalive.
//!
//! Acks are never derived from `wal_start` or `wal_end` of an [`Frame::XLogData`]: only a Commit's
//! `end_lsn`, or a keepalive while nothing is unconfirmed, says what may be forgotten.
//! <https://www.postgresql.org/docs/current/protocol-replication.html>

use super::cursor::{Cursor, DecodeError};
use crate::base::lsn::Lsn;

/// One CopyData body from the walsender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// `w`: a pgoutput message.
    XLogData {
        /// Where the data stands; not a position to acknowledge.
        wal_start: Lsn,
        /// End of WAL on the server when it was sent.
        wal_end: Lsn,
        /// Server clock, microseconds since 2000-01-01 UTC.
        sent_at_pg_us: i64,
        /// The message, for [`super::message::Message::parse`].
        body: &'a [u8],
    },
    /// `k`: the server is alive.
    Keepalive {
        /// Everything before it has been sent.
        wal_end: Lsn,
        /// Server clock, microseconds since 2000-01-01 UTC.
        sent_at_pg_us: i64,
        /// The server wants a status update at once.
        reply_requested: bool,
    },
}

impl<'a> Frame<'a> {
    /// Reads the body of one CopyData message.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Frame<'a>, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let unknown = cursor.error("unknown replication frame");
        match cursor.u8("frame tag")? {
            b'w' => Ok(Frame::XLogData {
                wal_start: Lsn::from_wire(cursor.u64("frame wal start")?),
                wal_end: Lsn::from_wire(cursor.u64("frame wal end")?),
                sent_at_pg_us: cursor.i64("frame clock")?,
                body: cursor.rest(),
            }),
            b'k' => {
                let frame = Frame::Keepalive {
                    wal_end: Lsn::from_wire(cursor.u64("keepalive wal end")?),
                    sent_at_pg_us: cursor.i64("keepalive clock")?,
                    reply_requested: cursor.u8("keepalive reply flag")? != 0,
                };
                cursor.finish()?;
                Ok(frame)
            }
            _ => Err(unknown),
        }
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
