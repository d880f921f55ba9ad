//! Kills under load, the same plan for every contender, and then what the broker holds.
//!
//! The load is the harness's: its truth is the table. A contender has a minute after the last fault
//! to bring what is missing; the broker is read only then, so that reading takes nothing from it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use walrelay_harness::bench::Progress;
use walrelay_harness::consumer::{Consumer, DrainWatch};
use walrelay_harness::faults::{Counts, Plan};
use walrelay_harness::kit::wait_at_most;
use walrelay_harness::load::{ChaosReport, ChaosWriters};
use walrelay_harness::oracle::{TruthRow, Verdict, read_content_truth};
use walrelay_harness::{HarnessError, Result};
use walrelay_measure::process::load_average;

use crate::content;
use crate::lanes::{self, Relay};
use crate::options::Options;
use crate::peer::{self, Contender, Outcome, Peer, Target};
use crate::place::Place;

const OUTBOX: &str = "public.outbox";
const CATCH_UP_LIMIT: Duration = Duration::from_secs(60);
const CONFIRM_LIMIT: Duration = Duration::from_secs(30);
/// Repetitions of the last events would come within this.
const QUIET: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(100);

/// In the minute that the plan lasts by default; shorter ones have fewer.
const COUNTS: Counts =
    Counts { relay_kills: 12, freezes: 2, terminations: 8, crashes: 2, broker_kills: 2, alarms: 0 };
const COUNTS_FOR: Duration = Duration::from_secs(60);

/// One contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Kills {
    pub(crate) peer: Peer,
    #[serde(flatten)]
    pub(crate) outcome: Outcome<Chaos>,
}

/// The results of the contender under the faults.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Chaos {
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    pub(crate) lost: u64,
    pub(crate) out_of_order: u64,
    pub(crate) repeated: u64,
    /// Invented, altered, under another key or in two partitions.
    pub(crate) otherwise_wrong: u64,
    pub(crate) relay: Relay,
    pub(crate) terminations: u64,
    pub(crate) crashes: u64,
    pub(crate) broker_kills: u64,
    /// Records that the topic held when the load and the faults were over. A relay that had published few by then was
    /// mostly killed while it started, and could repeat few.
    pub(crate) held_at_end: u64,
    /// Until all that was committed had come; none when it never did.
    pub(crate) caught_up_s: Option<f64>,
    /// Until the slot was confirmed up to the end of the load; none when it was not in time.
    pub(crate) confirmed_s: Option<f64>,
    pub(crate) load_average_before: f64,
    pub(crate) stop: String,
}

/// The faults that were provoked.
struct Broken {
    report: ChaosReport,
    terminations: u64,
    crashes: u64,
    broker_kills: u64,
    held_at_end: u64,
}

/// The outcome of the faults.
struct Aftermath {
    verdict: Verdict,
    caught_up_s: Option<f64>,
    confirmed_s: Option<f64>,
}

/// Breaks everything around each contender, in a place of its own: a killed broker and a crashed
/// server are not as new. What one contender does wrong, the others do not pay for.
pub(crate) fn measure(
    contenders: &[&Contender],
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Kills>> {
    let mut all = Vec::new();
    for contender in contenders {
        let name = contender.name();
        progress.step(&format!("{name}: kills for {} s", options.chaos_seconds));
        let mut place = Place::start(options)?;
        let outcome = one(&mut place, contender, options).into();
        progress.say(&format!("{name:<22} kills: {}", told(&outcome)));
        all.push(Kills { peer: contender.peer, outcome });
    }
    Ok(all)
}

fn told(outcome: &Outcome<Chaos>) -> String {
    match outcome {
        Outcome::Measured(chaos) => format!(
            "{} lost, {} out of order, {} repeated, died {} times",
            chaos.lost, chaos.out_of_order, chaos.repeated, chaos.relay.deaths
        ),
        Outcome::Failed(why) => format!("failed: {why}"),
    }
}

fn one(place: &mut Place, contender: &Contender, options: &Options) -> Result<Chaos> {
    let load_average_before = load_average();
    let target = place.target(place.source.fresh_slot()?)?;
    let mut program = place.start_contender(contender, &target, "chaos")?;
    place.wait_streaming(&target, &mut program)?;
    let over = AtomicBool::new(false);
    let plan = plan(options);
    let (broken, after, relay) = std::thread::scope(|scope| -> Result<_> {
        let supervisor =
            scope.spawn(|| lanes::on_relay(&mut program, &plan.relay, options.seed, &over));
        let broken = break_services(place, &target, &plan, options);
        let after = broken.and_then(|broken| Ok((broken, aftermath(place, &target)?)));
        over.store(true, Ordering::Relaxed);
        let relay = joined(supervisor)?;
        let (broken, after) = after?;
        Result::Ok((broken, after, relay))
    })?;
    let verdict = after.verdict;
    Ok(Chaos {
        committed: verdict.committed,
        rolled_back: broken.report.events_rolled_back,
        lost: verdict.missing.count,
        out_of_order: verdict.out_of_order.count,
        repeated: verdict.duplicates,
        otherwise_wrong: content::other_faults(&verdict),
        relay,
        terminations: broken.terminations,
        crashes: broken.crashes,
        broker_kills: broken.broker_kills,
        held_at_end: broken.held_at_end,
        caught_up_s: after.caught_up_s,
        confirmed_s: after.confirmed_s,
        load_average_before,
        stop: peer::stop(program)?,
    })
}

fn load_time(options: &Options) -> Duration {
    Duration::from_secs(options.chaos_seconds)
}

fn plan(options: &Options) -> Plan {
    let part = load_time(options).as_secs_f64() / COUNTS_FOR.as_secs_f64();
    let of = |count: usize| (count as f64 * part).ceil() as usize;
    let counts = Counts {
        relay_kills: of(COUNTS.relay_kills),
        freezes: of(COUNTS.freezes),
        terminations: of(COUNTS.terminations),
        crashes: of(COUNTS.crashes),
        broker_kills: of(COUNTS.broker_kills),
        alarms: 0,
    };
    Plan::draw(options.seed, load_time(options), &counts)
}

/// Runs the load and the lanes of PostgreSQL and Kafka to their end.
fn break_services(
    place: &mut Place,
    target: &Target,
    plan: &Plan,
    options: &Options,
) -> Result<Broken> {
    let writers = ChaosWriters {
        rows_max: 200,
        rollback_share: 0.2,
        last: Some(load_time(options)),
        ..ChaosWriters::new(place.source.url(), options.events, options.seed)
    };
    let Place { source, kafka, .. } = place;
    std::thread::scope(|scope| {
        let kafka = scope.spawn(|| lanes::on_kafka(kafka, &plan.broker));
        let postgres =
            scope.spawn(|| lanes::on_postgres(source.postgres_mut(), &plan.postgres, &target.slot));
        let report = writers.run();
        let (postgres, broker_kills) = (joined(postgres), joined(kafka)?);
        let (terminations, crashes) = postgres?;
        let held_at_end = DrainWatch::new(&target.brokers, &target.topic)?.records()?;
        Ok(Broken { report: report?, terminations, crashes, broker_kills, held_at_end })
    })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    let gone = |_| Err(HarnessError::Other("a lane panicked".into()));
    thread.join().unwrap_or_else(gone)
}

/// Waits until the topic holds all that was committed, or the time is up.
fn aftermath(place: &Place, target: &Target) -> Result<Aftermath> {
    let began = Instant::now();
    let tip = place.source.ask("select pg_current_wal_flush_lsn()")?;
    let confirmed = format!(
        "select confirmed_flush_lsn >= '{tip}' from pg_replication_slots where slot_name = '{}'",
        target.slot
    );
    let truth = read_content_truth(&place.source.url(), OUTBOX)?;
    let consumer = content::consumer(target)?;
    let seconds = || began.elapsed().as_secs_f64();
    let caught_up_s =
        wait_at_most(CATCH_UP_LIMIT, POLL, || Ok(has_all(&consumer, &truth).then(seconds)))?;
    let confirmed_s = wait_at_most(CONFIRM_LIMIT, POLL, || {
        Ok((place.source.ask(&confirmed)? == "t").then(seconds))
    })?;
    // What a stuck contender repeats for ever is counted up to here.
    drop(consumer.wait_quiet(QUIET, CATCH_UP_LIMIT));
    let verdict = content::judged(&truth, &consumer.stop().records);
    Ok(Aftermath { verdict, caught_up_s, confirmed_s })
}

/// Looks closer only when there are enough.
fn has_all(consumer: &Consumer, truth: &[TruthRow]) -> bool {
    consumer.count() >= truth.len() as u64
        && content::judged(truth, &consumer.snapshot().records).missing.count == 0
}
