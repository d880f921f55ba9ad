//! Faults of processes, connections, Postgres and the broker, and their ends.

use walrelay_core::sink::rabbitmq::connection_loss::ConnectionLoss;

use super::*;
use crate::rabbitmq::Trouble;
use crate::surroundings::remembered;

impl World {
    pub(super) fn mend(&mut self, now_us: u64) {
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
            locked(&self.broker).rabbitmq.end_troubles(Trouble::Silent);
            self.tell(|| "the topic answers again".to_owned());
        }
        if self.sink == SinkKind::Rabbitmq {
            self.mend_rabbitmq(now_us);
        }
        if self.topic_back_us.take_if(|at| *at <= now_us).is_some() {
            locked(&self.broker).kafka.create_missing();
        }
    }

    pub(super) fn fault(&mut self) {
        let kind = self.kinds[below(&mut self.random, self.kinds.len() as u64) as usize];
        let index = below(&mut self.random, self.machines.len() as u64) as usize;
        let mut soon_us = self.clock.us() + 1 + below(&mut self.random, 4_000_000);
        if below(&mut self.random, 4) == 0 {
            self.slow_rounds = below(&mut self.random, SLOW_ROUNDS_MAX);
            soon_us += below(&mut self.random, LONG_US);
        }
        if self.sink == SinkKind::Rabbitmq && kind.leaves_others() {
            soon_us = self.prolong(soon_us);
        }
        let planned = self.planned - 1;
        self.report.happened.push((planned, kind));
        self.tell(|| format!("fault {planned}: {kind:?}{}", kind.target(index)));
        self.strike(kind, index, soon_us);
    }

    pub(super) fn strike(&mut self, kind: FaultKind, index: usize, soon_us: u64) {
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
            FaultKind::AnswersLost
            | FaultKind::LeaderChanges
            | FaultKind::SilentPartition
            | FaultKind::ProducerFatal
            | FaultKind::TopicRecreated => self.kafka_fault(kind, soon_us),
            _ => self.rabbitmq_fault(kind, soon_us),
        }
    }

    pub(super) fn process_fault(&mut self, kind: FaultKind, index: usize, soon_us: u64) {
        let fuse = below(&mut self.random, 40) as u32;
        let step = below(&mut self.random, 20_000_000) as i64 - 10_000_000;
        let boot = self.random.number();
        let length = below(&mut self.random, 15_000_000);
        let Some(process) = &self.processes[index] else { return };
        match kind {
            FaultKind::Kill => process.life.die_after(fuse),
            FaultKind::Stop => {
                process.stop();
                self.ask_to_stop(index);
            }
            FaultKind::Freeze => {
                self.frozen_until_us[index] = soon_us + length;
                if boot.is_multiple_of(2) {
                    self.suspended_since_us[index].get_or_insert(self.clock.us());
                }
                locked(&self.broker).freeze(index, true);
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

    pub(super) fn connection_fault(&mut self, kind: FaultKind) {
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
            FaultKind::CutDown => connection.state().cut(true, false),
            FaultKind::CutUp => connection.state().cut(false, true),
            _ => connection.state().cut(true, true),
        }
    }

    pub(super) fn postgres_fault(&mut self, kind: FaultKind, soon_us: u64) {
        let back = 1 + below(&mut self.random, 6) as usize;
        let mut postgres = locked(&self.postgres);
        if !postgres.runs {
            return;
        }
        self.script.forgive();
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
                drop(postgres);
                self.tell_gone(&gone);
                self.postgres_back_us = Some(soon_us + DOWN_MIN_US);
                self.checker.lost_by_postgres(&gone);
                self.checker.went_back();
                if kind == FaultKind::Restore {
                    self.was_restored(&gone);
                }
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
                        let file = it.state_file.as_ref();
                        file.is_some_and(|it| remembered(it, |it| it.publication.is_some()))
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
                    let is_harmed = self.checker.excuse_before(&postgres, end);
                    drop(postgres);
                    if is_harmed {
                        self.was_moved();
                    }
                }
            }
        }
    }

    fn tell_gone(&mut self, gone: &[Transaction]) {
        for it in gone {
            let numbers = || it.events().map(|event| event.number).collect::<Vec<_>>();
            self.tell(|| format!("gone: {:?} by {} at {:x}", numbers(), it.xid, it.commit_lsn));
        }
    }

    pub(super) fn broker_fault(&mut self, kind: FaultKind, soon_us: u64) {
        let topic = TOPICS[below(&mut self.random, TOPICS.len() as u64) as usize];
        let stores = below(&mut self.random, 2) == 0;
        let mut broker = locked(&self.broker);
        match kind {
            FaultKind::BrokerAway => {
                broker.cut_rabbitmq(true, &ConnectionLoss::of("Connection reset by peer"));
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
                broker.silent_topic = Some(topic);
                broker.kafka.silence(topic, true);
                broker.rabbitmq.trouble(topic, Some(Trouble::Silent));
                self.silent_until_us = Some(soon_us);
            }
        }
    }
}
