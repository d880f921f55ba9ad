//! The CopyData envelope of streaming replication: WAL data or a keepalive.
//!
//! An acknowledgement is never derived from the `wal_end` of a [`Frame::XLogData`]: only the
//! `end_lsn` of a Commit, or a keepalive while nothing is unconfirmed, says which WAL Postgres may
//! forget.
//! <https://www.postgresql.org/docs/current/protocol-replication.html>

use super::cursor::{Cursor, DecodeError};
use crate::base::lsn::Lsn;

/// The body of one CopyData message from the walsender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    XLogData {
        /// End of WAL on the server when it sent the message.
        wal_end: Lsn,
        /// For [`super::message::Message::parse`].
        body: &'a [u8],
    },
    Keepalive {
        /// Everything before it has been sent.
        wal_end: Lsn,
        /// The server wants a status update at once.
        reply_requested: bool,
    },
}

impl<'a> Frame<'a> {
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Frame<'a>, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let unknown = cursor.error("unknown replication frame");
        match cursor.u8("frame tag")? {
            b'w' => {
                cursor.lsn("frame wal start")?;
                let wal_end = cursor.lsn("frame wal end")?;
                cursor.i64("frame clock")?;
                Ok(Frame::XLogData { wal_end, body: cursor.rest() })
            }
            b'k' => {
                let wal_end = cursor.lsn("keepalive wal end")?;
                cursor.i64("keepalive clock")?;
                let reply_requested = cursor.u8("keepalive reply flag")? != 0;
                cursor.finish()?;
                Ok(Frame::Keepalive { wal_end, reply_requested })
            }
            _ => Err(unknown),
        }
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
