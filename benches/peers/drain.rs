//! A backlog, as fast as possible: every contender reads the same bytes from a slot of its own.
//!
//! The broker is asked how far it is, not the contender. Events are counted after the first that was
//! seen; the second half is told apart, because a JVM is slow until it has compiled what it runs.

use std::time::Duration;

use serde::Serialize;
use walrelay_harness::bench::{Counted, Progress};
use walrelay_harness::consumer::DrainWatch;
use walrelay_harness::load::Backlog;
use walrelay_harness::oracle::{TruthRow, read_content_truth};
use walrelay_harness::program::Program;
use walrelay_harness::{Result, proc};
use walrelay_measure::numbers;
use walrelay_measure::process::load_average;

use crate::content;
use crate::options::Options;
use crate::peer::{self, Contender, Outcome, Peer, Target};
use crate::place::{Place, still_runs};

/// Without one more record for so long, a drain has failed.
const STUCK: Duration = Duration::from_secs(60);
const OUTBOX: &str = "public.outbox";

/// One contender's run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) peer: Peer,
    pub(crate) round: usize,
    pub(crate) load_average_before: f64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome<Figures>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) events_per_s: f64,
    /// The rate of the second half alone.
    pub(crate) second_half_per_s: f64,
    pub(crate) cpu_s_per_million: f64,
    pub(crate) peak_rss_bytes: u64,
    pub(crate) first_event_ms: f64,
    /// The comparison of the topic with the committed events.
    pub(crate) check: String,
    pub(crate) stop: String,
}

/// Fills once, then lets everybody drain it, in rounds.
pub(crate) fn measure(
    place: &Place,
    contenders: &[&Contender],
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Run>> {
    progress.step(&format!("writing {} rows", numbers::count(options.rows)));
    place.source.begin_backlog()?;
    let took = Backlog::new(place.source.url(), options.rows).fill()?;
    place.source.checkpoint()?;
    progress.say(&format!(
        "{} rows in 100-row transactions written in {}",
        numbers::count(options.rows),
        numbers::duration(took)
    ));
    let truth = read_content_truth(&place.source.url(), OUTBOX)?;
    let drain = Drain { place, rows: options.rows, truth };
    if let Some(contender) = contenders.first() {
        // The broker's JVM compiles what it uses.
        progress.step("one drain that does not count");
        drain.run(contender, 0)?;
    }
    let mut runs = Vec::new();
    for round in 1..=options.runs {
        for contender in contenders {
            let what = format!("drain {round}/{}: {}", options.runs, contender.name());
            progress.step(&what);
            let run = drain.run(contender, round)?;
            progress.say(&format!("{what:<36} {}", told(&run.outcome)));
            runs.push(run);
        }
    }
    place.source.end_backlog()?;
    Ok(runs)
}

fn told(outcome: &Outcome<Figures>) -> String {
    match outcome {
        Outcome::Measured(figures) => format!(
            "{:>7}  {:.2} CPU-s per million  {}",
            numbers::rate(figures.events_per_s),
            figures.cpu_s_per_million,
            figures.check
        ),
        Outcome::Failed(why) => format!("failed: {why}"),
    }
}

struct Drain<'a> {
    place: &'a Place,
    rows: u64,
    truth: Vec<TruthRow>,
}

impl Drain<'_> {
    /// Runs one contender. A fault of the contender stands in its row; a fault of the services ends
    /// the benchmark.
    fn run(&self, contender: &Contender, round: usize) -> Result<Run> {
        let load_average_before = load_average();
        let target = self.place.target(self.place.source.copied_slot()?)?;
        let outcome = self.figures(contender, &target).into();
        self.place.forget(&target)?;
        Ok(Run { peer: contender.peer, round, load_average_before, outcome })
    }

    fn figures(&self, contender: &Contender, target: &Target) -> Result<Figures> {
        let watch = DrainWatch::new(&target.brokers, &target.topic)?;
        let mut program = self.place.start_contender(contender, target, "drain")?;
        let started_at = program.spawned_at();
        let rows = self.rows;
        let first = wait_held(&watch, 1, &mut program)?;
        let half = wait_held(&watch, first.events.midpoint(rows), &mut program)?;
        let done = wait_held(&watch, rows, &mut program)?;
        let cpu_s = proc::cpu_seconds(program.pid())?;
        let peak_rss_bytes = proc::memory(program.pid())?.peak_rss_bytes;
        let stop = peer::stop(program)?;
        let verdict = content::judge(target, watch.records()?, &self.truth)?;
        Ok(Figures {
            events_per_s: first.rate_until(&done),
            second_half_per_s: half.rate_until(&done),
            cpu_s_per_million: cpu_s * 1e6 / rows as f64,
            peak_rss_bytes,
            first_event_ms: (first.at - started_at).as_secs_f64() * 1e3,
            check: content::told(&verdict),
            stop,
        })
    }
}

fn wait_held(watch: &DrainWatch, wanted: u64, program: &mut Program) -> Result<Counted> {
    Counted::wait(wanted, STUCK, || {
        still_runs(program)?;
        watch.records()
    })
}
