//! A socket that a wait for something else includes.

use std::os::fd::BorrowedFd;

/// The socket whose readiness lets its owner go on.
#[derive(Clone, Copy, Debug)]
pub struct Readiness<'a> {
    pub socket: BorrowedFd<'a>,
    /// Bytes wait until the socket takes more: the wait ends then too, not only when the socket can
    /// be read.
    pub wants_write: bool,
}
