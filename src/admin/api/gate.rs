//! Who may use `/api`: whoever shows the token of `admin.token`.
//!
//! Hashes are compared, and all of their bytes: how long it takes says nothing about the token, nor
//! about its length. Neither the token nor what was shown instead is kept, told or logged.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};

use super::refusal::Refusal;
use crate::base::log_throttle::LogThrottle;
use crate::base::secret::Secret;

/// A guesser must not fill the log.
const WARN_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Gate {
    /// SHA-256 of the token.
    token: Option<[u8; 32]>,
    warnings: Mutex<LogThrottle>,
}

impl Gate {
    pub(super) fn new(token: Option<&Secret>) -> Gate {
        let token = token.filter(|token| !token.is_empty());
        Gate {
            token: token.map(|token| hash(token.expose().as_bytes())),
            warnings: Mutex::new(LogThrottle::new(1, WARN_EVERY)),
        }
    }

    /// Lets a request in, or says why not.
    pub(super) fn admit(&self, headers: &HeaderMap, from: SocketAddr) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Err(closed()) };
        let Some(shown) = bearer(headers) else {
            let what = "no token was shown";
            return Err(unknown("api.token-missing", what));
        };
        let differ = token.iter().zip(hash(shown)).fold(0, |differ, (a, b)| differ | (a ^ b));
        if black_box(differ) == 0 {
            return Ok(());
        }
        self.tell(from);
        Err(unknown("api.token-wrong", "this is not the token"))
    }

    fn tell(&self, from: SocketAddr) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.permit(Instant::now()).is_some() {
            tracing::warn!(target: "audit", who = %from, "refused: a wrong token was shown");
        }
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// What is shown; nothing unless exactly one thing is.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (shown.next(), shown.next()) else { return None };
    let (scheme, token) = only.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn closed() -> Refusal {
    Refusal::new(
        StatusCode::FORBIDDEN,
        "api.closed",
        "there is no token, so nobody can be let in",
        "admin.token",
        "set admin.token, e.g. by WALRELAY_ADMIN__TOKEN, and start the relay again",
    )
}

fn unknown(code: &'static str, what: &str) -> Refusal {
    let mend = "send the header: Authorization: Bearer TOKEN, with the value of admin.token";
    Refusal::new(StatusCode::UNAUTHORIZED, code, what, "Authorization", mend)
}
