//! The world of one seed: it plays a schedule, round by round, and settles at its end.

mod kafka_faults;
mod stops;

use std::sync::{Arc, Mutex};

use self::stops::Asked;
use walrelay_core::base::error::{Exit, Fault};
use walrelay_core::base::random::Random;
use walrelay_core::delivery::settings::OnDeadLetter;
use walrelay_core::relay::testing::MemoryFile;
use walrelay_core::sink::Disposition;

use crate::broker::{Broker, SharedBroker, locked};
use crate::checker::{Checker, Violation};
use crate::faults::{FAULTS, FaultKind};
use crate::life::WorldClock;
use crate::options::{Options, SinkKind};
use crate::postgres::{Change, Event, Postgres, TOPICS};
use crate::process::{Machine, Process, Site};
use crate::story::{About, Line};
use crate::surroundings::{Counts, Kept, SharedPostgres};

/// The parts of a round that draw numbers.
const COMMIT: u64 = 1;
const FAULT: u64 = 2;
const JUMP: u64 = 3;
const STORE: u64 = 4;
const LAZY: u64 = 5;
const KAFKA: u64 = 6;
/// Of each session, and of each relay.
const WALSENDER: u64 = 16;
const RELAY: u64 = 32;

const WAL_SENDER_TIMEOUT_US: u64 = 10_000_000;
/// A publish is not under way to the broker for longer.
const UNDER_WAY_MAX_US: u64 = 30_000;
/// Postgres does not come back sooner.
const DOWN_MIN_US: u64 = 200_000;
/// Of one schedule.
const FAULTS_MAX: u32 = 14;
/// The last event that a sink takes may exceed its window.
const SLACK: u64 = 1;
const KEYS: u64 = 6;
/// How often Postgres writes its slot, and a standby takes it over, of 256 rounds.
const CHECKPOINT: u64 = 6;
const SYNC_STANDBY: u64 = 12;
/// After some faults timeouts pass: rounds are long, and rarely commit.
const SLOW_ROUND_US: u64 = 200_000;
const SLOW_COMMIT: u64 = 32;
/// What goes wrong then lasts longer than a lease.
const LONG_US: u64 = 16_000_000;
const SLOW_ROUNDS_MAX: u64 = 100;
const RELAYS_MAX: usize = 3;
/// Rounds after the last fault within which everything must have settled.
const SETTLE_ROUNDS: u32 = 4_000;
/// So long nothing more must happen.
const QUIET_ROUNDS: u32 = 20;

/// What a run has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub events: u64,
    /// The faults that have happened, with their index among those that were planned.
    pub happened: Vec<(u32, FaultKind)>,
    pub counts: Counts,
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
    /// Fingerprint of all that was stored.
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
    /// Of one part of one round: what a fault changes shifts no others.
    random: Random,
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
    last_holder: Option<usize>,
    stored_until: usize,
    /// Rounds in which little is committed and timeouts pass.
    slow_rounds: u64,
    /// How often each relay was started.
    starts: Vec<u32>,
    /// Relay, its start, and the timeline of the last session; and how many sinks there were then.
    last_session: Option<(usize, u32, u32)>,
    last_sinks: u64,
    /// What was found outside of the look at the broker.
    violation: Option<Violation>,
    asked: Option<Asked>,
    /// The last process has ended as it was asked to: its relay, and its first sink.
    clean_end: Option<(usize, u64)>,
    /// Of the present process of each relay.
    first_sinks: Vec<u64>,
    published_again_us: Option<u64>,
    /// There was a gap in the publication that every machine can find, when so many stops had been.
    gap: Option<usize>,
    is_settling: bool,
}

impl World {
    pub fn new(options: &Options, tells: bool) -> World {
        let mut random = Random::new(options.seed);
        let clock = WorldClock::default();
        let broker = Arc::new(Mutex::new(Broker::new(&clock, random.number())));
        let drawn = [1, 1, 2, 2, 3][below(&mut random, 5) as usize];
        let relays = options.relays.unwrap_or(drawn);
        let drawn = SinkKind::ALL[below(&mut random, SinkKind::ALL.len() as u64) as usize];
        let sink = options.sink.unwrap_or(drawn);
        let policy = match below(&mut random, 4) {
            0 => OnDeadLetter::ParkKey,
            _ => OnDeadLetter::Continue,
        };
        let reads_topics = below(&mut random, 3) > 0;
        let window = [4, 16, 64][below(&mut random, 3) as usize];
        let machine = |index: usize, random: &mut Random| Machine {
            index,
            state_file: (below(random, 3) > 0).then(MemoryFile::default),
            kept: Arc::<Mutex<Kept>>::default(),
            policy,
            window,
            sink,
            reads_topics,
        };
        let mut machines: Vec<Machine> =
            (0..RELAYS_MAX).map(|index| machine(index, &mut random)).collect();
        machines.truncate(relays);
        let mut kinds = FAULTS.to_vec();
        kinds.retain(|kind| kind.happens_with(sink));
        let count = 1 + below(&mut random, 5) as usize;
        while kinds.len() > count {
            kinds.swap_remove(below(&mut random, kinds.len() as u64) as usize);
        }
        let mut rate = |from: u64, to: u64| from + below(&mut random, to - from);
        let rates = Rates {
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
        };
        let starts = vec![0; machines.len()];
        World {
            clock,
            postgres: Arc::new(Mutex::new(Postgres::new())),
            broker,
            counts: Arc::default(),
            processes: machines.iter().map(|_| None).collect(),
            starts_us: machines.iter().map(|_| 0).collect(),
            frozen_until_us: machines.iter().map(|_| 0).collect(),
            suspended_since_us: machines.iter().map(|_| None).collect(),
            machines,
            rates,
            kinds,
            checker: Checker::new(policy == OnDeadLetter::ParkKey),
            report: Report { relays, ..Report::default() },
            tells,
            target: options.events.unwrap_or(150 + below(&mut random, 150)),
            options: options.clone(),
            random,
            planned: 0,
            postgres_back_us: None,
            broker_back_us: None,
            silent_until_us: None,
            topic_back_us: None,
            refuses_until_us: 0,
            unsteady_until_us: 0,
            replaces_cluster: false,
            sink,
            last_holder: None,
            stored_until: 0,
            slow_rounds: 0,
            starts,
            last_session: None,
            last_sinks: 0,
            violation: None,
            asked: None,
            clean_end: None,
            first_sinks: vec![0; relays],
            published_again_us: None,
            gap: None,
            is_settling: false,
        }
    }

    pub fn run(mut self) -> Report {
        let outcome = self.play().and_then(|()| self.settle());
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
        self.report.digest = digest(&broker);
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
    fn draws_for(&mut self, part: u64) {
        let round = self.report.rounds << 8 | part;
        self.random =
            Random::new(Random::new(self.options.seed).number() ^ Random::new(round).number());
    }

    fn chance(&mut self, of_256: u64) -> bool {
        below(&mut self.random, 256) < of_256
    }

    fn play(&mut self) -> Result<(), Violation> {
        while self.report.events < self.target {
            self.round()?;
            self.draws_for(COMMIT);
            let is_slow = self.slow_rounds > 0;
            self.slow_rounds = self.slow_rounds.saturating_sub(1);
            if self.chance(if is_slow { SLOW_COMMIT } else { self.rates.commit }) {
                self.commit();
            }
            self.draws_for(FAULT);
            if self.planned < FAULTS_MAX && self.chance(self.rates.fault) {
                self.planned += 1;
                if self.options.keeps(self.planned - 1) {
                    self.fault();
                }
            }
        }
        Ok(())
    }

    /// Nothing goes wrong any more: all must come to its end.
    fn settle(&mut self) -> Result<(), Violation> {
        self.tell(|| "nothing goes wrong from here on".to_owned());
        self.mend(u64::MAX);
        self.is_settling = true;
        self.frozen_until_us.fill(0);
        (self.refuses_until_us, self.unsteady_until_us) = (0, 0);
        self.starts_us.fill(0);
        let (mut quiet, mut seen, mut still) = (0, (0, 0), 0_u32);
        for _ in 0..SETTLE_ROUNDS {
            // Where nothing moves, a timeout is waited for.
            self.rates.round_us = (1_000 << still.min(10)).min(400_000);
            self.round()?;
            let slot = locked(&self.postgres).slot.as_ref().map_or(0, |slot| slot.confirmed);
            let now = (locked(&self.broker).stored.len(), slot);
            still = if now == seen { still + 1 } else { 0 };
            seen = now;
            self.checker.look(&locked(&self.broker))?;
            let is_settled = self.checker.all_settled(&locked(&self.postgres));
            let is_empty = locked(&self.broker).is_quiet();
            quiet = if is_settled && is_empty { quiet + 1 } else { 0 };
            if quiet > QUIET_ROUNDS {
                let found = |since: &usize| {
                    self.report.stops[*since..].iter().any(|code| code.starts_with("publication."))
                };
                if self.gap.as_ref().is_some_and(|since| !found(since)) {
                    return Err("gap: the table was unpublished, and no relay has stopped"
                        .to_owned()
                        .into());
                }
                return self.checker.end(&locked(&self.postgres), &locked(&self.broker));
            }
        }
        let mut text = format!("it does not settle within {SETTLE_ROUNDS} rounds");
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
        for process in self.processes.iter().flatten() {
            let shown = locked(&process.shown).pass;
            text += &format!(
                "; a relay is {:?}, hold {:?}, in flight {}",
                shown.phase, shown.hold, shown.in_flight_events
            );
        }
        Err(text.into())
    }

    fn round(&mut self) -> Result<(), Violation> {
        self.report.rounds += 1;
        self.draws_for(JUMP);
        let round_us = if self.slow_rounds > 0 { SLOW_ROUND_US } else { self.rates.round_us };
        let mut jump = 1 + below(&mut self.random, 2 * round_us);
        if let Some(back) = self.postgres_back_us {
            jump = jump.max(back.saturating_sub(self.clock.us()) / 8);
        }
        self.clock.advance(jump);
        self.mend(self.clock.us());
        self.draws_for(LAZY);
        if self.chance(CHECKPOINT) {
            locked(&self.postgres).checkpoint();
        }
        if self.chance(SYNC_STANDBY) {
            locked(&self.postgres).sync_standby();
        }
        self.walsenders()?;
        self.store(jump);
        self.tell_stored();
        self.checker.look(&locked(&self.broker))?;
        if std::mem::take(&mut self.replaces_cluster) {
            self.replace_cluster();
        }
        self.relays();
        self.violation.take().map_or(Ok(()), Err)
    }

    fn tell_stored(&mut self) {
        if !self.tells {
            return;
        }
        let records = locked(&self.broker).stored[self.stored_until..].to_vec();
        self.stored_until += records.len();
        for record in records {
            let event = record.id.strip_prefix('e').and_then(|number| number.parse().ok());
            let (relay, sink) = record.by;
            self.tell_of(event.map_or(About::All, About::Event), || {
                let (id, topic) = (&record.id, &record.topic);
                format!("stored: {id} in {topic}, from relay {relay}, sink {sink}")
            });
        }
    }

    fn commit(&mut self) {
        let now = self.clock.unix_us();
        if !locked(&self.postgres).runs {
            return;
        }
        let changes = match below(&mut self.random, 64) {
            0 if self.rates.huge > 3 => 40 + below(&mut self.random, 60),
            0..40 => 1,
            _ => 1 + below(&mut self.random, 6),
        };
        let mut all = Vec::with_capacity(changes as usize);
        for _ in 0..changes {
            if self.chance(20) {
                all.push(Change::Other);
                continue;
            }
            let number = self.report.events + 1;
            self.report.events = number;
            let key = below(&mut self.random, KEYS + 1);
            self.report.keys.push((key < KEYS).then_some(key as u8));
            all.push(Change::Event(Event {
                number,
                key: (key < KEYS).then_some(key as u8),
                topic: below(&mut self.random, TOPICS.len() as u64) as u8,
                poison: self.chance(self.rates.poison),
            }));
        }
        locked(&self.postgres).commit(all, now);
        self.tell_committed();
    }

    fn tell_committed(&mut self) {
        if !self.tells {
            return;
        }
        let Some(transaction) = locked(&self.postgres).wal.last().cloned() else { return };
        let (xid, lsn) = (transaction.xid, transaction.commit_lsn);
        for event in transaction.events() {
            let key = event.key.map_or("no key".to_owned(), |key| format!("k{key}"));
            let poison = if event.poison { ", refused for ever" } else { "" };
            let (number, topic) = (event.number, TOPICS[usize::from(event.topic)]);
            self.tell_of(About::Event(number), || {
                format!("committed: e{number} ({key}, {topic}{poison}) by {xid} at {lsn:x}")
            });
        }
    }

    fn walsenders(&mut self) -> Result<(), Violation> {
        let now_us = self.clock.us();
        let drawn = below(&mut self.random, 256);
        let mut postgres = locked(&self.postgres);
        match drawn {
            0..4 => postgres.checkpoint(),
            4..16 => postgres.sync_standby(),
            16..24 if postgres.runs => postgres.write_other(8 * drawn),
            _ => {}
        }
        drop(postgres);
        let senders = locked(&self.postgres).walsenders.len();
        for index in (0..senders).rev() {
            self.draws_for(WALSENDER + index as u64);
            if self.chance(self.rates.send) {
                let messages = 1 + below(&mut self.random, 24) as usize;
                locked(&self.postgres).send(index, messages, now_us);
            }
            if self.chance(self.rates.deliver) {
                let bytes = 1 + below(&mut self.random, 4096) as usize;
                let (connection, relay) = {
                    let postgres = locked(&self.postgres);
                    let sender = &postgres.walsenders[index];
                    (sender.connection.clone(), sender.relay)
                };
                if connection.deliver(bytes)
                    && let Some(process) = &mut self.processes[relay]
                {
                    process.wakes_us = 0;
                }
            }
            self.serve_walsender(index, now_us)?;
        }
        Ok(())
    }

    /// Takes status updates, sends keepalives, and ends a walsender whose relay is gone.
    fn serve_walsender(&mut self, index: usize, now_us: u64) -> Result<(), Violation> {
        if self.tells {
            let lines: Vec<String> = {
                let postgres = locked(&self.postgres);
                let sender = &postgres.walsenders[index];
                let state = sender.connection.state();
                let updates = state.updates.iter();
                updates.map(|(lsn, _)| format!("relay {} reports {lsn:x}", sender.relay)).collect()
            };
            lines.into_iter().for_each(|line| self.tell_of(About::Detail, || line));
        }
        let mut postgres = locked(&self.postgres);
        let sender = &postgres.walsenders[index];
        let pid = sender.pid;
        let before = postgres.slot.as_ref().map_or(0, |slot| slot.confirmed);
        let mut updates = Vec::new();
        let (mut ends, mut wants_keepalive) = (false, false);
        {
            let connection = sender.connection.clone();
            let mut state = connection.state();
            if !state.up_is_cut {
                updates.extend(state.updates.drain(..));
                ends = state.copy_done || state.closed_by_relay;
                if state.copy_done {
                    state.closed_by_server = true;
                }
            }
        }
        for (lsn, reply) in updates {
            postgres.walsenders[index].heard_us = now_us;
            wants_keepalive |= reply;
            postgres.confirmed(pid, lsn);
        }
        let sender = &mut postgres.walsenders[index];
        let silent = now_us.saturating_sub(sender.heard_us);
        if silent > WAL_SENDER_TIMEOUT_US {
            sender.connection.time_out();
            ends = true;
        }
        let asks = silent > WAL_SENDER_TIMEOUT_US / 2;
        let is_due = now_us.saturating_sub(sender.kept_us) > 1_000_000;
        if !ends && (wants_keepalive || is_due || below(&mut self.random, 32) == 0) {
            postgres.keep_alive(index, asks, now_us);
        }
        if ends {
            postgres.end_walsender(pid);
        }
        let after = postgres.slot.as_ref().map_or(0, |slot| slot.confirmed);
        let outcome = self.checker.confirmed(&postgres, &locked(&self.broker));
        drop(postgres);
        if after > before {
            self.tell_of(About::LastOf, || format!("the slot is confirmed up to {after:x}"));
        }
        outcome
    }

    fn store(&mut self, jump_us: u64) {
        let late_us = self.clock.us().saturating_sub(UNDER_WAY_MAX_US);
        self.kafka_round(jump_us, late_us);
        locked(&self.broker).arrive(late_us);
        self.draws_for(STORE);
        if !self.chance(self.rates.store) {
            return;
        }
        let refuses = self.clock.us() < self.refuses_until_us;
        let mut broker = locked(&self.broker);
        for _ in 0..1 + below(&mut self.random, 12) {
            let takeable = broker.takeable();
            if takeable.is_empty() {
                return;
            }
            let index = takeable[below(&mut self.random, takeable.len() as u64) as usize];
            let refusal = (refuses && below(&mut self.random, 2) == 0).then(|| {
                match below(&mut self.random, 3) {
                    0 => Disposition::Delayed,
                    _ => Disposition::Transient,
                }
            });
            broker.take(index, refusal, true);
        }
    }

    fn relays(&mut self) {
        for index in 0..self.machines.len() {
            self.draws_for(RELAY + index as u64);
            if self.processes[index].is_none() {
                self.start(index);
                continue;
            }
            if self.clock.us() < self.frozen_until_us[index] {
                continue;
            }
            let has_peer = (0..self.processes.len())
                .any(|other| other != index && self.processes[other].is_some());
            let serves = self.chance(self.rates.serve);
            let steps = self.chance(self.rates.step);
            let site = Site {
                clock: &self.clock,
                postgres: &self.postgres,
                broker: &self.broker,
                counts: &self.counts,
            };
            let Some(process) = &mut self.processes[index] else { continue };
            if let Some(since) = self.suspended_since_us[index].take() {
                process.life.was_suspended(self.clock.us() - since);
            }
            if serves {
                process.serve(&site, has_peer, &mut self.random);
            }
            let unix_us = self.clock.unix_us();
            let looks = if self.is_settling { 1 } else { 64 };
            if below(&mut self.random, looks) == 0 {
                process.watch(&locked(&self.postgres), has_peer, unix_us);
            }
            let is_due = process.wakes_us <= self.clock.us();
            let ended = if steps && is_due { process.step() } else { None };
            let shown = locked(&process.shown).pass;
            let died = process.life.is_dead();
            let (in_flight, window) = (shown.in_flight_events, self.machines[index].window as u64);
            if in_flight > window {
                self.violates(format!("bounds: {in_flight} events are in flight, of {window}"));
            }
            if steps && is_due {
                locked(&self.broker).kafka.freeze(index, false);
                let (phase, hold, in_flight) = (shown.phase, shown.hold, shown.in_flight_events);
                self.tell_of(About::Detail, || {
                    format!(
                        "step of relay {index}: {phase:?}, hold {hold:?}, in flight {in_flight}"
                    )
                });
            }
            if died {
                self.died(index);
            } else if let Some(ended) = ended {
                self.ended(index, ended);
            }
        }
        self.note_holder();
    }

    fn note_holder(&mut self) {
        let begun = std::mem::take(&mut locked(&self.postgres).begun);
        for (relay, position) in begun {
            self.judge_begin(position);
            self.session_begins(relay, position);
        }
        let holder = {
            let postgres = locked(&self.postgres);
            let active = postgres.slot.as_ref().and_then(|slot| slot.active);
            let sender = postgres.walsenders.iter().find(|it| Some(it.pid) == active);
            sender.map(|it| it.relay)
        };
        if holder.is_some() && holder != self.last_holder {
            if self.last_holder.is_some() {
                self.report.takeovers += 1;
            }
            let relay = holder.unwrap_or_default();
            self.tell(|| format!("relay {relay} has the slot"));
            self.last_holder = holder;
        }
    }

    fn start(&mut self, index: usize) {
        if self.clock.us() < self.starts_us[index] {
            return;
        }
        let site = Site {
            clock: &self.clock,
            postgres: &self.postgres,
            broker: &self.broker,
            counts: &self.counts,
        };
        let seed = self.random.number();
        self.starts[index] += 1;
        self.first_sinks[index] = locked(&self.broker).sinks + 1;
        match Process::start(&self.machines[index], &site, 0, seed) {
            Ok(process) => self.processes[index] = Some(process),
            Err(fault) => panic!("a relay does not start: {fault}"),
        }
        self.tell(|| format!("relay {index} starts"));
    }

    fn died(&mut self, index: usize) {
        self.tell(|| format!("relay {index} is dead"));
        self.processes[index] = None;
        self.suspended_since_us[index] = None;
        locked(&self.broker).forget(index);
        locked(&self.broker).kafka.freeze(index, false);
        self.starts_again(index);
    }

    fn starts_again(&mut self, index: usize) {
        let pause = below(&mut self.random, 3_000_000);
        self.starts_us[index] = self.clock.us() + pause;
    }

    fn ended(&mut self, index: usize, ended: Result<(), Fault>) {
        self.processes[index] = None;
        locked(&self.broker).forget(index);
        if let Err(fault) = ended {
            self.tell(|| format!("relay {index} stops: {} ({})", fault.what, fault.code));
            self.report.stops.push(fault.code);
            self.judge_stop(&fault);
            if fault.exit == Exit::Slot || fault.doubt.is_some() {
                // A person looks, and acknowledges what Postgres says now.
                let mut kept = locked(&self.machines[index].kept);
                (kept.last, kept.stop, kept.publication) = (None, None, None);
                self.gap = None;
            }
        } else {
            self.report.drained += 1;
            self.judge_end(index);
            self.tell(|| format!("relay {index} has ended"));
        }
        self.starts_again(index);
    }

    /// Postgres sends again what the slot has not confirmed. A process that has sent it itself knows it,
    /// except what its last sink was not answered; what another has sent may be sent once more.
    fn session_begins(&mut self, relay: usize, position: u64) {
        let (postgres, broker) = (locked(&self.postgres), locked(&self.broker));
        let identity = (relay, self.starts[relay], postgres.timeline);
        // Where there is a peer, a relay may not know whether that had the slot in between.
        let is_alone = self.machines.len() == 1;
        let allowed = if self.last_session != Some(identity) || !is_alone {
            let in_hand = self.machines[relay].window as u64 + SLACK;
            self.checker.stored_since(&postgres, &broker, position) + in_hand
        } else if self.last_sinks != broker.sinks {
            self.machines[relay].window as u64 + SLACK
        } else {
            0
        };
        self.checker.allowed_repeats += allowed;
        self.last_session = Some(identity);
        self.last_sinks = broker.sinks;
    }

    fn mend(&mut self, now_us: u64) {
        if self.postgres_back_us.take_if(|at| *at <= now_us).is_some() {
            locked(&self.postgres).start_again();
            self.tell(|| "postgres runs again".to_owned());
        }
        if self.published_again_us.take_if(|at| *at <= now_us).is_some() {
            locked(&self.postgres).set_publishes(true);
            self.tell(|| "the table is published again".to_owned());
        }
        if self.broker_back_us.take_if(|at| *at <= now_us).is_some() {
            locked(&self.broker).is_away = false;
            self.tell(|| "the broker is back".to_owned());
        }
        if self.silent_until_us.take_if(|at| *at <= now_us).is_some() {
            locked(&self.broker).silent_topic = None;
            locked(&self.broker).kafka.end_silence();
            self.tell(|| "the topic answers again".to_owned());
        }
        if self.topic_back_us.take_if(|at| *at <= now_us).is_some() {
            locked(&self.broker).kafka.create_missing();
        }
    }

    fn fault(&mut self) {
        let kind = self.kinds[below(&mut self.random, self.kinds.len() as u64) as usize];
        let index = below(&mut self.random, self.machines.len() as u64) as usize;
        let mut soon_us = self.clock.us() + 1 + below(&mut self.random, 4_000_000);
        if below(&mut self.random, 4) == 0 {
            self.slow_rounds = below(&mut self.random, SLOW_ROUNDS_MAX);
            soon_us += below(&mut self.random, LONG_US);
        }
        let planned = self.planned - 1;
        self.report.happened.push((planned, kind));
        self.tell(|| format!("fault {planned}: {kind:?}{}", kind.concerns(index)));
        match kind {
            FaultKind::Kill
            | FaultKind::Stop
            | FaultKind::Freeze
            | FaultKind::ClockStep
            | FaultKind::MachineRestart => self.process_fault(kind, index, soon_us),
            FaultKind::EndWalsender
            | FaultKind::ResetConnection
            | FaultKind::CutDown
            | FaultKind::CutUp
            | FaultKind::CutBoth => self.connection_fault(kind),
            FaultKind::PostgresCrash
            | FaultKind::Failover
            | FaultKind::FailoverBehind
            | FaultKind::Restore
            | FaultKind::SlotAdvanced
            | FaultKind::SlotRecreated
            | FaultKind::Unpublished => self.postgres_fault(kind, soon_us),
            FaultKind::OtherCluster => self.replaces_cluster = true,
            FaultKind::BrokerAway
            | FaultKind::SinkBroken
            | FaultKind::Refusals
            | FaultKind::SilentTopic => self.broker_fault(kind, soon_us),
            _ => self.kafka_fault(kind, soon_us),
        }
    }

    fn process_fault(&mut self, kind: FaultKind, index: usize, soon_us: u64) {
        let fuse = below(&mut self.random, 40) as u32;
        let step = below(&mut self.random, 20_000_000) as i64 - 10_000_000;
        let boot = self.random.number();
        let length = below(&mut self.random, 15_000_000);
        let Some(process) = &self.processes[index] else { return };
        match kind {
            FaultKind::Kill => process.life.dies_after(fuse),
            FaultKind::Stop => {
                process.stop();
                self.asks_to_stop(index);
            }
            FaultKind::Freeze => {
                self.frozen_until_us[index] = soon_us + length;
                if boot.is_multiple_of(2) {
                    self.suspended_since_us[index].get_or_insert(self.clock.us());
                }
                locked(&self.broker).kafka.freeze(index, true);
            }
            FaultKind::ClockStep => process.life.set_clock_ahead(step),
            FaultKind::MachineRestart => {
                if let Some(file) = &self.machines[index].state_file {
                    file.set_boot(Some(boot));
                }
                process.life.die();
                self.died(index);
            }
            _ => {}
        }
    }

    fn connection_fault(&mut self, kind: FaultKind) {
        let mut postgres = locked(&self.postgres);
        let Some(sender) = postgres.walsenders.last_mut() else { return };
        let pid = sender.pid;
        let mut connection = sender.connection.clone();
        match kind {
            FaultKind::EndWalsender => {
                connection.end();
                postgres.end_walsender(pid);
            }
            FaultKind::ResetConnection => {
                connection.state().is_reset = true;
                postgres.end_walsender(pid);
            }
            FaultKind::CutDown => connection.state().down_is_cut = true,
            FaultKind::CutUp => connection.state().up_is_cut = true,
            _ => {
                let mut state = connection.state();
                (state.down_is_cut, state.up_is_cut) = (true, true);
            }
        }
    }

    fn postgres_fault(&mut self, kind: FaultKind, soon_us: u64) {
        let back = 1 + below(&mut self.random, 6) as usize;
        let mut postgres = locked(&self.postgres);
        if !postgres.runs {
            return;
        }
        match kind {
            FaultKind::PostgresCrash => {
                postgres.crash();
                self.postgres_back_us = Some(soon_us + DOWN_MIN_US);
                self.checker.went_back();
            }
            FaultKind::Failover => {
                postgres.fail_over();
                self.postgres_back_us = Some(soon_us + DOWN_MIN_US);
                self.checker.went_back();
            }
            FaultKind::Restore | FaultKind::FailoverBehind => {
                let gone = match kind {
                    FaultKind::Restore => postgres.restore(back),
                    _ => postgres.fail_over_behind(back),
                };
                if self.tells {
                    for it in &gone {
                        let numbers: Vec<u64> = it.events().map(|event| event.number).collect();
                        let (at_us, lsn) = (self.clock.us(), it.commit_lsn);
                        let text = format!("gone: {numbers:?} by {} at {lsn:x}", it.xid);
                        let line = Line { at_us, about: About::All, text };
                        self.report.story.push(line);
                    }
                }
                self.postgres_back_us = Some(soon_us + DOWN_MIN_US);
                let events = gone.iter().flat_map(|it| it.events().map(|event| event.number));
                self.checker.excused.extend(events.collect::<Vec<_>>());
                self.checker.went_back();
            }
            FaultKind::SlotRecreated => {
                let end = postgres.end;
                if postgres.recreate_slot() {
                    self.checker.excuse_before(&postgres, end);
                }
            }
            FaultKind::Unpublished => {
                if postgres.publishes {
                    postgres.set_publishes(false);
                    self.published_again_us = Some(soon_us);
                    let remembers = |it: &Machine| {
                        it.state_file.is_some() && locked(&it.kept).publication.is_some()
                    };
                    self.gap =
                        self.machines.iter().all(remembers).then_some(self.report.stops.len());
                }
            }
            _ => {
                let end = postgres.end;
                let is_free = postgres.slot.as_ref().is_some_and(|slot| slot.active.is_none());
                if is_free && let Some(slot) = &mut postgres.slot {
                    (slot.confirmed, slot.on_disk) = (end, end);
                    self.checker.excuse_before(&postgres, end);
                }
            }
        }
    }

    fn broker_fault(&mut self, kind: FaultKind, soon_us: u64) {
        let topic = TOPICS[below(&mut self.random, TOPICS.len() as u64) as usize];
        let stores = below(&mut self.random, 2) == 0;
        let mut broker = locked(&self.broker);
        match kind {
            FaultKind::BrokerAway => {
                broker.go_away();
                self.broker_back_us = Some(soon_us);
            }
            FaultKind::SinkBroken => {
                // The broker has some of it, and says nothing of that.
                let sinks: Vec<u64> = broker.inbox.iter().map(|publish| publish.sink).collect();
                while !broker.inbox.is_empty() && !broker.is_away {
                    if stores {
                        broker.take(0, None, false);
                    } else {
                        broker.inbox.pop_front();
                    }
                }
                broker.broken.extend(sinks);
            }
            FaultKind::Refusals => self.refuses_until_us = soon_us,
            _ => {
                broker.silent_topic = Some(topic.to_owned());
                broker.kafka.silence(topic, true);
                self.silent_until_us = Some(soon_us);
            }
        }
    }
}

fn below(random: &mut Random, bound: u64) -> u64 {
    random.number() % bound.max(1)
}

fn digest(broker: &Broker) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for record in &broker.stored {
        for byte in record.id.bytes().chain(record.topic.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash ^= record.stored_unix_us as u64;
    }
    hash
}
