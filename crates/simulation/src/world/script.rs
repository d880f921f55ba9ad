//! Plays the script of a scenario, and what is asked of the relays that meet it.

use std::collections::{BTreeMap, VecDeque};

use walrelay_core::base::lsn::Lsn;
use walrelay_core::relay::control::SystemTimeline;

use super::*;
use crate::broker::{DEAD_LETTERS, Record};
use crate::scenarios::{Act, Play, Reading, Stage, Step, Until, Who};
use crate::surroundings::remembered;

/// The faults of a script have the indexes from here on.
const FIRST_FAULT: u32 = 100;
/// After so many rounds of waiting, some are long.
const HURRY_AFTER: u64 = 80;
/// A step is made even if what it waits for does not come.
const STEP_ROUNDS_MAX: u64 = 600;
/// How many sinks a relay opens because a topic refuses its events: after the first refusal the topic is known.
const SINKS_OF_A_FORBIDDEN_TOPIC: u64 = 4;
/// How many times as many events as may be unsettled may be in flight, settled ones included.
const SPAN_FACTOR: usize = 4;
/// A window of more than any but one for many events.
const MANY: usize = 64;
/// A time for a step that does not start by itself.
const LATE: u64 = 1 << 50;

/// Where a script stands.
#[derive(Default)]
pub(super) struct Script {
    pub(super) stage: Stage,
    steps: VecDeque<Step>,
    /// The index of the next fault.
    next: u32,
    has_begun: bool,
    holder: usize,
    since_round: u64,
    since_stored: usize,
    owed: Option<Owed>,
    /// Where the last process of each relay has read, as its present one has found it.
    pub(super) found_last: Vec<Option<(SystemTimeline, Lsn)>>,
    /// The topic that was made anew, when so many records were stored.
    pub(super) anew: Option<(&'static str, usize)>,
    /// When dead letters were stored.
    letters: Vec<(String, u64)>,
    held_topic: Option<&'static str>,
    /// How many sinks had been opened when that topic was held.
    sinks_when_held: u64,
    /// How many records were stored when the others were judged last.
    others_had: usize,
    /// This relay gets nothing through to Postgres, nor hears of it.
    pub(super) cut_host: Option<usize>,
    /// A relay, its start, and the last of what it had published that a restore has undone.
    published_until: Option<(usize, u32, u64)>,
}

/// A stop that a relay must make, or have died before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    relay: usize,
    start: u32,
    code: &'static str,
}

impl Script {
    pub(super) fn new(play: Option<Play>, relays: usize) -> Script {
        let found_last = vec![None; relays];
        let Some(Play { stage, steps }) = play else {
            return Script { found_last, ..Script::default() };
        };
        let steps = steps.into();
        Script { stage, steps, next: FIRST_FAULT, found_last, ..Script::default() }
    }

    /// Another history makes no sense of it.
    pub(super) fn forgive(&mut self) {
        self.owed = None;
    }

    /// Steps are left.
    pub(super) fn goes_on(&self) -> bool {
        !self.steps.is_empty()
    }

    pub(super) fn is_still(&self) -> bool {
        self.has_begun && self.stage.is_still && (self.goes_on() || self.stage.is_last)
    }
}

impl World {
    pub(super) fn play_script(&mut self) {
        let begins = self.report.events >= self.script.stage.begins_at.min(self.target);
        if !self.script.goes_on() || !self.script.has_begun && !begins {
            return;
        }
        if !std::mem::replace(&mut self.script.has_begun, true) {
            self.script.holder = self.last_holder.unwrap_or(0);
            self.step_made();
        }
        while let Some(Step { until, act }) = self.script.steps.front().copied() {
            let is_late = self.report.rounds - self.script.since_round > STEP_ROUNDS_MAX;
            if !is_late && !self.is_reached(until) {
                // Where little happens, time passes.
                let waited = self.report.rounds - self.script.since_round;
                let hurries = waited > HURRY_AFTER && waited.is_multiple_of(8);
                self.slow_rounds = self.slow_rounds.max(u64::from(hurries));
                return;
            }
            self.script.steps.pop_front();
            self.draw_for(SCRIPT + u64::from(self.script.next));
            self.act(act);
            self.step_made();
        }
        if self.script.stage.is_last {
            self.target = self.report.events;
        }
    }

    fn step_made(&mut self) {
        self.script.since_round = self.report.rounds;
        self.script.since_stored = locked(&self.broker).stored.len();
    }

    fn is_reached(&self, until: Until) -> bool {
        match until {
            Until::Rounds(rounds) => self.report.rounds >= self.script.since_round + rounds,
            Until::Stored(records) => {
                let stored = locked(&self.broker).stored.len();
                stored >= self.script.since_stored + records as usize
            }
            Until::Traced => {
                let postgres = locked(&self.postgres);
                let is_traced = |state: &crate::network::State| {
                    state.updates.iter().any(|(position, _)| !position.is_multiple_of(8))
                };
                postgres.walsenders.iter().any(|it| is_traced(&it.connection.state()))
            }
            Until::Quiet => self.checker.all_settled(&locked(&self.postgres)),
            Until::Runs => locked(&self.postgres).runs,
            Until::Session(who) => {
                let relay = self.who(who);
                let postgres = locked(&self.postgres);
                let active = postgres.slot.as_ref().and_then(|slot| slot.active);
                let sender = postgres.walsenders.iter().find(|it| Some(it.pid) == active);
                sender.is_some_and(|it| it.relay == relay)
            }
        }
    }

    fn who(&self, who: Who) -> usize {
        match who {
            Who::Holder => self.script.holder,
            Who::Peer => (self.script.holder + 1) % self.machines.len(),
        }
    }

    /// Whether a fault happens: each has an index, and may be left out.
    fn happens(&mut self, kind: FaultKind) -> bool {
        self.script.next += 1;
        let index = self.script.next - 1;
        let happens = self.options.keeps(index);
        if happens {
            self.report.happened.push((index, kind));
            self.tell(|| format!("fault {index}: {kind:?}"));
        }
        happens
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Fault(kind) if self.happens(kind) => {
                let soon_us = self.clock.us() + 1 + below(&mut self.random, 1_000_000);
                let relay = self.script.holder;
                self.strike(kind, relay, soon_us);
            }
            Act::Last(kind) if self.happens(kind) => self.strike(kind, self.script.holder, LATE),
            Act::Kill(who) if self.happens(FaultKind::Kill) => self.kill(who),
            Act::Start(who) => {
                let relay = self.who(who);
                self.starts_us[relay] = self.starts_us[relay].min(self.clock.us());
                if self.processes[relay].is_none() {
                    // What the last process has sent arrives before the next one sends.
                    locked(&self.broker).arrive(|publish| publish.relay == relay);
                }
            }
            Act::Pause(who) if self.happens(FaultKind::Freeze) => {
                self.freeze(who, self.clock.us() + 4_000_000);
            }
            Act::Freeze(who) if self.happens(FaultKind::Freeze) => self.freeze(who, LATE),
            Act::GoOn(who) => {
                let relay = self.who(who);
                self.frozen_until_us[relay] = 0;
            }
            Act::Sleep(who) if self.happens(FaultKind::Freeze) => self.suspend(who),
            Act::BrokerAway if self.happens(FaultKind::BrokerAway) => {
                locked(&self.broker).go_away();
                self.broker_back_us = Some(LATE);
            }
            Act::CutHost(who) if self.happens(FaultKind::CutBoth) => {
                let relay = self.who(who);
                self.script.cut_host = Some(relay);
                self.connection_fault(FaultKind::CutBoth);
            }
            Act::HealHost => self.script.cut_host = None,
            Act::HoldTopic => self.hold_topic(),
            Act::JudgeOthers => self.judge_others(),
            Act::Wait => {}
            Act::Mend => self.mend(u64::MAX),
            Act::Slow(rounds) => self.slow_rounds = rounds,
            Act::EndSessions if self.happens(FaultKind::EndWalsender) => {
                self.end_sessions();
            }
            Act::LosesReports(loses) => {
                let loses = loses && self.happens(FaultKind::CutUp);
                locked(&self.postgres).loses_reports = loses;
            }
            Act::Commits(transactions) => (0..transactions).for_each(|_| self.commit()),
            Act::Commit { changes, has_events } => self.commit_of(changes, has_events),
            Act::Read(Reading::Fails) if !self.has_forgotten_marks() => {}
            Act::Read(reading) => locked(&self.broker).reading = reading,
            Act::TopicAnew if self.happens(FaultKind::TopicRecreated) => self.topic_anew(),
            Act::MachineLost if self.happens(FaultKind::MachineRestart) => self.machine_lost(),
            Act::Unpublish if self.happens(FaultKind::Unpublished) => {
                if let Some(file) = &self.machines[self.script.holder].state_file {
                    remembered(file, |it| it.publication = None);
                }
                locked(&self.postgres).set_publishes(false);
            }
            Act::Publish => self.publish(),
            _ => {}
        }
    }

    fn freeze(&mut self, who: Who, until_us: u64) {
        let relay = self.who(who);
        self.frozen_until_us[relay] = until_us;
        locked(&self.broker).kafka.freeze(relay, true);
    }

    fn suspend(&mut self, who: Who) {
        self.freeze(who, LATE);
        let relay = self.who(who);
        self.suspended_since_us[relay].get_or_insert(self.clock.us());
    }

    fn end_sessions(&self) {
        let mut postgres = locked(&self.postgres);
        while let Some(sender) = postgres.walsenders.last_mut() {
            let pid = sender.pid;
            sender.connection.end();
            postgres.end_walsender(pid);
        }
    }

    fn publish(&mut self) {
        let mut postgres = locked(&self.postgres);
        if !postgres.publishes {
            postgres.set_publishes(true);
            // Nobody was there to see it, and the slot stands where it stood.
            let is_held = postgres.slot.as_ref().is_none_or(|it| it.active.is_some());
            let is_unseen = !is_held && self.processes.iter().all(Option::is_none);
            let decoded = postgres.slot.as_ref().map(|slot| slot.decoded);
            let is_told = is_unseen && postgres.is_publication_young(decoded);
            self.gap = is_told.then_some(self.report.stops.len());
        }
    }

    fn kill(&mut self, who: Who) {
        let relay = self.who(who);
        if let Some(process) = &self.processes[relay] {
            process.life.die();
            self.died(relay);
        }
        self.starts_us[relay] = LATE;
    }

    fn hold_topic(&mut self) {
        let topic = TOPICS[below(&mut self.random, TOPICS.len() as u64) as usize];
        let is_forbidden = self.sink == SinkKind::Kafka && below(&mut self.random, 2) == 0;
        let kind = if is_forbidden { FaultKind::Refusals } else { FaultKind::SilentTopic };
        if !self.happens(kind) {
            return;
        }
        let mut broker = locked(&self.broker);
        broker.kafka.queue_max = 1_000;
        if is_forbidden {
            broker.kafka.forbid(topic);
        } else {
            broker.silent_topic = Some(topic);
            broker.kafka.unlead(topic);
        }
        self.silent_until_us = Some(LATE);
        self.script.held_topic = Some(topic);
        self.script.sinks_when_held = broker.sinks;
    }

    /// Judges the other events: one that does not wait for the topic that is held, nor behind an
    /// event of its key that does, is stored, as far as the window reaches.
    fn judge_others(&mut self) {
        let Some(topic) = self.script.held_topic else { return };
        let (stored, has_letters, sinks) = {
            let broker = locked(&self.broker);
            let opened = broker.sinks - self.script.sinks_when_held;
            (broker.stored.len(), broker.logs.contains_key(DEAD_LETTERS), opened)
        };
        if sinks > SINKS_OF_A_FORBIDDEN_TOPIC {
            self.violate(format!(
                "cost: {sinks} sinks were opened, although only {topic} refuses events"
            ));
        }
        let had = std::mem::replace(&mut self.script.others_had, stored);
        // Where there are many, or the dead letters of a key are written one after the other, it is
        // enough that they go on.
        let window = self.machines[0].window;
        let goes_on = had != stored && (window > MANY || has_letters);
        if had == 0 || goes_on || self.receives() {
            return;
        }
        let postgres = locked(&self.postgres);
        let unsettled = |event: &&Event| !self.checker.is_settled(event.number);
        let all = postgres.wal.iter().flat_map(Transaction::events);
        let open = all.skip_while(|it| !unsettled(it)).take(SPAN_FACTOR * window);
        let (mut keys, mut held) = (Vec::new(), 0);
        let mut waits = None;
        for event in open.filter(unsettled) {
            let is_behind = event.key.is_some_and(|key| keys.contains(&key));
            if is_behind || TOPICS[usize::from(event.topic)] == topic {
                keys.extend(event.key);
                held += 1;
            } else if held < window && waits.is_none() {
                waits = Some(event.number);
            }
        }
        drop(postgres);
        if let Some(event) = waits.filter(|_| held < window) {
            let what = format!(
                "progress: event {event} waits, although only {held} wait for {topic}, and {window} may"
            );
            self.violation.get_or_insert(Violation { what, events: vec![event] });
        }
    }

    /// A relay takes in what comes, and more is to come. Without a session everything is.
    fn receives(&self) -> bool {
        let takes_in = |process: &Process| locked(&process.shown).pass.hold.is_none();
        let takes_in = self.processes.iter().flatten().any(takes_in);
        let postgres = locked(&self.postgres);
        let has_session = postgres.slot.as_ref().is_some_and(|slot| slot.active.is_some());
        let is_behind = postgres.walsenders.iter().any(|it| it.is_behind(&postgres.wal));
        takes_in && (is_behind || !has_session)
    }

    /// Makes the topic anew: events that the slot has not passed, and that the topic does not hold
    /// any more, must be published again by a relay that reads the topic.
    fn topic_anew(&mut self) {
        let topic = TOPICS[below(&mut self.random, TOPICS.len() as u64) as usize];
        let mut broker = locked(&self.broker);
        broker.logs.remove(topic);
        broker.inbox.clear();
        broker.kafka.recreate(topic, false);
        self.script.anew = Some((topic, broker.stored.len()));
        if self.processes.iter().all(Option::is_none) {
            self.checker.forget(&locked(&self.postgres), &broker);
        }
    }

    /// The second process behind a topic that was made anew has had confirms of what it has published
    /// again, and so does not leave the old marks to the next one.
    fn has_forgotten_marks(&self) -> bool {
        let Some((topic, since)) = self.script.anew else { return true };
        let broker = locked(&self.broker);
        let mut keys: BTreeMap<&[u8], u32> = BTreeMap::new();
        let (old, new) = broker.stored.split_at(since);
        // Of the last ones the first process may not have heard, and so has no marks.
        let window = self.machines[self.script.holder].window;
        let old = &old[..old.len().saturating_sub(window)];
        let is_again = |it: &&Record| it.topic == topic && old.iter().any(|old| old.id == it.id);
        for key in new.iter().filter(is_again).filter_map(|it| it.key) {
            *keys.entry(key).or_default() += 1;
        }
        keys.values().any(|count| *count > 2)
    }

    /// The broker is on the same machine, and has lost what it had not written to disk.
    fn machine_lost(&mut self) {
        let relay = self.script.holder;
        let boot = self.random.number();
        if let Some(file) = &self.machines[relay].state_file {
            file.set_boot(Some(boot));
        }
        self.kill(Who::Holder);
        let mut postgres = locked(&self.postgres);
        while let Some(pid) = postgres.walsenders.last().map(|it| it.pid) {
            postgres.end_walsender(pid);
        }
        let mut broker = locked(&self.broker);
        broker.inbox.clear();
        let reported = postgres.reported();
        let is_old = |number: u64| {
            let before = postgres.wal.iter().take_while(|it| it.commit_lsn < reported);
            before.flat_map(Transaction::events).any(|event| event.number == number)
        };
        for log in broker.logs.values_mut() {
            let kept = log.iter().rposition(|it| crate::checker::number(it).is_none_or(is_old));
            let kept = kept.map_or(0, |index| index + 1);
            let lost = below(&mut self.random, 1 + (log.len() - kept) as u64) as usize;
            log.truncate(log.len() - lost);
        }
        self.checker.forget(&postgres, &broker);
    }

    /// Dead letters of one relay, one process after the other. What a dead process has sent may arrive
    /// behind the look of the next one.
    pub(super) fn judge_burst(&mut self, record: &Record) {
        let (relay, sink) = record.by;
        let Some((burst_max, window)) = self.machines[relay].burst else { return };
        let is_late = self.processes[relay].is_none() || sink < self.first_sinks[relay];
        if is_late || !record.is_dead_letter() || record.is_parked() {
            return;
        }
        // What is stored within half of it was given up within all of it.
        let (now_us, window_us) = (self.clock.us(), window.as_micros() as u64 / 2);
        // The letter of an event counts once, however often it is written.
        self.script.letters.retain(|(id, at)| *at + window_us > now_us && *id != record.id);
        self.script.letters.push((record.id.clone(), now_us));
        if self.script.letters.len() > burst_max {
            let letters = self.script.letters.len();
            self.violate(format!("burst: {letters} dead letters at once, of {burst_max}"));
        }
    }

    /// A relay that has learned that a peer has the slot has taken back what was under way.
    pub(super) fn is_late(&self, record: &Record, broker: &Broker) -> bool {
        let (relay, sink) = record.by;
        broker.live.contains(&sink)
            && self.processes[relay].as_ref().is_some_and(|it| it.steps_behind > 2)
    }

    /// Whether a relay must still do something before it is judged.
    pub(super) fn is_owed(&self) -> bool {
        self.script.owed.is_some() || self.gap.is_some()
    }

    pub(super) fn owe(&mut self, relay: usize, code: &'static str) {
        let is_asked = self.asked[relay].is_some();
        // What else has happened may explain everything.
        let is_alone = self.report.happened.iter().all(|(index, _)| *index >= FIRST_FAULT);
        if !is_asked && is_alone && self.machines.len() == 1 && self.processes[relay].is_some() {
            self.script.owed = Some(Owed { relay, start: self.starts[relay], code });
        }
    }

    /// Somebody has moved the slot over events that are stored nowhere, and the relay that had it knows
    /// where it stood.
    pub(super) fn was_moved(&mut self) {
        let relay = self.script.holder;
        let identity = (relay, self.starts[relay], locked(&self.postgres).timeline);
        if self.last_session == Some(identity) {
            self.owe(relay, "slot.moved");
        }
    }

    /// Notes a restore: transactions that a relay has published are no more in the WAL, on the same
    /// timeline.
    pub(super) fn was_restored(&mut self, gone: &[Transaction]) {
        let Some((relay, start, timeline)) = self.last_session else { return };
        let is_there = self.starts[relay] == start && self.processes[relay].is_some();
        if !is_there || locked(&self.postgres).timeline != timeline {
            return;
        }
        let broker = locked(&self.broker);
        let by_it = |it: &&Record| it.by.0 == relay && it.by.1 >= self.first_sinks[relay];
        let stored: Vec<u64> =
            broker.stored.iter().filter(by_it).filter_map(crate::checker::number).collect();
        let has_stored = |it: &&Transaction| it.events().any(|it| stored.contains(&it.number));
        let last = gone.iter().rev().find(has_stored);
        self.script.published_until = last.map(|last| (relay, start, last.commit_lsn));
    }

    /// A session begins in a WAL that ends before what this relay has published.
    pub(super) fn judge_restored(&mut self, relay: usize) {
        let end = locked(&self.postgres).end;
        if let Some((of, start, position)) = self.script.published_until.take()
            && (of, start) == (relay, self.starts[relay])
            && end < position
        {
            self.owe(relay, "slot.went-back");
        }
    }

    /// A session begins: the last process has read farther than the WAL goes.
    pub(super) fn judge_last_place(&mut self, relay: usize) {
        let is_first = self.last_session.is_none_or(|(_, start, _)| start != self.starts[relay]);
        let went_back = {
            let postgres = locked(&self.postgres);
            let (system_id, timeline) = (&postgres.system_id, postgres.timeline);
            self.script.found_last[relay].as_ref().is_some_and(|(place, seen)| {
                (&place.system_id, place.timeline) == (system_id, timeline)
                    && seen.to_wire() > postgres.end
            })
        };
        if is_first && went_back {
            self.owe(relay, "slot.went-back");
        }
    }

    /// A process has ended.
    pub(super) fn pay(&mut self, relay: usize) {
        let start = self.starts[relay];
        self.script.owed.take_if(|owed| (owed.relay, owed.start) == (relay, start));
    }

    pub(super) fn judge_owed(&self) -> Result<(), Violation> {
        match self.script.owed {
            Some(Owed { code, .. }) => {
                Err(format!("stop: no relay has stopped with {code}, which it must").into())
            }
            None => Ok(()),
        }
    }
}
