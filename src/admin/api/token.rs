//! Checks that a request to `/api` has the token of `admin.token`.
//!
//! All bytes of the two hashes are compared, so that the time tells nothing about the token or its
//! length. Neither the token nor what was sent instead is returned or logged. A token in a file is
//! read for each request; one that cannot be read, or is none that a client could send or nobody could guess, opens nothing.

use std::hint::black_box;
use std::net::SocketAddr;

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use super::error::ApiError;
use crate::base::secret::{Secret, SecretFile as _};
use crate::config::token_fault;

pub(super) struct TokenCheck {
    token: Option<Secret>,
}

impl TokenCheck {
    pub(super) fn new(token: Option<&Secret>) -> TokenCheck {
        TokenCheck { token: token.filter(|token| !token.is_empty()).cloned() }
    }

    pub(super) fn check(&self, headers: &HeaderMap, from: SocketAddr) -> Result<(), ApiError> {
        let Some(token) = &self.token else {
            return Err(ApiError::new(
                "api.closed",
                "no token is configured, so every request is refused",
                "admin.token",
                "set admin.token, e.g. by WALRELAY_ADMIN__TOKEN, and start the relay again",
            ));
        };
        let Some(sent) = bearer(headers) else {
            return Err(unauthorized("api.token-missing", "no token was sent"));
        };
        let token = token.current().map_err(|unread| {
            let (what, mend) = (unread.to_string(), unread.mend());
            ApiError::new("api.token-unread", what, "admin.token", mend)
        })?;
        let fault = token.is_of_file().then(|| token_fault(token.expose())).flatten();
        if let Some(what) = fault {
            let mend = "make one: openssl rand -hex 32";
            return Err(ApiError::new("api.token-unread", what, "admin.token", mend));
        }
        let pairs = Sha256::digest(token.expose()).into_iter().zip(Sha256::digest(sent));
        if black_box(pairs.fold(0, |differ, (a, b)| differ | (a ^ b))) == 0 {
            return Ok(());
        }
        tracing::warn!(
            target: "audit", code = "api.token-wrong", who = %from,
            "refused: a wrong token was sent"
        );
        Err(unauthorized("api.token-wrong", "the token is wrong"))
    }
}

/// The token in the request; none unless there is exactly one.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut sent = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (sent.next(), sent.next()) else { return None };
    let (scheme, token) = only.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn unauthorized(code: &'static str, what: &str) -> ApiError {
    let mend = "send the header: Authorization: Bearer TOKEN, with the value of admin.token";
    ApiError::new(code, what, "Authorization", mend)
}
