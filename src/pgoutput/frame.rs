//! The CopyData envelope of streaming replication: WAL data or a keepalive.
//!
//! Acks are never derived from `wal_start` or `wal_end` of an [`Frame::XLogData`]: only a Commit's
//! `end_lsn`, or a keepalive while nothing is unconfirmed, says what may be forgotten.
//! <https://www.postgresql.org/docs/current/protocol-replication.html>

use super::cursor::{Cursor, DecodeError};
use crate::lsn::Lsn;

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
mod tests {
    use super::*;

    fn envelope(tag: u8, numbers: &[u64]) -> Vec<u8> {
        let mut bytes = vec![tag];
        numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        bytes
    }

    #[test]
    fn data_keeps_its_body_in_place() {
        let mut bytes = envelope(b'w', &[16, 32, 99]);
        bytes.extend(b"Ibody");
        let frame = Frame::parse(&bytes).unwrap();
        let (wal_start, wal_end) = (Lsn::from_wire(16), Lsn::from_wire(32));
        assert_eq!(frame, Frame::XLogData { wal_start, wal_end, sent_at_pg_us: 99, body: b"Ibody" });
    }

    #[test]
    fn a_keepalive_may_ask_for_a_reply_and_has_an_end() {
        let mut bytes = envelope(b'k', &[32, 99]);
        assert!(Frame::parse(&bytes).is_err());
        bytes.push(1);
        let wal_end = Lsn::from_wire(32);
        let expected = Frame::Keepalive { wal_end, sent_at_pg_us: 99, reply_requested: true };
        assert_eq!(Frame::parse(&bytes), Ok(expected));
        bytes.push(0);
        assert!(Frame::parse(&bytes).is_err());
        assert!(Frame::parse(b"").is_err());
        assert_eq!(
            Frame::parse(b"zzz"),
            Err(DecodeError { what: "unknown replication frame", offset: 0 })
        );
    }
}
