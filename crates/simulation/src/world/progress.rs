//! Checks that healthy places go on while another one is in trouble.

use std::collections::BTreeSet;

use super::{SLOW_ROUND_US, World, below};
use crate::checker::number;
use crate::options::SinkKind;
use crate::postgres::{Event, KEYS, TOPICS};
use walrelay_core::base::lock::locked;
use walrelay_core::health::IntakeHold;

/// So long and so many rounds an event may wait with nothing in its way: for the sink to see that a
/// destination is silent, and for its attempts where another one refuses.
const WAITS_US: u64 = 12_000_000;
const WAITS_FOR_SILENT_US: u64 = 30_000_000;
const WAITS_ROUNDS: u64 = 60;
/// Not every round looks.
const EVERY: u64 = 16;

/// Since when the same event is the first that should go on, and what has happened by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    event: u64,
    since_us: u64,
    since_round: u64,
    happened: [u64; 6],
}

/// One of so many faults that lasts long enough for this check.
const LASTS_LONG: u64 = 6;
const LONG_ROUNDS: u64 = 200;

impl World {
    /// Some of what leaves other destinations as they are lasts long, and nothing else happens
    /// meanwhile. Returns until when.
    pub(super) fn prolong(&mut self, soon_us: u64) -> u64 {
        if below(&mut self.random, LASTS_LONG) > 0 {
            return soon_us;
        }
        self.slow_rounds = LONG_ROUNDS;
        self.quiet_until_us = self.clock.us() + LONG_ROUNDS * SLOW_ROUND_US;
        self.quiet_until_us
    }

    pub(super) fn judge_progress(&mut self) {
        if self.sink != SinkKind::Rabbitmq || !self.report.rounds.is_multiple_of(EVERY) {
            return;
        }
        let counts = self.report.rabbitmq;
        // What was in flight when a channel was closed over a message is sent one by one.
        let lost =
            counts.lost + counts.half_open + counts.closed - counts.no_exchange - counts.over_queue;
        let (now_us, round) = (self.clock.us(), self.report.rounds);
        let waiting = self.holder_in_order().and_then(|relay| self.waiting_event(relay));
        let Some(event) = waiting else {
            self.standing = None;
            return;
        };
        let sinks = locked(&self.broker).sinks;
        let happened = [
            self.report.happened.len() as u64,
            lost,
            self.session_pid(),
            sinks,
            self.stored_meanwhile(),
            self.stored_of_key(event),
        ];
        let standing = self.standing.filter(|it| it.event == event && it.happened == happened);
        let standing =
            standing.unwrap_or(Standing { event, since_us: now_us, since_round: round, happened });
        self.standing = Some(standing);
        let waited_us = now_us - standing.since_us;
        if waited_us > self.longest_wait_us() && round - standing.since_round > WAITS_ROUNDS {
            let waited_ms = waited_us / 1_000;
            self.violate(format!(
                "progress: event {event} waits for {waited_ms} ms with nothing in its way"
            ));
        }
    }

    /// Messages that may have closed a channel are sent alone, also to a silent queue, and others wait meanwhile.
    fn longest_wait_us(&self) -> u64 {
        let is_alone = self.report.rabbitmq.closed > 0;
        let is_silent = locked(&self.broker).rabbitmq.has_silent_queue();
        if is_alone && is_silent { WAITS_FOR_SILENT_US } else { WAITS_US }
    }

    fn session_pid(&self) -> u64 {
        let postgres = locked(&self.postgres);
        let active = postgres.slot.as_ref().and_then(|slot| slot.active);
        active.map_or(0, i32::unsigned_abs).into()
    }

    /// Where connections are closed again and again because an exchange is missing, or where messages are
    /// sent one by one since a channel was closed over one, it is enough that anything is stored.
    fn stored_meanwhile(&self) -> u64 {
        let broker = locked(&self.broker);
        let is_slow = broker.rabbitmq.misses_exchange() || self.report.rabbitmq.closed > 0;
        if is_slow { broker.stored.len() as u64 } else { 0 }
    }

    /// How much is stored of the key of this event: a relay that has taken over repeats what it does not
    /// know to be stored, one after the other.
    fn stored_of_key(&self, event: u64) -> u64 {
        let key_of = |event: u64| self.report.keys.get(event as usize - 1).copied().flatten();
        let key = key_of(event);
        let broker = locked(&self.broker);
        let numbers = broker.stored.iter().filter_map(number);
        numbers.filter(|it| key.is_some() && key_of(*it) == key).count() as u64
    }

    /// The relay that has the slot, if nothing is wrong between it, Postgres and the broker.
    fn holder_in_order(&self) -> Option<usize> {
        let now_us = self.clock.us();
        let postgres = locked(&self.postgres);
        let active = postgres.slot.as_ref()?.active?;
        let sender = postgres.walsenders.iter().find(|it| it.pid == active)?;
        let (relay, connection) = (sender.relay, sender.connection.clone());
        let is_published = postgres.runs && postgres.publishes;
        drop(postgres);
        let is_cut = {
            let state = connection.state();
            state.down_is_cut || state.up_is_cut || state.closed_by_relay || state.is_reset
        };
        let broker = locked(&self.broker);
        let is_well = !broker.is_away
            && broker.rabbitmq.is_well(relay)
            && now_us >= self.refuses_until_us
            && self.rabbitmq.is_prompt(now_us);
        let is_stopping = self.asked[relay].is_some();
        let process = self.processes[relay].as_ref()?;
        let is_awake = now_us >= self.frozen_until_us[relay];
        // It shows that it waits until another relay must have noticed its session.
        let hold = locked(&process.shown).pass.hold;
        let waits_for_peer = self.machines.len() > 1 && hold == Some(IntakeHold::TraceAwaited);
        (is_published && !is_cut && is_well && is_awake && !is_stopping && !waits_for_peer)
            .then_some(relay)
    }

    /// The oldest event that is not settled, not behind an event of its key that is, and not for a
    /// destination that is silent.
    fn waiting_event(&self, relay: usize) -> Option<u64> {
        let (postgres, broker) = (locked(&self.postgres), locked(&self.broker));
        // Where there can be no more channels, destinations share them. An exchange that is declared again is
        // tried now and then, because each close sends again what the silent queue has not answered.
        let is_tried_late = self.report.rabbitmq.no_exchange > 0;
        let may_wait = is_tried_late || broker.rabbitmq.shares_channels(relay);
        if broker.rabbitmq.has_silent_queue() && may_wait {
            return None;
        }
        let confirmed = postgres.slot.as_ref()?.confirmed;
        let events = postgres.sent_from(confirmed).iter().flat_map(|it| it.events());
        // What is held, or waits for its next attempt, may be an event that Postgres has lost since.
        let place_of = |key: &[u8]| KEYS.iter().position(|it| *it == key).map(|it| it as u8);
        let keys = broker.rabbitmq.held().filter_map(|record| record.key);
        let mut held: BTreeSet<u8> = keys.filter_map(place_of).collect();
        let may_not_store =
            |topic| broker.rabbitmq.is_troubled(topic) || broker.rabbitmq.is_in_doubt(topic);
        let waits = |it: &&Event| {
            may_not_store(TOPICS[usize::from(it.topic)]) && !self.checker.is_stored(it.number)
        };
        held.extend(self.checker.gone.iter().filter(waits).filter_map(|it| it.key));
        for event in events.take((self.machines[relay].window / 2).max(1)) {
            // What is stored may be in flight again, and what is refused waits for its attempts.
            let topic = TOPICS[usize::from(event.topic)];
            let rabbitmq = &broker.rabbitmq;
            if event.poison || may_not_store(topic) {
                held.extend(event.key);
            } else if !self.checker.is_settled(event.number)
                && event.key.is_none_or(|key| !held.contains(&key))
            {
                if !rabbitmq.holds(&format!("e{}", event.number)) {
                    return Some(event.number);
                }
                // It has shared the channel of the silent queue.
                held.extend(event.key);
            }
        }
        None
    }
}
