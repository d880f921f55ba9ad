//! State of the walsender of the stream, seen from a second connection.

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
