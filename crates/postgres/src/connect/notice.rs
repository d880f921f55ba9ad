//! Notices of a server (NoticeResponse), in the log.
//!
//! A login is repeated every few seconds where something looks at the database now and then, and
//! warns each time: only the first warning of a server with a text is a warning of the log.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::ServerError;
use crate::settings::PostgresHost;
use walrelay_base::fingerprint::fingerprint;
use walrelay_base::lock::locked;

/// How many warnings are remembered.
const LOGGED_MAX: usize = 256;

/// Logs a NoticeResponse: a warning, such as that of a password that is about to expire, as one.
pub(crate) fn log(notice: &ServerError, at: &PostgresHost) {
    static LOGGED: Mutex<Logged> = Mutex::new(Logged(VecDeque::new()));
    let is_new = || {
        let mut logged = locked(&LOGGED);
        logged.is_new(&format!("{at} {notice}"))
    };
    // Severities are translated, SQLSTATEs are not.
    match notice.sqlstate.get(..2) {
        Some("01") if is_new() => {
            tracing::warn!(code = "source.notice", %at, "Postgres warns: {notice}");
        }
        Some("00" | "01") => tracing::debug!(%at, %notice, "notice from the server"),
        _ => tracing::info!(%at, %notice, "notice from the server"),
    }
}
/// The warnings that were logged last, oldest first, as hashes.
struct Logged(VecDeque<u64>);

impl Logged {
    fn is_new(&mut self, warning: &str) -> bool {
        let hash = fingerprint(warning);
        if self.0.contains(&hash) {
            return false;
        }
        if self.0.len() == LOGGED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(hash);
        true
    }
}

#[cfg(test)]
#[path = "notice_tests.rs"]
mod tests;
