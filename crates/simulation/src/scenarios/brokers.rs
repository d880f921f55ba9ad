//! Faults of the broker in any order, each soon after the last one.

use super::scripts::Script;
use super::{Act, Stage, Until, Who};
use crate::faults::{FaultKind, some_of};
use crate::options::SinkKind;

const KAFKA: [FaultKind; 6] = [
    FaultKind::TopicRecreated,
    FaultKind::AnswersLost,
    FaultKind::ProducerFatal,
    FaultKind::SilentPartition,
    FaultKind::Refusals,
    FaultKind::BrokerAway,
];

const RABBITMQ: [FaultKind; 9] = [
    FaultKind::AmqpConnectionLost,
    FaultKind::AmqpHalfOpen,
    FaultKind::BrokerAlarm,
    FaultKind::QueueDeleted,
    FaultKind::QueueFull,
    FaultKind::ExchangeDeleted,
    FaultKind::ConfirmsLinger,
    FaultKind::Refusals,
    FaultKind::SilentTopic,
];

impl Script<'_> {
    /// Leaders change, and so batches are refused, or stored without an answer.
    pub(super) fn kafka_troubles(&mut self, stage: &mut Stage) {
        match self.below(3) {
            0 => {
                let mut kinds = some_of(KAFKA.to_vec(), SinkKind::Kafka, 2, self.random);
                kinds.extend([FaultKind::LeaderChanges, FaultKind::TopicRecreated]);
                self.troubles(stage, SinkKind::Kafka, &kinds);
                stage.is_still = false;
            }
            1 => self.topics_while_leaders_change(stage),
            _ => self.producer_while_leaders_change(stage),
        }
    }

    /// Topics are made anew in the midst of changes of leaders and of transactions.
    fn topics_while_leaders_change(&mut self, stage: &mut Stage) {
        (stage.relays, stage.sink) = (Some(1), Some(SinkKind::Kafka));
        (stage.is_calm, stage.is_still, stage.poison) = (true, false, Some(0));
        stage.begins_at = self.below(60);
        for _ in 0..4 + self.below(8) {
            self.after_rounds(6, Act::Fault(FaultKind::LeaderChanges));
            self.commits(8);
            self.after_rounds(6, Act::Fault(FaultKind::TopicRecreated));
            self.commits(8);
            self.after_rounds(16, Act::Mend);
        }
        self.then(Until::Rounds(10), Act::Mend);
    }

    /// A producer fails over the last events, of which one is stored without an answer.
    fn producer_while_leaders_change(&mut self, stage: &mut Stage) {
        (stage.relays, stage.sink) = (Some(1), Some(SinkKind::Kafka));
        (stage.is_calm, stage.is_last, stage.poison) = (true, true, Some(0));
        self.then(Until::Quiet, Act::Fault(FaultKind::LeaderChanges));
        for _ in 0..2 + self.below(3) {
            self.commits(8);
            self.after_rounds(4, Act::Wait);
        }
        self.after_rounds(4, Act::Fault(FaultKind::ProducerFatal));
    }

    /// Some faults last long: a destination is away, and the others go on.
    pub(super) fn rabbit_troubles(&mut self, stage: &mut Stage) {
        let kinds = some_of(RABBITMQ.to_vec(), SinkKind::Rabbitmq, 4, self.random);
        if self.below(2) == 0 {
            return self.troubles(stage, SinkKind::Rabbitmq, &kinds);
        }
        (stage.relays, stage.sink) = (Some(1), Some(SinkKind::Rabbitmq));
        (stage.is_calm, stage.begins_at) = (true, self.below(60));
        let away =
            [FaultKind::ExchangeDeleted, FaultKind::ExchangeDeleted, FaultKind::QueueDeleted];
        let away = away[self.below(3) as usize];
        self.commits(12);
        self.after_rounds(10, Act::Last(away));
        self.commits(20);
        if self.below(2) == 0 {
            let kind = kinds[self.below(kinds.len() as u64) as usize];
            self.after_rounds(20, Act::Fault(kind));
            self.commits(20);
        }
        self.after_rounds(10, Act::Slow(400));
        let rounds = 100 + self.below(200);
        self.then(Until::Rounds(rounds), Act::Slow(0));
        self.at_once(Act::Mend);
    }

    pub(super) fn close_beside_silence(&mut self, stage: &mut Stage) {
        (stage.relays, stage.sink) = (Some(1), Some(SinkKind::Rabbitmq));
        (stage.is_calm, stage.poison) = (true, Some(16));
        stage.begins_at = self.below(60);
        self.commits(12);
        self.after_rounds(10, Act::Last(FaultKind::SilentTopic));
        self.commits(20);
        self.after_rounds(20, Act::Slow(600));
        let rounds = 250 + self.below(250);
        self.then(Until::Rounds(rounds), Act::Slow(0));
        self.at_once(Act::Mend);
    }

    /// Faults of these kinds, while transactions are committed.
    fn troubles(&mut self, stage: &mut Stage, sink: SinkKind, kinds: &[FaultKind]) {
        (stage.relays, stage.sink) = (Some(1), Some(sink));
        (stage.is_still, stage.is_calm) = (self.below(2) == 0, true);
        stage.begins_at = self.below(60);
        for _ in 0..4 + self.below(16) {
            match self.below(8) {
                0..4 => self.after_rounds(12, Act::Wait),
                4 => self.after_rounds(60, Act::Wait),
                5 => self.after_stored(8, Act::Wait),
                _ => {}
            }
            match self.below(16) {
                0..4 => self.commits(8),
                4 => {
                    let rounds = self.below(60);
                    self.at_once(Act::Slow(rounds));
                }
                5 => self.at_once(Act::EndSessions),
                6 => {
                    self.at_once(Act::Kill(Who::Holder));
                    self.at_once(Act::EndSessions);
                    self.at_once(Act::Start(Who::Holder));
                }
                7 | 8 => self.at_once(Act::Mend),
                _ => {
                    let kind = kinds[self.below(kinds.len() as u64) as usize];
                    self.at_once(Act::Fault(kind));
                }
            }
        }
        self.then(Until::Rounds(10), Act::Mend);
    }
}
