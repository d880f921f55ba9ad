//! What a comparison has found: plain values, from which the table, the JSON and the page are made.

/// A whole comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// When it began, microseconds since the Unix epoch.
    pub began_unix_us: i64,
    /// The machine that measured: cores, memory, load average before the first run.
    pub machine: Machine,
    /// `17.11`.
    pub postgres_version: String,
    /// `kafka` or `rabbitmq`.
    pub sink: String,
    /// Where the broker is, without credentials.
    pub broker: String,
    /// What was asked for.
    pub settings: Settings,
    /// One after the other, in the order in which they ran.
    pub runs: Vec<Run>,
    /// A backlog, once for each mode.
    pub drains: Vec<Drain>,
    /// How far it came and why no further, when not all that was asked for was measured.
    pub incomplete: Option<String>,
}

/// The machine that measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Logical processors.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// One-minute load average before the first run.
    pub load_average: f64,
    /// Are the database's processes on this machine? Only then is their CPU time known.
    pub database_is_local: bool,
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Events per second.
    pub rates: Vec<u32>,
    /// Polling intervals in milliseconds.
    pub intervals_ms: Vec<u64>,
    /// Of each run, without its warm-up.
    pub duration_s: f64,
    /// Bytes of each payload.
    pub payload_bytes: usize,
    /// Different ordering keys.
    pub keys: usize,
    /// Events of each drained backlog; 0 when none was.
    pub backlog_events: u64,
}

/// How events were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Read from the replication slot.
    #[default]
    Cdc,
    /// Claimed from the table at this interval.
    Polling {
        /// In milliseconds.
        interval_ms: u64,
    },
}

/// One mode at one rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// How events were found.
    pub mode: Mode,
    /// Events per second that were asked for.
    pub rate: u32,
    /// Events per second that the load did write.
    pub written_per_second: f64,
    /// How late the load itself was, 99th percentile, in milliseconds. When that is much, the
    /// machine is too small for the rate and the latencies say little.
    pub load_late_p99_ms: f64,
    /// Events written within the measured time.
    pub events: u64,
    /// Written and never seen by the consumer.
    pub missing: u64,
    /// Seen more than once: deliveries beyond the first.
    pub duplicated: u64,
    /// First deliveries that came behind a later event of their key.
    pub out_of_order: u64,
    /// INSERT sent (it commits by itself) to consumer, of every event, in microseconds, ascending.
    pub latencies_us: Vec<u32>,
    /// Second by second.
    pub seconds: Vec<Second>,
    /// What Postgres did for it, the load's own share taken off.
    pub postgres: PostgresCost,
    /// What the relay's process took.
    pub relay: RelayCost,
    /// Load average when the run began.
    pub load_average: f64,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Since the run began.
    pub at_s: u32,
    /// Events written in it.
    pub written: u64,
    /// Events that the consumer first saw in it.
    pub delivered: u64,
    /// Written and not yet delivered at its end.
    pub backlog: u64,
    /// Of the events delivered in it, in milliseconds; 0 when there are none.
    pub p50_ms: f64,
    /// The same.
    pub p99_ms: f64,
}

/// What Postgres did, from its own statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PostgresCost {
    /// Committed and rolled back.
    pub transactions: u64,
    /// Rows that scans read.
    pub tuples_read: u64,
    /// Rows inserted, updated, deleted.
    pub tuples_written: u64,
    /// Dead rows left in the outbox table at the end, plus those that vacuum has removed.
    pub dead_tuples: u64,
    /// Bytes of write-ahead log.
    pub wal_bytes: u64,
    /// CPU seconds of its processes that worked for the relay; none when they are elsewhere.
    pub cpu_s: Option<f64>,
}

/// What the relay's own process took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RelayCost {
    /// CPU seconds.
    pub cpu_s: f64,
    /// Peak resident memory in bytes.
    pub rss_peak_bytes: u64,
}

/// A backlog that was written before the relay began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drain {
    /// How events were found.
    pub mode: Mode,
    /// Events of the backlog.
    pub events: u64,
    /// From the start of the relay's process to its first event at the consumer, in seconds.
    pub first_s: f64,
    /// From its first to its last.
    pub seconds: f64,
    /// Never seen.
    pub missing: u64,
    /// Seen more than once: deliveries beyond the first.
    pub duplicated: u64,
    /// First deliveries that came behind a later event of their key.
    pub out_of_order: u64,
    /// What Postgres did for it.
    pub postgres: PostgresCost,
    /// What the relay's process took.
    pub relay: RelayCost,
}

impl Run {
    /// The latency that this share of the events did not exceed, in milliseconds.
    #[must_use]
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let count = self.latencies_us.len();
        let rank = (share * count as f64).ceil() as usize;
        let at = rank.clamp(1, count.max(1)) - 1;
        self.latencies_us.get(at).map_or(0.0, |us| f64::from(*us) / 1000.0)
    }
}

impl Run {
    /// Events that the consumer first saw within the whole seconds of the load, per second.
    #[must_use]
    pub fn delivered_per_second(&self) -> f64 {
        let lasted_s = self.events as f64 / self.written_per_second.max(f64::MIN_POSITIVE);
        // A load that was a moment late reaches into one more second than it fills.
        let whole = ((lasted_s + 0.001) as usize).clamp(1, self.seconds.len().max(1));
        let delivered: u64 = self.seconds.iter().take(whole).map(|it| it.delivered).sum();
        delivered as f64 / whole as f64
    }

    /// Nothing missing, nothing twice, nothing out of order.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        (self.missing, self.duplicated, self.out_of_order) == (0, 0, 0)
    }
}

impl Report {
    /// Events that never arrived, in all runs and drains.
    #[must_use]
    pub fn missing(&self) -> u64 {
        let runs = self.runs.iter().map(|run| run.missing);
        runs.chain(self.drains.iter().map(|drain| drain.missing)).sum()
    }
}

impl Drain {
    /// Events per second between the first and the last.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        let arrived = self.events.saturating_sub(self.missing);
        if self.seconds > 0.0 { arrived.saturating_sub(1) as f64 / self.seconds } else { 0.0 }
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
