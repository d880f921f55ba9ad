//! A backlog, as fast as possible: every contender reads the same bytes from a slot of its own.
//!
//! Events are counted after the first: what a process needs to start is a figure of its own.

use std::time::{Duration, Instant};

use serde::Serialize;
use walrelay_harness::bench::{Counted, Progress};
use walrelay_harness::load::Backlog;
use walrelay_harness::relay::{RelayProcess, get};
use walrelay_harness::{BrokerKind, HarnessError, Result, other, proc};
use walrelay_measure::numbers;
use walrelay_measure::process::{Watch, load_average};

use crate::bed::Bed;
use crate::broker::{Queue, Target};
use crate::options::Options;
use crate::publisher::{self, Windows};
use crate::recvlogical::Recvlogical;
use crate::watchers::Watchers;
use crate::{pipeline, reader};

/// The time that a run takes only if it is stuck.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

/// Who reads the backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Contender {
    /// The relay's own reader without anything behind it.
    LazyReader,
    /// `pg_recvlogical` to /dev/null.
    PgRecvlogical,
    /// The relay, confirming everything itself.
    NullSink,
    /// The relay's reader and librdkafka in one process, and nothing between them.
    BarePipeline,
    /// The same, with headers as long as the relay's.
    BarePipelineHeaders,
    /// The relay to Kafka.
    Kafka,
    /// The relay to Kafka, header `id` only, as the peers were measured.
    KafkaDebezium,
    /// A publisher without a source, into a queue of RabbitMQ: what the broker can take.
    Bare(Queue),
    /// The relay to the same type of queue.
    Rabbitmq(Queue),
    /// The relay to the broker, with a Prometheus, a health check and eight consoles.
    Watched,
    /// Another binary of the relay to the broker: which of `--against`.
    Against(usize),
}

const KAFKA: [Contender; 7] = [
    Contender::LazyReader,
    Contender::PgRecvlogical,
    Contender::NullSink,
    Contender::BarePipeline,
    Contender::BarePipelineHeaders,
    Contender::Kafka,
    Contender::KafkaDebezium,
];
const RABBITMQ: [Contender; 5] = [
    Contender::LazyReader,
    Contender::Bare(Queue::Quorum),
    Contender::Rabbitmq(Queue::Quorum),
    Contender::Bare(Queue::Classic),
    Contender::Rabbitmq(Queue::Classic),
];

impl Contender {
    /// In the order of the first round. An A/B needs no others beside its two.
    pub(crate) fn all(options: &Options) -> Vec<Contender> {
        let against = (0..options.against.len()).map(Contender::Against);
        let watched = options.watched.then_some(Contender::Watched);
        let usual = match options.sink {
            sink if options.is_comparison() => &[Contender::of(sink)],
            BrokerKind::Kafka => &KAFKA[..],
            BrokerKind::RabbitMq => &RABBITMQ,
        };
        usual.iter().copied().chain(watched).chain(against).collect()
    }

    /// The relay to a broker, as most people run it.
    pub(crate) fn of(sink: BrokerKind) -> Contender {
        match sink {
            BrokerKind::Kafka => Contender::Kafka,
            BrokerKind::RabbitMq => Contender::Rabbitmq(Queue::Quorum),
        }
    }

    fn queue(self) -> Queue {
        match self {
            Contender::Bare(queue) | Contender::Rabbitmq(queue) => queue,
            _ => Queue::Quorum,
        }
    }

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::LazyReader => "lazy reader, discards",
            Contender::PgRecvlogical => "pg_recvlogical, /dev/null",
            Contender::NullSink => "walrelay, null sink",
            Contender::BarePipeline => "bare pipeline, Kafka",
            Contender::BarePipelineHeaders => "bare pipeline, Kafka, headers",
            Contender::Kafka => "walrelay, Kafka",
            Contender::KafkaDebezium => "walrelay, Kafka, preset debezium",
            Contender::Bare(Queue::Quorum) => "bare publisher, quorum queue",
            Contender::Bare(Queue::Classic) => "bare publisher, classic queue",
            Contender::Rabbitmq(Queue::Quorum) => "walrelay, RabbitMQ, quorum queue",
            Contender::Rabbitmq(Queue::Classic) => "walrelay, RabbitMQ, classic queue",
            Contender::Watched => "walrelay, watched",
            Contender::Against(0) => "first --against",
            Contender::Against(1) => "second --against",
            Contender::Against(_) => "another --against",
        }
    }
}

/// One contender's run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) contender: Contender,
    pub(crate) round: usize,
    pub(crate) events_per_s: f64,
    /// The CPU time of the reader alone; per million events, its start included.
    pub(crate) cpu_s_per_million: f64,
    pub(crate) walsender_cpu_s_per_million: f64,
    /// None for the reader that lives in this process.
    pub(crate) peak_rss_bytes: Option<u64>,
    /// From the start of the process to the first event, confirmed if there is anything to confirm.
    pub(crate) first_event_ms: f64,
    pub(crate) load_average_before: f64,
    /// The most unconfirmed messages of the bare publisher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window_events: Option<u64>,
}

/// When what happened.
pub(crate) struct Times {
    pub(crate) started_at: Instant,
    pub(crate) first_at: Instant,
    /// Events that were there already at `first_at`.
    pub(crate) first_events: u64,
    pub(crate) done_at: Instant,
    pub(crate) cpu_s: f64,
    /// Not a number where there is none.
    pub(crate) walsender_cpu_s: f64,
    pub(crate) peak_rss_bytes: Option<u64>,
}

impl Times {
    /// The rate at which the events of `rows` in all have come.
    pub(crate) fn events_per_s(&self, rows: u64) -> f64 {
        (rows - self.first_events) as f64 / (self.done_at - self.first_at).as_secs_f64()
    }
}

/// Fills once, then lets everybody drain it, in rounds.
pub(crate) fn measure(bed: &Bed, options: &Options, progress: &Progress) -> Result<Vec<Run>> {
    progress.step(&format!("writing {} rows", numbers::count(options.rows)));
    bed.begin_backlog()?;
    let mut backlog = Backlog::new(bed.url(), options.rows);
    backlog.keys = options.keys;
    let took = backlog.fill()?;
    bed.checkpoint()?;
    progress.say(&format!(
        "{} rows of 330 B and {} keys in 100-row transactions written in {}",
        numbers::count(options.rows),
        numbers::count(options.keys),
        numbers::duration(took)
    ));
    let windows = prepare(bed, options, progress)?;
    let drain = Drain { bed, rows: options.rows, windows };
    let mut runs = Vec::new();
    let mut contenders = Contender::all(options);
    for round in 1..=options.runs {
        for &contender in &contenders {
            progress.step(&format!("drain {round}/{}: {}", options.runs, contender.name()));
            let run = drain.run(contender, round)?;
            progress.say(&format!(
                "drain {round}/{}: {:<32} {:>7}  {:.2} CPU-s per million  load {:.1}",
                options.runs,
                contender.name(),
                numbers::rate(run.events_per_s),
                run.cpu_s_per_million,
                run.load_average_before
            ));
            runs.push(run);
        }
        // The broker becomes faster from run to run, so each contender takes each place in a round.
        contenders.rotate_left(1);
    }
    bed.end_backlog()?;
    Ok(runs)
}

/// Runs that do not count: a broker runs faster once it has compiled and filled what it uses.
fn prepare(bed: &Bed, options: &Options, progress: &Progress) -> Result<Option<Windows>> {
    progress.step("one drain that does not count");
    let slot = bed.copied_slot()?;
    let target = bed.target(Queue::Quorum)?;
    relay(bed, Contender::of(options.sink), &slot, &target, options.rows)?;
    bed.drop_slot(&slot)?;
    if options.sink == BrokerKind::Kafka {
        return Ok(None);
    }
    target.compare_with_bare()?;
    if options.is_comparison() {
        return Ok(None);
    }
    progress.step("the best window of the bare publisher");
    Windows::find(bed, options.rows / 2, progress).map(Some)
}

struct Drain<'a> {
    bed: &'a Bed,
    rows: u64,
    windows: Option<Windows>,
}

impl Drain<'_> {
    fn run(&self, contender: Contender, round: usize) -> Result<Run> {
        let slot = self.bed.copied_slot()?;
        let load_average_before = load_average();
        let times = self.times(contender, &slot)?;
        self.bed.drop_slot(&slot)?;
        let per_million = |seconds: f64| seconds * 1e6 / self.rows as f64;
        Ok(Run {
            contender,
            round,
            events_per_s: times.events_per_s(self.rows),
            cpu_s_per_million: per_million(times.cpu_s),
            walsender_cpu_s_per_million: per_million(times.walsender_cpu_s),
            peak_rss_bytes: times.peak_rss_bytes,
            first_event_ms: (times.first_at - times.started_at).as_secs_f64() * 1e3,
            load_average_before,
            window_events: self.window_events(contender),
        })
    }

    fn window_events(&self, contender: Contender) -> Option<u64> {
        match contender {
            Contender::Bare(queue) => self.windows.map(|windows| windows.of(queue)),
            _ => None,
        }
    }

    fn times(&self, contender: Contender, slot: &str) -> Result<Times> {
        let (bed, rows) = (self.bed, self.rows);
        match contender {
            Contender::LazyReader => reader::drain(bed, slot, rows),
            Contender::PgRecvlogical => pg_recvlogical(bed, slot),
            Contender::BarePipeline | Contender::BarePipelineHeaders => {
                let headers = contender == Contender::BarePipelineHeaders;
                pipeline::drain(bed, slot, &bed.target(Queue::Quorum)?, rows, headers)
            }
            Contender::Bare(queue) => {
                let window = self.window_events(contender);
                let window = window.ok_or_else(|| other("no window was looked for"))?;
                publisher::publish(&bed.target(queue)?, rows, window)
            }
            _ => relay(bed, contender, slot, &bed.target(contender.queue())?, rows),
        }
    }
}

/// Its rate is over the time between its first message and its end, all rows counted.
fn pg_recvlogical(bed: &Bed, slot: &str) -> Result<Times> {
    let endpos = bed.ask("select pg_current_wal_flush_lsn()")?;
    let mut reader = Recvlogical::start(bed, slot, "/dev/null", Some(&endpos))?;
    let own = Watch::start(reader.pid());
    let first_at = reader.wait_first(LIMIT)?;
    let walsender = Watch::start(bed.walsender("pg_recvlogical")?);
    let done_at = reader.wait_end(LIMIT)?;
    Ok(Times {
        started_at: reader.spawned_at(),
        first_at,
        first_events: 0,
        done_at,
        cpu_s: own.cpu_seconds(),
        walsender_cpu_s: walsender.cpu_seconds(),
        peak_rss_bytes: Some(own.peak_rss_bytes()),
    })
}

fn relay(bed: &Bed, contender: Contender, slot: &str, target: &Target, rows: u64) -> Result<Times> {
    let relay = bed.relay(contender, slot, target)?;
    let watchers = (contender == Contender::Watched).then(|| Watchers::start(relay.admin()));
    let first = wait_confirmed(&relay, 1, LIMIT)?;
    let walsender = Watch::start(bed.walsender("walrelay")?);
    let done = wait_confirmed(&relay, rows, LIMIT)?;
    let cpu_s = proc::cpu_seconds(relay.pid())?;
    let memory = proc::memory(relay.pid())?;
    let times = Times {
        started_at: relay.spawned_at(),
        first_at: first.at,
        first_events: first.events,
        done_at: done.at,
        cpu_s,
        walsender_cpu_s: walsender.cpu_seconds(),
        peak_rss_bytes: Some(memory.peak_rss_bytes),
    };
    drop(watchers);
    bed.stop(relay)?;
    if contender != Contender::NullSink {
        target.expect(rows)?;
    }
    Ok(times)
}

/// Waits until the relay counts `events` as confirmed.
pub(crate) fn wait_confirmed(
    relay: &RelayProcess,
    events: u64,
    limit: Duration,
) -> Result<Counted> {
    Counted::wait(events, limit, || Ok(confirmed(relay)))
        .map_err(|error| HarnessError::Other(format!("{error}\n{}", relay.tail(20))))
}

/// Events that the relay counts as published; 0 as long as it does not answer.
fn confirmed(relay: &RelayProcess) -> u64 {
    const SAMPLE: &str = "outbox_events_total{outcome=\"published\"} ";
    let Ok(answer) = get(relay.admin(), "/metrics", Duration::from_secs(5)) else { return 0 };
    let sample = answer.body.lines().find_map(|line| line.strip_prefix(SAMPLE));
    sample.and_then(|number| number.trim().parse::<f64>().ok()).map_or(0, |number| number as u64)
}
