//! The walsender of the stream, and its state seen from a second connection.

use super::server::ServerStart;
use super::settings::PostgresHost;

/// The server process that sends the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walsender {
    pub host: PostgresHost,
    pub server: ServerStart,
    pub pid: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// No process with that id streams from the slot.
    Gone,
    /// It waits in its main loop, where it reads status updates.
    Waiting,
    /// Its position moves, and it reads status updates between two records.
    Moving,
    /// It does not read status updates: the wait event, or `CPU`.
    Busy(String),
    /// Known only after a second observation.
    Unclear,
    /// The state is not known: the server runs, but accepts no connection now.
    Unasked,
}
