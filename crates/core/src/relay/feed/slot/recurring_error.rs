//! Whether Postgres ends one session after the other with an error at the same position, for example because it
//! cannot decode a record. Each of them begins well, and nothing behind the position is ever sent.

use crate::base::lsn::Lsn;
use crate::source::stream::StreamError;

/// So many sessions show that the next one ends there, too.
const SESSIONS: u32 = 3;
/// Classes of SQLSTATE for which a new session is opened and which the server itself causes: resources, system,
/// internal.
const CLASSES: [&str; 3] = ["53", "58", "XX"];

#[derive(Debug, Default)]
pub(super) struct RecurringError {
    /// The newest position that was received when the last session ended.
    at: Lsn,
    sessions: u32,
}

impl RecurringError {
    /// A session has ended. `seen` is the newest position that was received.
    pub(super) fn session_ended(&mut self, error: &StreamError, seen: Lsn) {
        let StreamError::Server(error) = error else { return };
        if !error.sqlstate.get(..2).is_some_and(|class| CLASSES.contains(&class)) {
            return;
        }
        let sessions = if seen == self.at { self.sessions } else { 0 };
        (self.at, self.sessions) = (seen, sessions.saturating_add(1));
    }

    /// Whether nothing new was received since several sessions have ended with an error.
    pub(super) fn stands(&self, seen: Lsn) -> bool {
        self.sessions >= SESSIONS && seen == self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::server::ServerError;

    #[test]
    fn an_error_recurs_until_something_behind_it_is_received() {
        let error = |sqlstate: &str| {
            let sqlstate = sqlstate.to_owned();
            StreamError::Server(Box::new(ServerError { sqlstate, ..ServerError::default() }))
        };
        let at = Lsn::from_wire;
        let mut recurring = RecurringError::default();
        for sessions in 1..=4 {
            recurring.session_ended(&error("XX000"), at(100));
            // The end of another server, or of the connection, is no error of the record.
            recurring.session_ended(&error("57P01"), at(100));
            recurring.session_ended(&StreamError::Ended, at(100));
            assert_eq!(recurring.stands(at(100)), sessions >= SESSIONS, "{sessions}");
            assert!(!recurring.stands(at(101)));
        }
        recurring.session_ended(&error("XX000"), at(101));
        assert!(!recurring.stands(at(101)));
    }
}
