//! Settings of one consumer, which the user decides.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio_postgres::Client;

use crate::InboxError;
use crate::time::short;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Longer names would not fit the names of topics and queues that are made of them.
const SERVICE_BYTES_MAX: usize = 100;

/// Opens a connection to the consumer's database, and spawns the task that drives it.
pub type Connect = Arc<
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<Client, tokio_postgres::Error>> + Send>>
        + Send
        + Sync,
>;

/// Settings of one consumer; all but name and database have defaults.
#[derive(Clone)]
#[must_use]
pub struct Settings {
    pub(crate) service: String,
    pub(crate) postgres_url: String,
    pub(crate) connect: Option<Connect>,
    pub(crate) lanes: usize,
    pub(crate) lane_messages_max: usize,
    /// The times of the retry levels. As [`short`] writes them (`30s`, `1m`), they are a part of the names of
    /// topics and queues, and the label of `consumer_retries_total`.
    pub(crate) levels: Vec<Duration>,
    pub(crate) retention: Duration,
    pub(crate) retention_interval: Duration,
    pub(crate) retention_rows_max: u32,
    pub(crate) stop_within: Duration,
    pub(crate) burst_max: usize,
    pub(crate) burst_window: Duration,
    pub(crate) registry: Option<Registry>,
    #[cfg(feature = "otel")]
    pub(crate) tracer: Option<Arc<opentelemetry::global::BoxedTracer>>,
}

impl Settings {
    /// `service` names the consumer: its group or queue, its retry levels, its dead letters and
    /// its rows. `postgres_url` is the database in which it keeps its own data.
    pub fn new(service: impl Into<String>, postgres_url: impl Into<String>) -> Settings {
        Settings {
            service: service.into(),
            postgres_url: postgres_url.into(),
            connect: None,
            lanes: 8,
            lane_messages_max: 64,
            levels: vec![30 * SECOND, MINUTE, 5 * MINUTE],
            retention: 7 * DAY,
            retention_interval: MINUTE,
            retention_rows_max: 1_000,
            stop_within: 10 * SECOND,
            burst_max: 100,
            burst_window: MINUTE,
            registry: None,
            #[cfg(feature = "otel")]
            tracer: None,
        }
    }

    /// How many messages are handled at once, each on a connection of its own (default 8).
    /// Messages of one key are in one lane.
    pub fn lanes(mut self, lanes: usize) -> Settings {
        self.lanes = lanes;
        self
    }

    /// How many messages may wait in front of each lane (default 64).
    pub fn lane_messages_max(mut self, messages: usize) -> Settings {
        self.lane_messages_max = messages;
        self
    }

    /// How long a message waits after its first, second, … failure (default 30 s, 1 min, 5 min).
    /// After the failure that follows the last of them it is dead-lettered.
    pub fn levels(mut self, levels: impl IntoIterator<Item = Duration>) -> Settings {
        self.levels = levels.into_iter().collect();
        self
    }

    /// How long processed messages are remembered (default 7 days, at most 100 years). A message that
    /// is delivered again after that is handled again.
    pub fn retention(mut self, retention: Duration) -> Settings {
        // Postgres has no times that are much longer ago.
        self.retention = retention.min(100 * 365 * DAY);
        self
    }

    /// How often old rows are removed (default 1 min), and how many in one statement (1,000). The
    /// first time is at random within an interval, but no later than a minute after the start. In the
    /// first ten intervals, but no longer than ten minutes, the age of a row is counted from the last
    /// message that was processed before so long.
    pub fn retention_batches(mut self, interval: Duration, rows_max: u32) -> Settings {
        self.retention_interval = interval;
        self.retention_rows_max = rows_max;
        self
    }

    /// How long a stop or a rebalance waits for handlers that run (default 10 s, at most a day).
    pub fn stop_within(mut self, within: Duration) -> Settings {
        // Kafka's client cannot be left alone for longer.
        self.stop_within = within.min(DAY);
        self
    }

    /// The breaker: how many dead letters may be written within `window` (default 100 in a minute). One
    /// more, and its lane is held until the handler succeeds with it: so many are hardly the fault of
    /// their messages.
    pub fn dead_letter_burst(mut self, letters_max: usize, window: Duration) -> Settings {
        self.burst_max = letters_max;
        self.burst_window = window;
        self
    }

    /// Where the metrics are registered, until the inbox is dropped.
    pub fn registry(mut self, registry: &Registry) -> Settings {
        self.registry = Some(registry.clone());
        self
    }

    /// How a connection to Postgres is opened, for TLS or a password that changes. By default it
    /// is opened without TLS. Give the connection a `tcp_user_timeout` (the default one has 30 s) and
    /// keepalives (idle 10 s, interval 5 s, 3 retries): without them a server that has vanished may be
    /// noticed only after 15 minutes while a statement is sent, and after hours while its answer is
    /// waited for.
    pub fn connect(mut self, connect: Connect) -> Settings {
        self.connect = Some(connect);
        self
    }

    /// The tracer of the spans, in place of the global one.
    #[cfg(feature = "otel")]
    pub fn tracer(mut self, tracer: opentelemetry::global::BoxedTracer) -> Settings {
        self.tracer = Some(Arc::new(tracer));
        self
    }

    /// Refuses settings that make no sense.
    pub(crate) fn check(&self) -> Result<(), InboxError> {
        let mut names: Vec<String> = self.levels.iter().map(|level| short(*level)).collect();
        names.sort_unstable();
        let wrong = if !is_service_name(&self.service) {
            "the name of the service is 1 to 100 of a-z A-Z 0-9 . _ -"
        } else if self.lanes == 0 || self.lane_messages_max == 0 {
            "there must be a lane, with room for a message"
        } else if self.levels.iter().any(|level| level.as_millis() == 0) {
            "a retry level lasts a millisecond or more"
        } else if self.retention_rows_max == 0 || self.retention_interval.is_zero() {
            "old rows are removed in batches of a row or more, with a pause between them"
        } else if self.burst_max == 0 || self.burst_window.is_zero() {
            "the breaker allows a dead letter or more, in a time that is not zero"
        } else if names.windows(2).any(|pair| pair[0] == pair[1]) {
            "two retry levels are equal"
        } else {
            return Ok(());
        };
        Err(InboxError::Settings(wrong.to_owned()))
    }
}

pub(crate) fn is_service_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=SERVICE_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let sound = || Settings::new("billing", "");
        assert!(sound().check().is_ok());
        assert!(sound().levels([]).check().is_ok(), "no retries at all");
        for wrong in [
            Settings::new("", ""),
            Settings::new("bill/ing", ""),
            sound().lanes(0),
            sound().lane_messages_max(0),
            sound().levels([SECOND, SECOND]),
            sound().levels([Duration::ZERO]),
            sound().retention_batches(SECOND, 0),
            sound().dead_letter_burst(0, SECOND),
            sound().dead_letter_burst(1, Duration::ZERO),
        ] {
            assert!(wrong.check().is_err());
        }
    }

    #[test]
    fn times_for_ever_are_bounded() {
        let settings = Settings::new("billing", "");
        let settings = settings.stop_within(Duration::MAX).retention(Duration::MAX);
        assert_eq!((settings.stop_within, settings.retention), (DAY, 36_500 * DAY));
    }
}
