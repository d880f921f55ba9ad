//! Does an event cost more when there are more of them: waiting, in one transaction, or keys?
//!
//! The relay is frozen while the backlog is written, so that the figure is without its start;
//! small backlogs are repeated, because CPU is counted in ticks of 10 ms. The broker is asked how
//! far it is, not the relay: its answers would be a large part of a small backlog's cost.

use std::time::Duration;

use serde::Serialize;
use walrelay_harness::bench::Progress;
use walrelay_harness::load::Backlog;
use walrelay_harness::{Result, proc};
use walrelay_measure::numbers;

use crate::bed::Bed;
use crate::broker::Queue;
use crate::drain::{Contender, wait_confirmed};
use crate::options::Options;

const LIMIT: Duration = Duration::from_secs(900);
/// Fewer events than this cost too few ticks to be told apart.
const EVENTS_MIN: u64 = 200_000;
/// More repetitions than this tell nothing new.
const REPEATS_MAX: u64 = 40;

/// One shape of a backlog.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) axis: Axis,
    pub(crate) rows: u64,
    pub(crate) rows_per_transaction: u64,
    pub(crate) keys: u64,
}

/// The quantity that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Axis {
    Backlog,
    RowsPerTransaction,
    Keys,
}

impl Axis {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Axis::Backlog => "backlog",
            Axis::RowsPerTransaction => "rows per transaction",
            Axis::Keys => "keys",
        }
    }
}

/// The cost of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cost {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) repeats: u64,
    pub(crate) cpu_us_per_event: f64,
    pub(crate) peak_rss_bytes: u64,
}

fn cases(options: &Options) -> Vec<Case> {
    let most = if options.quick { options.rows } else { 1_000_000 };
    let case = |axis, rows: u64, rows_per_transaction, keys| Case {
        axis,
        rows: rows.min(if options.long { u64::MAX } else { most }),
        rows_per_transaction,
        keys,
    };
    let mut cases = Vec::new();
    let backlogs = [1_000, 10_000, 100_000, 1_000_000].into_iter();
    for rows in backlogs.chain(options.long.then_some(10_000_000)) {
        cases.push(case(Axis::Backlog, rows, 100, 1_000));
    }
    // Single-row transactions take long to write; a fifth of the rows shows the same.
    for (rows, per_transaction) in
        [(200_000, 1), (1_000_000, 100), (1_000_000, 10_000), (1_000_000, 1_000_000)]
    {
        cases.push(case(Axis::RowsPerTransaction, rows, per_transaction, 1_000));
    }
    for keys in [10, 1_000, 1_000_000] {
        cases.push(case(Axis::Keys, 1_000_000, 100, keys));
    }
    cases
}

/// Runs all cases through Kafka.
pub(crate) fn measure(bed: &Bed, options: &Options, progress: &Progress) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for case in cases(options) {
        let shape = format!(
            "growth of {}: {} rows, {} per transaction, {} keys",
            case.axis.name(),
            numbers::count(case.rows),
            numbers::count(case.rows_per_transaction),
            numbers::count(case.keys)
        );
        progress.step(&shape);
        let cost = run(bed, case)?;
        progress.say(&format!("{shape}: {:.2} µs per event", cost.cpu_us_per_event));
        costs.push(cost);
    }
    Ok(costs)
}

fn run(bed: &Bed, case: Case) -> Result<Cost> {
    bed.empty()?;
    let target = bed.target(Queue::Quorum)?;
    let slot = bed.fresh_slot()?;
    let mut relay = bed.relay(Contender::Kafka, &slot, &target)?;
    relay.wait_ready(LIMIT)?;
    let mut backlog = Backlog::new(bed.url(), case.rows);
    backlog.rows_per_transaction = case.rows_per_transaction;
    backlog.keys = case.keys;
    // Connections, topic and buffers are there before it counts.
    backlog.rows = 1_000;
    backlog.seed = bed.number();
    backlog.fill()?;
    let mut expected = backlog.rows;
    wait_confirmed(&relay, expected, LIMIT)?;
    backlog.rows = case.rows;
    let repeats = EVENTS_MIN.div_ceil(case.rows.max(1)).clamp(1, REPEATS_MAX);
    let watch = target.watch()?;
    let mut cpu_s = 0.0;
    for _ in 0..repeats {
        relay.freeze()?;
        backlog.seed = bed.number();
        backlog.fill()?;
        let before_s = proc::cpu_seconds(relay.pid())?;
        relay.thaw()?;
        expected += case.rows;
        watch.wait(expected, LIMIT)?;
        wait_confirmed(&relay, expected, LIMIT)?;
        cpu_s += proc::cpu_seconds(relay.pid())? - before_s;
    }
    let peak_rss_bytes = proc::memory(relay.pid())?.peak_rss_bytes;
    bed.stop(relay)?;
    bed.drop_slot(&slot)?;
    let cpu_us_per_event = cpu_s * 1e6 / (case.rows * repeats) as f64;
    Ok(Cost { case, repeats, cpu_us_per_event, peak_rss_bytes })
}
