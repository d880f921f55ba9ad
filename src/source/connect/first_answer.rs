//! A connection whose first answer is looked at before the SQL client sees it.
//!
//! tokio-postgres answers whatever authentication request comes. It takes exactly one, as the very first message of
//! the server, so looking at that message decides what is answered.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::dial::Stream;
use crate::source::require_auth::{Method, RequireAuth};

/// Tag, length and code of an authentication request.
const HEAD_BYTES: usize = 9;

/// Lets through an answer that may be answered.
pub(in crate::source) struct FirstAnswer {
    stream: Stream,
    rules: RequireAuth,
    exposed: bool,
    head: Vec<u8>,
}

impl FirstAnswer {
    pub(in crate::source) fn new(stream: Stream, rules: RequireAuth, exposed: bool) -> FirstAnswer {
        FirstAnswer { stream, rules, exposed, head: Vec::new() }
    }

    /// Takes note of what was received.
    fn look(&mut self, received: &[u8]) -> io::Result<()> {
        if self.head.len() == HEAD_BYTES {
            return Ok(());
        }
        let missing = HEAD_BYTES - self.head.len();
        self.head.extend(received.iter().take(missing));
        let Ok([b'R', _, _, _, _, code @ ..]) = <[u8; HEAD_BYTES]>::try_from(&*self.head) else {
            return Ok(());
        };
        match Method::of(i32::from_be_bytes(code)) {
            Some(asked) => self.rules.judge(asked, self.exposed).map_err(io::Error::other),
            None => Ok(()),
        }
    }
}

impl AsyncRead for FirstAnswer {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let received = buf.filled().get(before..).unwrap_or_default();
        Poll::Ready(this.look(received))
    }
}

impl AsyncWrite for FirstAnswer {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
