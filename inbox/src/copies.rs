//! The headers of copies: of those in a retry level, and of dead letters, which `walrelay dlq`
//! reads (`src/dead_letter/parse.rs` of the relay).

use std::time::Duration;

use bytes::Bytes;
use walrelay_dead_letter::header::{
    ATTEMPTS, COMMIT_TS, ERROR_CLASS, ERROR_MSG, EVENT_ID, FAILED_AT, FIRST_FAILED_AT,
    HEADERS_DROPPED, LSN, ORIGINAL_EXCHANGE, ORIGINAL_TOPIC, PREFIX, RELAY, REPLAY_COUNT,
    VALUE_SIZE, extend_list, header_cost,
};
use walrelay_dead_letter::text::truncated;

use crate::decision::{Cause, LevelCopy};
use crate::message::{Message, retry_header};
use crate::time::{is_rfc3339, rfc3339};

const REASON_BYTES_MAX: usize = 2_000;
const DROPPED_BYTES_MAX: usize = 500;
/// A name of a topic or a class.
const NAME_BYTES_MAX: usize = 255;
const LSN_BYTES_MAX: usize = 32;
/// The bytes that are kept of the headers of a message once the broker has refused its dead letter.
pub(crate) const HEADERS_BYTES_KEPT: usize = 64 * 1024;
/// The bytes that are kept of a value that the broker does not take.
pub(crate) const VALUE_BYTES_KEPT: usize = 512 * 1024;

/// The headers of a copy for a retry level. `number` is that by which `deferred_messages` knows it.
pub(crate) fn retry_headers(
    message: &Message,
    copy: &LevelCopy,
    number: i32,
    now: Duration,
) -> Vec<(String, Bytes)> {
    let has_failed = copy.failure.is_some();
    let first_failed_at = first_failed_at(message).map(str::to_owned);
    let own = [
        (REPLAY_COUNT, replays(message)),
        (retry_header::COUNT, Some(copy.attempts).filter(|it| *it > 0).map(|it| it.to_string())),
        (retry_header::COPY, Some(number.to_string())),
        (retry_header::ORIGINAL_TOPIC, Some(message.topic().to_owned())),
        (retry_header::CLASS, Some(if has_failed { "transient" } else { "waiting" }.to_owned())),
        (
            retry_header::FIRST_FAILED_AT,
            first_failed_at.or_else(|| has_failed.then(|| rfc3339(now))),
        ),
    ];
    append_own(message, own)
}

/// The headers of the message, and those of the copy that have a value.
fn append_own<const N: usize>(
    message: &Message,
    own: [(&str, Option<String>); N],
) -> Vec<(String, Bytes)> {
    let own = own.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into())));
    message.received.headers.iter().cloned().chain(own).collect()
}

/// A dead letter beside its message.
pub(crate) struct DeadLetter<'c> {
    pub(crate) cause: &'c Cause,
    /// The exchange to which a replay goes; Kafka has none.
    pub(crate) exchange: Option<&'c str>,
    /// `SERVICE@host`.
    pub(crate) relay: &'c str,
}

impl DeadLetter<'_> {
    /// `is_cut`: the dead letter has only the beginning of the value.
    pub(crate) fn headers(
        &self,
        message: &Message,
        is_cut: bool,
        now: Duration,
    ) -> Vec<(String, Bytes)> {
        let failed_at = rfc3339(now);
        let first_failed_at = first_failed_at(message).unwrap_or(&failed_at).to_owned();
        let commit_ts = message.header("commit_ts").filter(|at| is_rfc3339(at));
        let value_bytes = message.value().map_or(0, <[u8]>::len);
        let own = [
            (REPLAY_COUNT, replays(message)),
            (EVENT_ID, Some(message.id().to_owned())),
            (ORIGINAL_TOPIC, cut(message.topic(), NAME_BYTES_MAX)),
            (ORIGINAL_EXCHANGE, self.exchange.map(str::to_owned)),
            (ERROR_CLASS, cut(&self.cause.class, NAME_BYTES_MAX)),
            (ERROR_MSG, cut(&self.cause.reason, REASON_BYTES_MAX)),
            (ATTEMPTS, Some(self.cause.attempts.to_string())),
            (FIRST_FAILED_AT, Some(first_failed_at)),
            (FAILED_AT, Some(failed_at)),
            (LSN, message.header("lsn").and_then(|lsn| cut(lsn, LSN_BYTES_MAX))),
            (COMMIT_TS, commit_ts.map(str::to_owned)),
            (RELAY, cut(self.relay, NAME_BYTES_MAX)),
            (VALUE_SIZE, is_cut.then(|| value_bytes.to_string())),
        ];
        append_own(message, own)
    }
}

fn first_failed_at(message: &Message) -> Option<&str> {
    message.retry.first_failed_at.as_deref().filter(|at| is_rfc3339(at))
}

/// Leaves out the largest headers of the message until the rest has no more than `bytes_max`, and
/// names them; true if they did not fit. Those of the dead letter stay; of the reason what fits. The broker adds
/// `header_bytes` to the name and the value of each.
pub(crate) fn fit(
    headers: &mut Vec<(String, Bytes)>,
    bytes_max: usize,
    header_bytes: usize,
) -> bool {
    let cost = |(name, value): &(String, Bytes)| header_cost(name, value, header_bytes);
    let mut bytes: usize = headers.iter().map(cost).sum();
    if bytes <= bytes_max {
        return false;
    }
    // It may have been called with more room before.
    let before = headers.iter().position(|(name, _)| name == HEADERS_DROPPED);
    let before = before.map(|at| headers.remove(at).1).unwrap_or_default();
    bytes = headers.iter().map(cost).sum();
    bytes += header_cost(HEADERS_DROPPED, &[], header_bytes) + DROPPED_BYTES_MAX;
    let is_theirs = |at: &usize| !headers[*at].0.starts_with(PREFIX);
    let mut theirs: Vec<usize> = (0..headers.len()).filter(is_theirs).collect();
    theirs.sort_by_key(|at| std::cmp::Reverse(cost(&headers[*at])));
    let (mut is_dropped, mut names) = (vec![false; headers.len()], Vec::new());
    for at in theirs {
        if bytes <= bytes_max {
            break;
        }
        bytes -= cost(&headers[at]);
        is_dropped[at] = true;
        names.push(headers[at].0.as_str());
    }
    let list = extend_list(&String::from_utf8_lossy(&before), &names, DROPPED_BYTES_MAX);
    let mut is_dropped = is_dropped.into_iter();
    headers.retain(|_| is_dropped.next() != Some(true));
    if let Some((_, reason)) = headers.iter_mut().find(|(name, _)| name == ERROR_MSG) {
        let kept = reason.len().saturating_sub(bytes.saturating_sub(bytes_max));
        *reason = truncated(&String::from_utf8_lossy(reason), kept).to_owned().into();
    }
    if !list.is_empty() {
        headers.push((HEADERS_DROPPED.to_owned(), list.into()));
    }
    true
}

/// How often its dead letter was replayed, if it was.
fn replays(message: &Message) -> Option<String> {
    Some(message.replays()).filter(|count| *count > 0).map(|count| count.to_string())
}

/// In an `Option`, as the list of headers has it.
fn cut(text: &str, bytes_max: usize) -> Option<String> {
    Some(truncated(text, bytes_max).to_owned())
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
    use walrelay_dead_letter::header::{AMQP_HEADER_BYTES, KAFKA_HEADER_BYTES};

    use super::*;
    use crate::message::Received;
    use crate::testing::received;

    /// As it comes from a retry level.
    fn message(headers: &[(&str, &str)]) -> Message {
        Message::copy(Received { value: Some("value".into()), ..received("orders", headers) })
    }

    fn bytes(headers: &[(String, Bytes)], header_bytes: usize) -> usize {
        headers.iter().map(|(name, value)| header_cost(name, value, header_bytes)).sum()
    }

    fn lines(headers: &[(String, Bytes)]) -> Vec<String> {
        let line =
            |(name, value): &(String, Bytes)| format!("{name}: {}", String::from_utf8_lossy(value));
        headers.iter().map(line).collect()
    }

    #[test]
    fn a_copy_counts_attempts_and_keeps_the_time_of_the_first_failure() {
        let headers = |attempts, failure: Option<&str>, of: &[(&str, &str)]| {
            let (wait, failure) = (Duration::ZERO, failure.map(str::to_owned));
            let copy = LevelCopy { level: 1, wait, attempts, failure };
            lines(&retry_headers(&message(of), &copy, 4, Duration::from_secs(1)))
        };
        assert_eq!(
            headers(0, None, &[("id", "e-1")]),
            ["id: e-1", "x-retry-copy: 4", "x-original-topic: orders", "x-retry-class: waiting"]
        );
        assert_eq!(
            headers(1, Some("no"), &[]),
            [
                "x-retry-count: 1",
                "x-retry-copy: 4",
                "x-original-topic: orders",
                "x-retry-class: transient",
                "x-first-failed-at: 1970-01-01T00:00:01.000000Z",
            ]
        );
        let earlier = ("x-first-failed-at", "1970-01-01T00:00:00Z");
        let second = headers(2, Some("no"), &[earlier]);
        assert!(second.contains(&"x-first-failed-at: 1970-01-01T00:00:00Z".to_owned()));
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
        let (class, reason) = ("consumer.exhausted".into(), "no".to_owned());
        let cause = Cause { class, attempts: 4, reason, has_id: true };
        let letter = DeadLetter { cause: &cause, exchange: Some("billing"), relay: "billing@h" };
        assert_eq!(
            lines(&letter.headers(&message, true, Duration::ZERO)),
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
    fn a_dead_letter_leaves_out_the_largest_headers_of_the_message() {
        let header = |name: &str, bytes: usize| (name.to_owned(), vec![b'x'; bytes].into());
        let all = [
            header("small", 10),
            header("huge", 100_000),
            header(ERROR_MSG, REASON_BYTES_MAX),
            header("large", 10_000),
        ];
        let fitted = |bytes_max| {
            let mut headers = all.to_vec();
            fit(&mut headers, bytes_max, KAFKA_HEADER_BYTES);
            assert!(bytes(&headers, KAFKA_HEADER_BYTES) <= bytes_max);
            headers
        };
        let names = |headers: &[(String, Bytes)]| -> Vec<String> {
            headers.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(fitted(200_000), all);
        // WHEN one is too large THEN it is named
        let mut headers = fitted(20_000);
        assert_eq!(names(&headers), ["small", ERROR_MSG, "large", HEADERS_DROPPED]);
        assert_eq!(headers[3].1, "huge");
        // WHEN there is less room later THEN the names are added
        fit(&mut headers, 5_000, KAFKA_HEADER_BYTES);
        assert_eq!(names(&headers), ["small", ERROR_MSG, HEADERS_DROPPED]);
        assert_eq!((headers[1].1.len(), &*headers[2].1), (REASON_BYTES_MAX, &b"huge, large"[..]));
        // WHEN not even the reason has room THEN it is cut
        let headers = fitted(1_000);
        assert_eq!(names(&headers), [ERROR_MSG, HEADERS_DROPPED]);
        assert!((300..500).contains(&headers[0].1.len()), "{}", headers[0].1.len());
    }

    #[test]
    fn headers_that_fit_to_the_byte_at_the_cost_of_the_broker_stay() {
        let all: Vec<(String, Bytes)> =
            (0..100).map(|at| (format!("name-{at:02}"), Bytes::from("value"))).collect();
        // Each has a name of 7 bytes and a value of 5.
        for (header_bytes, room) in [(AMQP_HEADER_BYTES, 1_800), (KAFKA_HEADER_BYTES, 2_400)] {
            let mut headers = all.clone();
            assert!(!fit(&mut headers, room, header_bytes));
            assert_eq!(headers, all);
            assert!(fit(&mut headers, room - 1, header_bytes));
            assert!(bytes(&headers, header_bytes) < room);
        }
    }

    #[test]
    fn the_headers_of_a_dead_letter_fit_into_the_smallest_frame() {
        // GIVEN a message whose headers, topic and id are as long as they can be
        let long = "ä".repeat(65_000);
        let of_copy = ["lsn", "commit_ts", "dlq-replay-count", "x-first-failed-at"];
        let mut headers: Vec<_> = of_copy.map(|name| (name, &*long)).to_vec();
        let id = "i".repeat(1024);
        headers.extend([("id", &*id), ("x-original-topic", &*long)]);
        let message = message(&headers);
        let (service, host) = ("s".repeat(100), "h".repeat(64));
        let relay = format!("{service}@{host}");
        let (class, reason) = (long.clone().into(), long.clone());
        let cause = Cause { class, attempts: u32::MAX, reason, has_id: true };
        let letter = DeadLetter { cause: &cause, exchange: Some(&service), relay: &relay };
        // WHEN it fails for good, and a frame has 4 KiB, of which properties take one
        let mut headers = letter.headers(&message, true, Duration::ZERO);
        assert!(fit(&mut headers, 3 * 1024, AMQP_HEADER_BYTES));
        // THEN its dead letter fits, and says what it knows for sure
        let bytes = bytes(&headers, AMQP_HEADER_BYTES);
        assert!(bytes <= 3 * 1024, "{bytes}");
        let value = |name: &str| {
            let found = headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        assert_eq!(value("dlq-event-id"), Some(id));
        assert_eq!((value("dlq-commit-ts"), value("dlq-replay-count")), (None, None));
        assert_eq!(value("dlq-first-failed-at"), value("dlq-failed-at"));
        assert_eq!(value("dlq-lsn"), Some("ä".repeat(16)));
        let name = Some("ä".repeat(127));
        assert_eq!((value("dlq-original-topic"), value("dlq-error-class")), (name.clone(), name));
        assert!(value(HEADERS_DROPPED).is_some_and(|names| names.contains("lsn")));
        assert!(value(ERROR_MSG).is_some_and(|reason| !reason.is_empty()));
    }
}
