//! Work of the relays in a round, their begin and their end.

use walrelay_core::health::Pass;
use walrelay_core::source::progress::Signature;

use super::*;
use crate::scenarios::Reading;

/// Postgres has ended its session, and a peer may have the slot.
const UNHEARD: &str = "its walsender has waited too long for it";

impl World {
    pub(super) fn relays(&mut self) {
        for index in 0..self.machines.len() {
            self.draw_for(RELAY + index as u64);
            if self.processes[index].is_none() {
                self.start(index);
                continue;
            }
            if self.clock.us() < self.frozen_until_us[index] {
                continue;
            }
            let serves = self.chance(self.rates.serve);
            let steps = self.chance(self.rates.step);
            let site = Site {
                clock: &self.clock,
                postgres: &self.postgres,
                broker: &self.broker,
                counts: &self.counts,
                is_cut_off: self.script.cut_host == Some(index),
            };
            let Some(process) = &mut self.processes[index] else { continue };
            if let Some(since) = self.suspended_since_us[index].take() {
                process.life.suspended_for(self.clock.us() - since);
            }
            if serves {
                process.serve(&site, &mut self.random);
            }
            let unix_us = self.clock.unix_us();
            let looks = if self.is_settling {
                self.report.rounds.is_multiple_of(WATCH_EVERY)
            } else {
                below(&mut self.random, 64) == 0
            };
            if looks && !site.is_cut_off {
                process.watch(&mut locked(&self.postgres), unix_us);
            }
            let is_dead = process.life.is_dead();
            if steps && process.wakes_us <= self.clock.us() {
                self.step(index);
            } else if is_dead {
                self.died(index);
            }
        }
        self.note_holder();
    }

    /// A process has noted whom it has seen; or confirmed over SQL what it has published, and does not know that
    /// a peer may have published it again.
    fn note_step(&mut self, index: usize, died: bool) {
        let mut postgres = locked(&self.postgres);
        if !died {
            postgres.remember_peers(index);
        }
        if let Some(position) = postgres.confirmed_unknowing.take() {
            self.checker.pass_over_published(&postgres, position);
        }
    }

    fn step(&mut self, index: usize) {
        let is_cut_off = self.script.cut_host == Some(index);
        let is_followed = is_cut_off && self.last_holder != Some(index);
        let is_unheard = self.is_unheard(index);
        let Some(process) = &mut self.processes[index] else { return };
        // What waits in the Kafka sink still goes to its client.
        let has_ended = self.sink != SinkKind::Kafka && process.has_ended_session();
        let must_not_send = is_followed || is_unheard || has_ended;
        let (blocked, sent) = {
            let broker = locked(&self.broker);
            (broker.rabbitmq.is_known_to_block(index), broker.sent[index])
        };
        let ended = process.step();
        let shown = locked(&process.shown).pass;
        let died = process.life.is_dead();
        let (blocks, has_sent) = {
            let mut broker = locked(&self.broker);
            broker.freeze(index, false);
            let blocks = blocked && broker.rabbitmq.is_known_to_block(index);
            (blocks, broker.sent[index] > sent)
        };
        if must_not_send && has_sent {
            let why = match () {
                () if is_followed => "a peer has the slot",
                () if is_unheard => UNHEARD,
                () => "its session has ended",
            };
            self.violate_fence(why);
        }
        self.note_step(index, died);
        self.judge_window(index, shown.in_flight_events);
        if blocks && shown.sink_reachable && !died {
            let what = "status: the broker takes no messages, and is shown as one that does";
            self.violate(what.to_owned());
        }
        self.tell_step(index, &shown);
        if died {
            self.died(index);
        } else if let Some(ended) = ended {
            self.ended(index, ended);
        }
    }

    /// Postgres has given up the session of a relay because it has not heard the relay.
    fn is_unheard(&self, index: usize) -> bool {
        locked(&self.postgres).unheard.contains(&index)
    }

    /// The threads of connections have sent events since each relay had sent so many.
    pub(super) fn judge_sent(&mut self, before: [u64; RELAYS_MAX]) {
        let sent = locked(&self.broker).sent;
        for index in 0..self.processes.len() {
            if sent[index] > before[index] && self.is_unheard(index) {
                self.violate_fence(UNHEARD);
            }
        }
    }

    fn violate_fence(&mut self, why: &str) {
        self.violate(format!("fence: a relay sends events although {why}"));
    }

    fn tell_step(&mut self, index: usize, shown: &Pass) {
        let Pass { phase, hold, in_flight_events: in_flight, .. } = *shown;
        self.tell_of(About::Detail, || {
            format!("step of relay {index}: {phase:?}, hold {hold:?}, in flight {in_flight}")
        });
    }

    /// Postgres notices the end of a process, unless no packet of its host arrives.
    fn end_sql_session(&self, relay: usize) {
        let mut postgres = locked(&self.postgres);
        postgres.forget_peers(relay);
        if self.script.cut_host != Some(relay) {
            postgres.sessions.remove(&relay);
        }
    }

    fn judge_window(&mut self, relay: usize, in_flight: u64) {
        let window = self.machines[relay].window as u64;
        if in_flight > window {
            self.violate(format!("bounds: {in_flight} events are in flight, of {window}"));
        }
    }

    pub(super) fn note_holder(&mut self) {
        let (begun, holder) = {
            let mut postgres = locked(&self.postgres);
            let active = postgres.slot.as_ref().and_then(|slot| slot.active);
            let sender = postgres.walsenders.iter().find(|it| Some(it.pid) == active);
            let holder = sender.map(|it| it.relay);
            (std::mem::take(&mut postgres.begun), holder)
        };
        for (relay, position) in begun {
            self.judge_begin(position);
            self.judge_last_place(relay);
            self.judge_restored(relay);
            self.note_session(relay, position);
        }
        if holder.is_some() && holder != self.last_holder {
            if self.last_holder.is_some() {
                self.report.takeovers += 1;
            }
            let relay = holder.unwrap_or_default();
            self.tell(|| format!("relay {relay} has the slot"));
            self.last_holder = holder;
        }
    }

    pub(super) fn start(&mut self, index: usize) {
        let waits_for_broker = self.sink == SinkKind::Rabbitmq && !locked(&self.broker).lets_in();
        if self.clock.us() < self.starts_us[index] || waits_for_broker {
            return;
        }
        let site = Site {
            clock: &self.clock,
            postgres: &self.postgres,
            broker: &self.broker,
            counts: &self.counts,
            is_cut_off: false,
        };
        let seed = self.random.number();
        self.starts[index] += 1;
        self.first_sinks[index] = locked(&self.broker).sinks + 1;
        // No two relays have the same, and no two processes that follow each other.
        let signature = Signature::drawn(index as u64 * 9 + u64::from(self.starts[index] % 9));
        match Process::start(&self.machines[index], &site, signature, seed) {
            Ok(process) if !self.is_acknowledged(&process) => return self.start_again(index),
            Ok(process) => {
                self.script.found_last[index] = process.stops.last_place();
                self.processes[index] = Some(process);
            }
            Err(fault) => panic!("a relay does not start: {fault}"),
        }
        self.tell(|| format!("relay {index} starts"));
    }

    /// A person looks at the stop that stands, if one does, and acknowledges it where Postgres is in
    /// order.
    fn is_acknowledged(&mut self, process: &Process) -> bool {
        let stops = &process.stops;
        if stops.standing().is_none() {
            return true;
        }
        let is_acknowledged = stops.resume("operator", "the gap is known", None).is_ok();
        if is_acknowledged {
            self.gap_is_known();
        }
        is_acknowledged
    }

    fn gap_is_known(&mut self) {
        locked(&self.postgres).published_again = None;
        self.gap = None;
    }

    pub(super) fn died(&mut self, index: usize) {
        self.tell(|| format!("relay {index} is dead"));
        self.processes[index] = None;
        self.end_sql_session(index);
        self.pay(index);
        self.suspended_since_us[index] = None;
        locked(&self.broker).forget(index);
        locked(&self.broker).freeze(index, false);
        self.start_again(index);
    }

    pub(super) fn start_again(&mut self, index: usize) {
        let pause = below(&mut self.random, 3_000_000);
        self.starts_us[index] = self.clock.us() + pause;
    }

    pub(super) fn ended(&mut self, index: usize, ended: Result<(), Fault>) {
        self.digest.number(self.clock.us());
        self.digest.bytes(ended.as_ref().map_or_else(|fault| fault.code, |()| "").as_bytes());
        let process = self.processes[index].take();
        self.pay(index);
        locked(&self.broker).forget(index);
        if let Err(fault) = ended {
            self.tell(|| format!("relay {index} stops: {} ({})", fault.what, fault.code));
            self.report.stops.push(fault.code);
            let had_seen_peer = process.as_ref().is_some_and(Process::had_seen_peer);
            self.judge_stop(&fault, had_seen_peer);
            if (fault.exit == Exit::Slot || fault.doubt.is_some())
                && let Some(process) = process
            {
                process.stops.keep(&fault);
                if self.is_acknowledged(&process) {
                    self.gap_is_known();
                }
            }
        } else {
            self.report.drained += 1;
            self.judge_end(index, process.as_ref().is_some_and(Process::has_closed_session));
            self.tell(|| format!("relay {index} has ended"));
        }
        self.end_sql_session(index);
        self.start_again(index);
    }

    /// Postgres sends again what the slot has not confirmed. A process that has sent it itself knows it,
    /// except what its last sink was not answered; what another has sent may be sent once more.
    pub(super) fn note_session(&mut self, relay: usize, position: u64) {
        let (mut postgres, mut broker) = (locked(&self.postgres), locked(&self.broker));
        // A crash may have taken back what shows that another relay has had the slot: one that has never seen
        // it believes the marks of its state file.
        let has_lost_trace = postgres.note_begun(relay) && self.machines.len() > 1;
        let has_marks = self.machines[relay].state_file.is_some();
        if has_lost_trace && has_marks && !postgres.knows_peer(relay) {
            self.checker.pass_over_published(&postgres, position);
        }
        let identity = (relay, self.starts[relay], postgres.timeline);
        // Where there is a peer, a relay may not know whether that had the slot in between.
        let has_seen_peer = postgres.has_seen_peer(relay) || postgres.knows_peer(relay);
        let is_alone = self.machines.len() == 1 && !has_seen_peer;
        // Nothing is repeated that was stored before the topics were read, or was answered.
        let is_silent = broker.silent_topic.is_some();
        let is_whole = broker.reading == Reading::Whole && self.script.anew.is_none() && !is_silent;
        let reads_all = self.machines[relay].reads_topics && is_whole;
        let is_direct = self.sink == SinkKind::Direct;
        let unanswered = std::mem::take(&mut broker.unanswered);
        let allowed = if is_direct && reads_all {
            broker.inbox.len() as u64
        } else if is_direct && is_alone && self.last_session == Some(identity) {
            unanswered
        } else if self.last_session != Some(identity) || !is_alone {
            let is_alive =
                |it: (usize, u32, u32)| self.processes[it.0].is_some() && self.starts[it.0] == it.1;
            let in_hand = match self.sink {
                // Nothing else is left of a process that is gone.
                SinkKind::Rabbitmq if !self.last_session.is_some_and(is_alive) => {
                    broker.rabbitmq.under_way()
                }
                _ => self.machines[relay].window as u64 + SLACK,
            };
            // On another timeline everything counts as new, and the sink still has what it had.
            let is_other = self.last_session.is_some_and(|it| it.2 != postgres.timeline);
            let anew = if is_other { self.machines[relay].window as u64 } else { 0 };
            self.checker.stored_since(&postgres, &broker, position) + in_hand + anew
        } else if self.last_sinks != broker.sinks && self.sink != SinkKind::Rabbitmq {
            self.machines[relay].window as u64 + SLACK
        } else {
            0
        };
        self.last_sinks = broker.sinks;
        drop((postgres, broker));
        self.checker.allowed_repeats += allowed;
        self.tell_of(About::Detail, || format!("{allowed} events may be sent again"));
        self.last_session = Some(identity);
    }
}
