//! A bounds-checked big-endian reader, the only file that indexes bytes of the stream.
//!
//! A read either succeeds or says what it was reading and where: a negative count, a length that
//! overruns the message, a missing NUL and left-over bytes are errors, never a panic.

use std::borrow::Cow;

use crate::base::lsn::Lsn;

/// Bytes that are not what the protocol says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed pgoutput message: {what} at byte {offset}")]
pub struct DecodeError {
    pub what: &'static str,
    /// Where in the message it begins.
    pub offset: usize,
}

/// A reading position in one message.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// The error for what begins here.
    #[inline]
    pub const fn error(&self, what: &'static str) -> DecodeError {
        DecodeError { what, offset: self.at }
    }

    #[inline]
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let end = self.at.checked_add(count).ok_or_else(|| self.error(what))?;
        let taken = self.bytes.get(self.at..end).ok_or_else(|| self.error(what))?;
        self.at = end;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let rest = self.bytes.get(self.at..).ok_or_else(|| self.error(what))?;
        let found = rest.first_chunk::<N>().ok_or_else(|| self.error(what))?;
        self.at += N;
        Ok(*found)
    }

    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    #[inline]
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_be_bytes)
    }

    #[inline]
    pub fn i64(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        self.array(what).map(i64::from_be_bytes)
    }

    #[inline]
    pub fn lsn(&mut self, what: &'static str) -> Result<Lsn, DecodeError> {
        self.array(what).map(u64::from_be_bytes).map(Lsn::from_wire)
    }

    /// A signed 16-bit count, which must not be negative.
    #[inline]
    pub fn count16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        let start = *self;
        let count = i16::from_be_bytes(self.array(what)?);
        u16::try_from(count).map_err(|_| start.error(what))
    }

    /// A signed 32-bit count or length, which must not be negative.
    #[inline]
    pub fn count32(&mut self, what: &'static str) -> Result<usize, DecodeError> {
        let start = *self;
        let count = i32::from_be_bytes(self.array(what)?);
        usize::try_from(count).map_err(|_| start.error(what))
    }

    /// Text up to a NUL, which is consumed. In a database without an encoding it need not be UTF-8: names are
    /// only compared and shown.
    pub fn cstr(&mut self, what: &'static str) -> Result<Cow<'a, str>, DecodeError> {
        let rest = self.bytes.get(self.at..).ok_or_else(|| self.error(what))?;
        let length = rest.iter().position(|byte| *byte == 0).ok_or_else(|| self.error(what))?;
        self.at += length + 1;
        Ok(String::from_utf8_lossy(&rest[..length]))
    }

    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        rest
    }

    /// Fails when bytes are left: a message longer than we understand is not understood.
    #[inline]
    pub const fn finish(&self) -> Result<(), DecodeError> {
        if self.at == self.bytes.len() {
            return Ok(());
        }
        Err(self.error("bytes after the end of the message"))
    }
}

#[cfg(test)]
#[path = "cursor_tests.rs"]
mod tests;
