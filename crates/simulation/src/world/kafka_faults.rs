//! Faults of a Kafka cluster, or between it and its clients.

use super::{KAFKA, World, below};
use crate::faults::FaultKind;
use crate::kafka::Mood;
use crate::options::SinkKind;
use crate::postgres::TOPICS;
use crate::story::About;
use walrelay_core::base::lock::locked;

impl World {
    /// A round of the cluster and its clients.
    pub(super) fn kafka_round(&mut self, jump_us: u64, late_us: u64) {
        if self.sink != SinkKind::Kafka {
            return;
        }
        self.draw_for(KAFKA);
        let is_busy = self.chance(self.rates.store);
        let arrives = if is_busy { 1 + below(&mut self.random, 4) as usize } else { 0 };
        let now_us = self.clock.us();
        let mood = Mood {
            refuses: now_us < self.refuses_until_us,
            is_unsteady: now_us < self.unsteady_until_us,
        };
        let seed = self.random.number();
        let mut broker = locked(&self.broker);
        broker.kafka.draw_from(seed);
        broker.kafka.frozen_for(jump_us);
        broker.kafka_round(late_us, arrives, mood);
        let story = if self.tells { broker.kafka.story.replace(Vec::new()) } else { None };
        let assumed = broker.kafka.take_assumed();
        drop(broker);
        self.checker.excuse_unstored(&assumed);
        story.into_iter().flatten().for_each(|line| self.tell_of(About::Detail, || line));
    }

    pub(super) fn kafka_fault(&mut self, kind: FaultKind, soon_us: u64) {
        let topic = TOPICS[below(&mut self.random, TOPICS.len() as u64) as usize];
        let both = below(&mut self.random, 2) == 0;
        let mut broker = locked(&self.broker);
        let mut sent_again = 0;
        match kind {
            FaultKind::AnswersLost => broker.cut_connections(both),
            FaultKind::LeaderChanges => {
                broker.kafka.move_leaders();
                self.unsteady_until_us = soon_us;
            }
            FaultKind::SilentPartition => {
                broker.kafka.silence(topic, false);
                self.silent_until_us = Some(soon_us);
            }
            FaultKind::ProducerFatal => broker.break_producers(),
            FaultKind::TopicRecreated => {
                // The new topic does not know which of them the old one has stored.
                sent_again = broker.kafka.unanswered(topic);
                broker.logs.remove(topic);
                broker.kafka.recreate(topic, both);
                self.topic_back_us = Some(soon_us);
                let found = self.checker.topic_is_anew(topic, &broker);
                self.violation = self.violation.take().or(found.err());
            }
            _ => {}
        }
        drop(broker);
        self.checker.allowed_repeats += sent_again;
    }

    /// The relays are stopped, and started again with another cluster at the same address: what the slot
    /// has not passed must be published to that.
    pub(super) fn replace_cluster(&mut self) {
        for index in 0..self.processes.len() {
            if let Some(process) = &self.processes[index] {
                process.life.die();
                self.died(index);
            }
        }
        let mut broker = locked(&self.broker);
        broker.kafka.replace();
        broker.rabbitmq.replace();
        broker.cluster += 1;
        broker.logs.clear();
        broker.inbox.clear();
        self.checker.other_cluster(&locked(&self.postgres));
    }
}
