//! The world of one seed: it plays a schedule, round by round, and settles at its end.

mod database;
mod faults;
mod kafka_faults;
mod progress;
mod rabbitmq_faults;
mod relays;
mod script;
mod stops;

use std::sync::{Arc, Mutex};

use self::progress::Standing;
use self::rabbitmq_faults::Mends;
use self::script::Script;
use self::stops::Asked;
use walrelay_core::base::error::{Exit, Fault};
use walrelay_core::base::random::Random;
use walrelay_core::delivery::settings::OnDeadLetter;
use walrelay_core::health::Phase;
use walrelay_core::relay::testing::MemoryFile;
use walrelay_core::sink::Disposition;

use crate::broker::{Broker, Record, SharedBroker};
use crate::checker::{Checker, Violation};
use crate::digest::Digest;
use crate::faults::{FaultKind, Theme, some_of};
use crate::life::WorldClock;
use crate::options::{Options, SinkKind};
use crate::postgres::{Change, Event, KEYS, Postgres, TOPICS, Transaction};
use crate::process::{Machine, Process, Site};
use crate::rabbitmq::RabbitCounts;
use crate::scenarios::{self, Stage};
use crate::story::{About, Line};
use crate::surroundings::{Counts, SharedPostgres};
use walrelay_core::base::lock::locked;

/// The parts of a round that draw numbers.
const COMMIT: u64 = 1;
const FAULT: u64 = 2;
const JUMP: u64 = 3;
const STORE: u64 = 4;
const LAZY: u64 = 5;
const KAFKA: u64 = 6;
const RABBITMQ: u64 = 7;
/// The random numbers of each session, and of each relay.
const WALSENDER: u64 = 16;
const RELAY: u64 = 32;
/// The random numbers of each step of a script.
const SCRIPT: u64 = 64;

const WAL_SENDER_TIMEOUT_US: u64 = 10_000_000;
/// A publish is not under way to the broker for longer.
const UNDER_WAY_MAX_US: u64 = 30_000;
/// Postgres does not come back sooner.
const DOWN_MIN_US: u64 = 200_000;
/// The most faults of one schedule.
const FAULTS_MAX: u32 = 14;
/// The last event that a sink takes may exceed its window.
const SLACK: u64 = 1;
/// How often Postgres writes its slot, and a standby takes it over, of 256 rounds.
const CHECKPOINT: u64 = 6;
const SYNC_STANDBY: u64 = 12;
/// After some faults timeouts pass: rounds are long, and rarely commit.
const SLOW_ROUND_US: u64 = 200_000;
const SLOW_COMMIT: u64 = 32;
/// The duration of a fault that lasts longer than a lease.
const LONG_US: u64 = 16_000_000;
const SLOW_ROUNDS_MAX: u64 = 100;
pub(crate) const RELAYS_MAX: usize = 3;
/// A round at the end, where something moves. What is under way to a broker arrives in two of them.
const SETTLING_ROUND_US: u64 = 16_000;
/// The slot watch looks in one of so many rounds then.
const WATCH_EVERY: u64 = 4;
/// Rounds after the last fault within which everything must have settled; and where a reader of the
/// dead-letter topic is late, for which each relay waits that takes over, as behind each lost client.
const SETTLE_ROUNDS: u32 = 4_000;
const LATE_SETTLE_ROUNDS: u32 = 16_000;
/// So long nothing more must happen.
const QUIET_ROUNDS: u32 = 20;
/// A relay looks at an open connection once a second, and then shows that the broker is there. Another
/// connection is open after several rounds, which are long at the end.
const SHOWN_WITHIN_US: u64 = 6_000_000;
/// So long a stop that a relay must make is waited for.
const OWED_ROUNDS: u32 = 400;

/// The report of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub events: u64,
    /// The faults that have happened, with their index among those that were planned.
    pub happened: Vec<(u32, FaultKind)>,
    pub counts: Counts,
    pub sink: SinkKind,
    pub rabbitmq: RabbitCounts,
    pub takeovers: u64,
    pub stops: Vec<&'static str>,
    /// Processes that were asked to stop, and did.
    pub drained: u64,
    /// Dead letters of events whose key is parked.
    pub parked: u64,
    pub repeats: u64,
    pub rounds: u64,
    pub violation: Option<Violation>,
    pub story: Vec<Line>,
    /// The key of each event, from the first on.
    pub keys: Vec<Option<u8>>,
    pub relays: usize,
    /// Fingerprint of what was stored, of the positions that were reported, and of the stops.
    pub digest: u64,
}

/// How likely each activity is in a round, of 256.
struct Rates {
    commit: u64,
    send: u64,
    deliver: u64,
    step: u64,
    store: u64,
    serve: u64,
    fault: u64,
    poison: u64,
    huge: u64,
    round_us: u64,
}

pub struct World {
    options: Options,
    /// The random numbers of one part of one round: what a fault changes shifts no others.
    random: Random,
    of_seed: u64,
    /// Faults that were planned, whether they happen or not.
    planned: u32,
    clock: WorldClock,
    postgres: SharedPostgres,
    broker: SharedBroker,
    counts: Arc<Mutex<Counts>>,
    machines: Vec<Machine>,
    processes: Vec<Option<Process>>,
    /// When a process is started again.
    starts_us: Vec<u64>,
    frozen_until_us: Vec<u64>,
    /// Since when a machine is suspended: its clock stands, but for that of its system.
    suspended_since_us: Vec<Option<u64>>,
    rates: Rates,
    kinds: Vec<FaultKind>,
    checker: Checker,
    digest: Digest,
    report: Report,
    tells: bool,
    target: u64,
    /// When things are well again.
    postgres_back_us: Option<u64>,
    broker_back_us: Option<u64>,
    silent_until_us: Option<u64>,
    topic_back_us: Option<u64>,
    refuses_until_us: u64,
    unsteady_until_us: u64,
    replaces_cluster: bool,
    sink: SinkKind,
    rabbitmq: Mends,
    last_holder: Option<usize>,
    stored_until: usize,
    /// Rounds in which little is committed and timeouts pass.
    slow_rounds: u64,
    /// The time before which no other fault happens.
    quiet_until_us: u64,
    /// How often each relay was started.
    starts: Vec<u32>,
    /// Relay, its start, and the timeline of the last session; and how many sinks there were then.
    last_session: Option<(usize, u32, u32)>,
    last_sinks: u64,
    /// The violation that was found outside of the look at the broker.
    violation: Option<Violation>,
    /// The first event that should go on.
    standing: Option<Standing>,
    /// The request of each relay.
    asked: Vec<Option<Asked>>,
    /// The last process has ended as it was asked to: its relay, and its last sink.
    clean_end: Option<stops::CleanEnd>,
    /// The first sink of the present process of each relay.
    first_sinks: Vec<u64>,
    published_again_us: Option<u64>,
    /// There was a gap in the publication that every machine can find, when so many stops had been.
    gap: Option<usize>,
    is_settling: bool,
    script: Script,
}

impl Rates {
    fn drawn(random: &mut Random) -> Rates {
        let mut rate = |from: u64, to: u64| from + below(random, to - from);
        Rates {
            commit: rate(60, 240),
            send: rate(80, 250),
            deliver: rate(80, 250),
            step: rate(100, 250),
            store: rate(60, 250),
            serve: rate(60, 250),
            fault: rate(3, 24),
            poison: [0, 0, 2, 8][rate(0, 4) as usize],
            huge: rate(0, 6),
            round_us: [200, 1_000, 5_000, 20_000][rate(0, 4) as usize],
        }
    }
}

impl Rates {
    /// All that is there to be done is done in each round.
    fn settling(&self) -> Rates {
        Rates { send: 256, deliver: 256, step: 256, store: 256, serve: 256, ..*self }
    }

    /// As a scenario wants them.
    fn with(mut self, stage: Stage) -> Rates {
        self.poison = stage.poison.unwrap_or(self.poison);
        if stage.is_calm {
            self.fault = 0;
        }
        self
    }
}

fn machines(sink: SinkKind, relays: usize, random: &mut Random) -> Vec<Machine> {
    let policy = match below(random, 4) {
        0 => OnDeadLetter::ParkKey,
        _ => OnDeadLetter::Continue,
    };
    // The queues of RabbitMQ are read by taking away what they hold.
    let reads_topics = below(random, 3) > 0 && sink != SinkKind::Rabbitmq;
    let window = [4, 16, 64][below(random, 3) as usize];
    let machine = |index| Machine {
        index,
        state_file: (below(random, 3) > 0).then(MemoryFile::default),
        policy,
        window,
        sink,
        reads_topics,
        burst: None,
        reads_letters_late: false,
    };
    let mut machines: Vec<Machine> = (0..RELAYS_MAX).map(machine).collect();
    machines.truncate(relays);
    machines
}

/// Whether a script may be played to the sink that is asked for. Some are written for one sink, and the
/// others not for RabbitMQ.
fn may_play(asked: Option<SinkKind>, stage: Stage) -> bool {
    let is_written_for = |sink| stage.sink.map_or(sink != SinkKind::Rabbitmq, |it| it == sink);
    asked.is_none_or(is_written_for)
}

impl World {
    pub fn new(options: &Options, tells: bool) -> World {
        let mut random = Random::new(options.seed);
        let clock = WorldClock::default();
        let broker = Arc::new(Mutex::new(Broker::new(&clock, random.number())));
        let relays = [1, 1, 2, 2, 3][below(&mut random, 5) as usize];
        let drawn = SinkKind::ALL[below(&mut random, SinkKind::ALL.len() as u64) as usize];
        let sink = options.sink.unwrap_or(drawn);
        let play = scenarios::drawn(options.seed, options.scenario);
        let play = play.filter(|play| may_play(options.sink, play.stage));
        let stage = play.as_ref().map(|play| play.stage).unwrap_or_default();
        let relays = options.relays.or(stage.relays).unwrap_or(relays);
        if relays > 1 {
            locked(&broker).rabbitmq.lift_user_limit();
        }
        let sink = options.sink.or(stage.sink).unwrap_or(match sink {
            SinkKind::Rabbitmq if play.is_some() => SinkKind::Direct,
            sink => sink,
        });
        let mut machines = machines(sink, relays, &mut random);
        machines.iter_mut().for_each(|machine| set_up(machine, stage));
        let parks_keys = machines.iter().any(|it| it.policy == OnDeadLetter::ParkKey);
        World {
            kinds: kinds(sink, &mut random),
            rates: Rates::drawn(&mut random).with(stage),
            clock,
            postgres: Arc::new(Mutex::new(Postgres::new(stage.keeps_alive_ahead, options.seed))),
            broker,
            counts: Arc::default(),
            processes: machines.iter().map(|_| None).collect(),
            starts_us: machines.iter().map(|_| 0).collect(),
            frozen_until_us: machines.iter().map(|_| 0).collect(),
            suspended_since_us: machines.iter().map(|_| None).collect(),
            machines,
            checker: Checker::new(parks_keys),
            digest: Digest::default(),
            report: Report { relays, sink, ..Report::default() },
            tells,
            target: options.events.unwrap_or(140 + below(&mut random, 130)),
            options: options.clone(),
            random,
            of_seed: Random::new(options.seed).number(),
            planned: 0,
            postgres_back_us: None,
            broker_back_us: None,
            silent_until_us: None,
            topic_back_us: None,
            refuses_until_us: 0,
            unsteady_until_us: 0,
            replaces_cluster: false,
            sink,
            rabbitmq: Mends::default(),
            last_holder: None,
            stored_until: 0,
            slow_rounds: 0,
            quiet_until_us: 0,
            starts: vec![0; relays],
            last_session: None,
            last_sinks: 0,
            violation: None,
            standing: None,
            asked: vec![None; relays],
            clean_end: None,
            first_sinks: vec![0; relays],
            published_again_us: None,
            gap: None,
            is_settling: false,
            script: Script::new(play, relays),
        }
    }

    pub fn run(mut self) -> Report {
        let outcome = self.play().and_then(|()| self.settle());
        self.note_stored();
        if self.tells {
            let lines: Vec<String> = locked(&self.postgres)
                .wal
                .iter()
                .map(|it| {
                    let numbers: Vec<u64> = it.events().map(|event| event.number).collect();
                    format!(
                        "wal {} {:x} {:x} at {} {numbers:?} {}",
                        it.xid,
                        it.commit_lsn,
                        it.end_lsn,
                        it.commit_unix_us,
                        it.changes.len()
                    )
                })
                .collect();
            lines.into_iter().for_each(|line| self.tell_of(About::Detail, || line));
        }
        if let Err(violation) = outcome {
            self.tell(|| format!("VIOLATION: {violation}"));
            self.report.violation = Some(violation);
        }
        self.report.counts = locked(&self.counts).clone();
        self.report.repeats = self.checker.repeats;
        let broker = locked(&self.broker);
        self.report.parked = broker.stored.iter().filter(|it| it.is_parked()).count() as u64;
        self.report.digest = self.digest.value();
        drop(broker);
        self.report
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        self.tell_of(About::All, text);
    }

    fn tell_of(&mut self, about: About, text: impl FnOnce() -> String) {
        if self.tells {
            let (at_us, text) = (self.clock.us(), text());
            self.report.story.push(Line { at_us, about, text });
        }
    }

    /// The numbers for one part of this round.
    fn draw_for(&mut self, part: u64) {
        let round = self.report.rounds << 8 | part;
        self.random = Random::new(self.of_seed ^ Random::new(round).number());
    }

    fn chance(&mut self, of_256: u64) -> bool {
        below(&mut self.random, 256) < of_256
    }

    fn play(&mut self) -> Result<(), Violation> {
        while self.report.events < self.target || self.script.goes_on() {
            self.round()?;
            self.play_script();
            self.draw_for(COMMIT);
            let is_slow = self.slow_rounds > 0;
            self.slow_rounds = self.slow_rounds.saturating_sub(1);
            let commits = self.chance(if is_slow { SLOW_COMMIT } else { self.rates.commit });
            if commits && !self.script.is_still() && self.report.events < self.target {
                self.commit();
            }
            self.draw_for(FAULT);
            if self.planned < FAULTS_MAX && self.chance(self.rates.fault) {
                self.planned += 1;
                let is_quiet = self.clock.us() < self.quiet_until_us;
                if self.options.keeps(self.planned - 1) && !is_quiet {
                    self.fault();
                }
            }
        }
        Ok(())
    }

    /// Lets no fault happen any more: all must come to its end.
    fn settle(&mut self) -> Result<(), Violation> {
        self.tell(|| "nothing goes wrong from here on".to_owned());
        self.mend(u64::MAX);
        self.is_settling = true;
        self.rates = self.rates.settling();
        self.frozen_until_us.fill(0);
        (self.refuses_until_us, self.unsteady_until_us) = (0, 0);
        self.starts_us.fill(0);
        // Somebody raises the limit, or the same events would stop every process.
        self.machines.iter_mut().for_each(|machine| machine.burst = None);
        locked(&self.postgres).loses_reports = false;
        self.script.cut_host = None;
        let (mut quiet, mut seen, mut still, mut is_settled) = (0, (0, 0), 0_u32, false);
        let mut away_since_us = None;
        let is_late = self.machines.iter().any(|it| it.reads_letters_late);
        let rounds_max = if is_late { LATE_SETTLE_ROUNDS } else { SETTLE_ROUNDS };
        for _ in 0..rounds_max {
            // Where nothing moves, a timeout is waited for.
            self.rates.round_us = (SETTLING_ROUND_US << still.min(5)).min(400_000);
            self.round()?;
            let (postgres, broker) = (locked(&self.postgres), locked(&self.broker));
            let slot = postgres.slot.as_ref().map_or(0, |slot| slot.confirmed);
            let now = (broker.stored.len(), slot);
            still = if now == seen { still + 1 } else { 0 };
            seen = now;
            self.checker.look(&broker)?;
            // It stays so: the last look at the end is at each event again.
            is_settled = is_settled || self.checker.all_settled(&postgres);
            quiet = if is_settled && broker.is_quiet() { quiet + 1 } else { 0 };
            if quiet > if self.is_owed() { OWED_ROUNDS } else { QUIET_ROUNDS } {
                let found = |since: &usize| {
                    self.report.stops[*since..].iter().any(|code| code.starts_with("publication."))
                };
                if self.gap.as_ref().is_some_and(|since| !found(since)) {
                    return Err("gap: the table was unpublished, and no relay has stopped"
                        .to_owned()
                        .into());
                }
                self.judge_owed()?;
                let mut shown = self.processes.iter().flatten().map(|it| locked(&it.shown).pass);
                if shown.any(|it| it.phase == Phase::Streaming && !it.sink_reachable) {
                    drop((postgres, broker));
                    let now_us = self.clock.us();
                    if now_us - *away_since_us.get_or_insert(now_us) < SHOWN_WITHIN_US {
                        continue;
                    }
                    return Err("status: all is well, and the broker is shown as away"
                        .to_owned()
                        .into());
                }
                return self.checker.end(&postgres, &broker);
            }
        }
        let mut text = format!("it does not settle within {rounds_max} rounds");
        for process in self.processes.iter().flatten() {
            let shown = locked(&process.shown).pass;
            text += &format!(
                "; a relay is {:?}, hold {:?}, in flight {}",
                shown.phase, shown.hold, shown.in_flight_events
            );
        }
        if let Err(violation) = self.checker.end(&locked(&self.postgres), &locked(&self.broker)) {
            text += &format!("; {violation}");
        }
        Err(text.into())
    }

    fn round(&mut self) -> Result<(), Violation> {
        self.report.rounds += 1;
        self.draw_for(JUMP);
        let round_us = if self.slow_rounds > 0 { SLOW_ROUND_US } else { self.rates.round_us };
        let mut jump = 1 + below(&mut self.random, 2 * round_us);
        if let Some(back) = self.postgres_back_us {
            jump = jump.max(back.saturating_sub(self.clock.us()) / 8);
        }
        self.clock.advance(jump);
        self.mend(self.clock.us());
        self.draw_for(LAZY);
        if self.chance(CHECKPOINT) {
            locked(&self.postgres).checkpoint();
        }
        if self.chance(SYNC_STANDBY) {
            locked(&self.postgres).sync_standby();
        }
        self.walsenders()?;
        self.store(jump);
        self.note_stored();
        self.checker.look(&locked(&self.broker))?;
        if std::mem::take(&mut self.replaces_cluster) {
            self.replace_cluster();
        }
        self.relays();
        self.judge_progress();
        self.violation.take().map_or(Ok(()), Err)
    }

    fn note_stored(&mut self) {
        let broker = locked(&self.broker);
        let new = &broker.stored[self.stored_until..];
        new.iter().for_each(|record| self.digest.record(record));
        self.stored_until = broker.stored.len();
        let counts_letters = self.script.stage.burst.is_some();
        let late = new.iter().find(|record| self.is_late(record, &broker)).map(|it| it.id.clone());
        if !self.tells && !counts_letters && late.is_none() {
            return;
        }
        let records = new.to_vec();
        drop(broker);
        if let Some(id) = late {
            self.violate(format!("fence: {id} is stored from a relay that waits behind a peer"));
        }
        if counts_letters {
            records.iter().for_each(|record| self.judge_burst(record));
        }
        if self.tells {
            self.tell_stored(records);
        }
    }

    fn tell_stored(&mut self, records: Vec<Record>) {
        for record in records {
            let event = record.id.strip_prefix('e').and_then(|number| number.parse().ok());
            let (relay, sink) = record.by;
            self.tell_of(event.map_or(About::All, About::Event), || {
                let (id, topic) = (&record.id, &record.topic);
                format!("stored: {id} in {topic}, from relay {relay}, sink {sink}")
            });
        }
    }

    fn store(&mut self, jump_us: u64) {
        let late_us = self.clock.us().saturating_sub(UNDER_WAY_MAX_US);
        self.kafka_round(jump_us, late_us);
        self.rabbitmq_round(late_us);
        locked(&self.broker).arrive(|publish| publish.sent_us < late_us);
        self.draw_for(STORE);
        if !self.chance(self.rates.store) {
            return;
        }
        let refuses = self.clock.us() < self.refuses_until_us;
        let mut broker = locked(&self.broker);
        for _ in 0..1 + below(&mut self.random, 12) {
            let takeable = broker.takeable().count();
            if takeable == 0 {
                return;
            }
            let index = below(&mut self.random, takeable as u64) as usize;
            let Some(index) = broker.takeable().nth(index) else { return };
            let refusal = (refuses && below(&mut self.random, 2) == 0).then(|| {
                match below(&mut self.random, 3) {
                    0 => Disposition::Delayed,
                    _ => Disposition::Transient,
                }
            });
            broker.take(index, refusal, true);
        }
    }
}

fn set_up(machine: &mut Machine, stage: Stage) {
    machine.policy = stage.policy.unwrap_or(machine.policy);
    machine.burst = stage.burst;
    machine.reads_letters_late = stage.reads_letters_late;
    machine.reads_topics = stage.reads_topics.unwrap_or(machine.reads_topics);
    machine.window = stage.window.unwrap_or(machine.window);
    match stage.has_file {
        Some(true) => _ = machine.state_file.get_or_insert_default(),
        Some(false) => machine.state_file = None,
        None => {}
    }
}

/// The kinds of faults of one schedule.
fn kinds(sink: SinkKind, random: &mut Random) -> Vec<FaultKind> {
    let theme = Theme::ALL[below(random, Theme::ALL.len() as u64) as usize];
    some_of(theme.faults(), sink, 5, random)
}

fn below(random: &mut Random, bound: u64) -> u64 {
    random.number() % bound.max(1)
}
