//! A model of Kafka and of librdkafka's idempotent producer: the ports of the real Kafka sink.
//!
//! A producer takes records, and a client that the world lets work sends them: batches by partition,
//! in order, at most two requests under way to a broker. The cluster stores a batch once, however
//! often it is sent, or refuses it as a whole.
//!
//! The model assumes that a relay that has lost its slot, and has not had the time to learn that,
//! sends nothing to a partition that was away when a peer took over. The documentation says that
//! this can happen, and that only transactions of the broker could prevent it.

mod batch;
mod client;
mod cluster;
mod known_topics;

use std::sync::Arc;
use std::time::{Duration, Instant};

use walrelay_core::base::error::Fault;
use walrelay_core::base::event::{Outbound, Sequence};
use walrelay_core::relay::ports::Clock as _;
use walrelay_core::sink::Sink;
use walrelay_core::sink::kafka::port::{
    ProducerAnswers, ProducerFactory, ProducerKind, ProducerPort, TopicId,
};
use walrelay_core::sink::kafka::{Code, KafkaSink, Learned};

pub(crate) use self::cluster::{Cluster, Mood};
use crate::broker::{Record, SharedBroker};
use crate::life::Life;
use walrelay_core::base::lock::locked;

impl Cluster {
    /// Takes the records that clients have confirmed without an answer, and that a new topic may not have
    /// stored.
    pub(crate) fn take_assumed(&mut self) -> Vec<Record> {
        self.clients.values_mut().flat_map(|it| std::mem::take(&mut it.assumed)).collect()
    }
}

/// Builds the sinks of a process.
pub(crate) fn sink(
    relay: usize,
    life: &Arc<Life>,
    broker: &SharedBroker,
    learned: &Arc<Learned>,
    seed: u64,
) -> Result<Box<dyn Sink>, Fault> {
    let number = locked(broker).next_sink(relay);
    let by = (relay, number);
    let producers = Producers { by, life: Arc::clone(life), broker: Arc::clone(broker) };
    let now: Instant = life.instant();
    Ok(Box::new(KafkaSink::new(producers, Arc::clone(learned), seed, now)?))
}

struct Producers {
    /// The relay, and the number of its sink.
    by: (usize, u64),
    life: Arc<Life>,
    broker: SharedBroker,
}

impl ProducerFactory for Producers {
    type Producer = Producer;

    fn open(&mut self, kind: ProducerKind, batch_bytes_max: usize) -> Result<Producer, Fault> {
        let (life, broker) = (Arc::clone(&self.life), Arc::clone(&self.broker));
        let id = {
            let mut broker = locked(&broker);
            let is_away = broker.is_away;
            broker.kafka.open(self.by, &life, kind, batch_bytes_max, is_away)
        };
        Ok(Producer { id, life, broker, topics: Vec::new(), batch_bytes_max })
    }
}

struct Producer {
    id: u64,
    life: Arc<Life>,
    broker: SharedBroker,
    topics: Vec<String>,
    batch_bytes_max: usize,
}

impl ProducerPort for Producer {
    fn topic(&mut self, name: &str) -> Result<TopicId, Code> {
        let known = self.topics.iter().position(|it| it == name);
        Ok(known.unwrap_or_else(|| {
            self.topics.push(name.to_owned());
            self.topics.len() - 1
        }))
    }

    fn topic_name(&self, topic: TopicId) -> Option<&str> {
        self.topics.get(topic).map(String::as_str)
    }

    fn batch_bytes_max(&self) -> usize {
        self.batch_bytes_max
    }

    fn produce(
        &mut self,
        topic: TopicId,
        sequence: Sequence,
        event: &Outbound<'_>,
        partition: Option<i32>,
    ) -> Result<(), Code> {
        let mut broker = locked(&self.broker);
        let Cluster { topics, clients, queue_max, .. } = &mut broker.kafka;
        let topic = cluster::topic_index(topics, &self.topics[topic]).ok_or(Code::UnknownTopic)?;
        let client = clients.get_mut(&self.id).ok_or(Code::State)?;
        let asked = event.partition.is_some();
        let has_room = client.check_room(topic, partition, *queue_max);
        has_room.inspect_err(|code| client.refused_room(topic, *code, asked))?;
        let to = (topic, topics[topic].made);
        client.take(to, sequence, Record::copy(event), asked, partition);
        let relay = client.relay;
        broker.sent[relay] += 1;
        Ok(())
    }

    fn poll(&mut self, patience: Duration) -> ProducerAnswers {
        let client = locked(&self.broker).kafka.answers(self.id);
        let answers = client.unwrap_or_default();
        let ProducerAnswers { confirmed, failed, topics, record_limits, errors } = &answers;
        let nothing = confirmed.is_empty() && failed.is_empty() && topics.is_empty();
        if nothing && record_limits.is_empty() && errors.is_empty() {
            self.life.wait(patience);
        }
        answers
    }

    fn purge(&mut self) {
        locked(&self.broker).kafka_withdraw(self.id);
    }

    fn partition_of(&mut self, key: &[u8], count: i32) -> i32 {
        client::partition_of(key, count.unsigned_abs() as usize) as i32
    }

    fn ask_partitions(&mut self, topics: &[TopicId]) {
        let mut broker = locked(&self.broker);
        for topic in topics {
            broker.kafka.ask_partitions(self.id, *topic, &self.topics[*topic]);
        }
    }

    fn ask_record_limit(&mut self, topic: &str) {
        locked(&self.broker).kafka.ask_record_limit(self.id, topic);
    }

    fn renew_metadata(&mut self, topic: Option<&str>) -> bool {
        let mut broker = locked(&self.broker);
        let is_away = broker.is_away;
        broker.kafka.renew_metadata(self.id, topic, is_away)
    }

    /// This model forgets no broker.
    fn name_brokers(&mut self) {}

    fn fatal(&mut self) -> Option<(Code, String)> {
        locked(&self.broker).kafka.clients.get(&self.id)?.fatal.clone()
    }

    fn cluster_id(&self) -> Option<String> {
        let broker = locked(&self.broker);
        let cluster = broker.kafka.clients.get(&self.id)?.cluster?;
        Some(format!("cluster {cluster}"))
    }
}

impl Drop for Producer {
    /// Ends the producer; records that are sent may still arrive.
    fn drop(&mut self) {
        let mut broker = locked(&self.broker);
        let is_away = broker.is_away;
        broker.kafka.close(self.id, is_away);
    }
}
