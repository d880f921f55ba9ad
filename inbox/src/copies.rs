//! The headers of copies: of those in a retry level, and of dead letters, which `walrelay dlq`
//! reads (`src/dead_letter/parse.rs` of the relay).

use std::time::Duration;

use bytes::Bytes;

use crate::message::{Message, retry_header};
use crate::time::rfc3339;

/// Common prefix of the headers of dead letters. A message cannot forge them.
const DLQ_PREFIX: &str = "dlq-";
/// How often the message was replayed: the only such header that it brings itself.
const REPLAY_COUNT: &str = "dlq-replay-count";
const REASON_BYTES_MAX: usize = 2_000;
/// What is kept of a value that the broker does not take.
pub(crate) const VALUE_BYTES_KEPT: usize = 512 * 1024;

/// A copy for a retry level.
pub(crate) struct RetryCopy {
    /// Failed attempts so far.
    pub(crate) attempts: u32,
    /// The number that `deferred_messages` knows it by.
    pub(crate) copy: i32,
    /// The message has failed now; otherwise it waits behind another one.
    pub(crate) has_failed: bool,
}

impl RetryCopy {
    pub(crate) fn headers(&self, message: &Message, now: Duration) -> Vec<(String, Bytes)> {
        let mut headers = message.received().headers.clone();
        let mut push = |name: &str, text: String| headers.push((name.to_owned(), text.into()));
        if self.attempts > 0 {
            push(retry_header::COUNT, self.attempts.to_string());
        }
        push(retry_header::COPY, self.copy.to_string());
        let class = if self.has_failed { "transient" } else { "waiting" };
        push(retry_header::CLASS, class.to_owned());
        match &message.retry().first_failed_at {
            Some(at) => push(retry_header::FIRST_FAILED_AT, at.clone()),
            None if self.has_failed => push(retry_header::FIRST_FAILED_AT, rfc3339(now)),
            None => {}
        }
        headers
    }
}

/// Why a message is dead.
pub(crate) struct Cause<'c> {
    pub(crate) class: &'c str,
    pub(crate) reason: &'c str,
    pub(crate) attempts: u32,
    /// The exchange to which a replay goes; Kafka has none.
    pub(crate) exchange: Option<&'c str>,
    /// `SERVICE@host`.
    pub(crate) relay: &'c str,
}

impl Cause<'_> {
    /// `is_cut`: the dead letter has only the beginning of the value.
    pub(crate) fn headers(
        &self,
        message: &Message,
        is_cut: bool,
        now: Duration,
    ) -> Vec<(String, Bytes)> {
        let is_theirs = |name: &str| !name.starts_with(DLQ_PREFIX) || name == REPLAY_COUNT;
        let theirs = message.received().headers.iter().filter(|(name, _)| is_theirs(name));
        let failed_at = rfc3339(now);
        let first_failed_at = message.retry().first_failed_at.clone();
        let value_bytes = message.value().map_or(0, <[u8]>::len);
        let own = [
            ("dlq-event-id", Some(message.id().to_owned())),
            ("dlq-original-topic", Some(message.topic().to_owned())),
            ("dlq-original-exchange", self.exchange.map(str::to_owned)),
            ("dlq-error-class", Some(self.class.to_owned())),
            ("dlq-error-msg", Some(shortened(self.reason).to_owned())),
            ("dlq-attempts", Some(self.attempts.to_string())),
            ("dlq-first-failed-at", Some(first_failed_at.unwrap_or_else(|| failed_at.clone()))),
            ("dlq-failed-at", Some(failed_at)),
            ("dlq-lsn", message.header("lsn").map(str::to_owned)),
            ("dlq-commit-ts", message.header("commit_ts").map(str::to_owned)),
            ("dlq-relay", Some(self.relay.to_owned())),
            ("dlq-value-size", is_cut.then(|| value_bytes.to_string())),
        ];
        let own = own.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into())));
        theirs.cloned().chain(own).collect()
    }
}

/// The beginning of a long text, up to a whole character.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `SERVICE@host`, as the relay names itself in its dead letters.
pub(crate) fn writer_name(service: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::env::var("HOSTNAME"))
        .unwrap_or_default();
    let host = host.trim();
    format!("{service}@{}", if host.is_empty() { "unknown" } else { host })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Received;

    fn message(headers: &[(&str, &str)]) -> Message {
        let own = |(name, value): &(&str, &str)| {
            ((*name).to_owned(), Bytes::copy_from_slice(value.as_bytes()))
        };
        let (headers, value) = (headers.iter().map(own).collect(), Some(Bytes::from("value")));
        Message::copy(Received { topic: "orders".into(), headers, value, ..Received::default() })
    }

    fn lines(headers: &[(String, Bytes)]) -> Vec<String> {
        let line =
            |(name, value): &(String, Bytes)| format!("{name}: {}", String::from_utf8_lossy(value));
        headers.iter().map(line).collect()
    }

    #[test]
    fn a_copy_counts_attempts_and_keeps_the_time_of_the_first_failure() {
        let copy = |attempts, has_failed| RetryCopy { attempts, copy: 4, has_failed };
        let now = Duration::from_secs(1);
        assert_eq!(
            lines(&copy(0, false).headers(&message(&[("id", "e-1")]), now)),
            ["id: e-1", "x-retry-copy: 4", "x-retry-class: waiting",]
        );
        let first = copy(1, true).headers(&message(&[]), now);
        assert_eq!(
            lines(&first),
            [
                "x-retry-count: 1",
                "x-retry-copy: 4",
                "x-retry-class: transient",
                "x-first-failed-at: 1970-01-01T00:00:01.000000Z",
            ]
        );
        let second = copy(2, true).headers(&message(&[("x-first-failed-at", "earlier")]), now);
        assert!(lines(&second).contains(&"x-first-failed-at: earlier".to_owned()));
    }

    #[test]
    fn a_dead_letter_has_the_headers_of_the_message_and_those_of_the_relay() {
        let message = message(&[
            ("id", "e-1"),
            ("lsn", "0/10"),
            ("commit_ts", "2026-01-02T03:04:05Z"),
            ("dlq-error-class", "forged"),
            ("dlq-replay-count", "1"),
            ("x-retry-count", "3"),
            ("x-first-failed-at", "2026-01-02T03:04:06Z"),
        ]);
        let cause = Cause {
            class: "consumer.exhausted",
            reason: "no",
            attempts: 4,
            exchange: Some("billing"),
            relay: "billing@h",
        };
        assert_eq!(
            lines(&cause.headers(&message, true, Duration::ZERO)),
            [
                "id: e-1",
                "lsn: 0/10",
                "commit_ts: 2026-01-02T03:04:05Z",
                "dlq-replay-count: 1",
                "dlq-event-id: e-1",
                "dlq-original-topic: orders",
                "dlq-original-exchange: billing",
                "dlq-error-class: consumer.exhausted",
                "dlq-error-msg: no",
                "dlq-attempts: 4",
                "dlq-first-failed-at: 2026-01-02T03:04:06Z",
                "dlq-failed-at: 1970-01-01T00:00:00.000000Z",
                "dlq-lsn: 0/10",
                "dlq-commit-ts: 2026-01-02T03:04:05Z",
                "dlq-relay: billing@h",
                "dlq-value-size: 5",
            ]
        );
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let long = "ä".repeat(REASON_BYTES_MAX);
        assert_eq!(shortened(&long).len(), REASON_BYTES_MAX);
        assert_eq!(shortened(&long[2..]).len(), REASON_BYTES_MAX);
        assert_eq!(shortened("x"), "x");
    }
}
