//! Requests of the sink to a producer, and the answers of a producer.
//!
//! A producer is idempotent and keeps the order within a partition. It answers once for each event
//! that it has taken.

use std::time::{Duration, Instant};

use super::code::Code;
use super::record::Record;
use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};

/// Topics of one producer are numbered from 0.
pub type TopicId = usize;

/// Opens producers.
pub trait ProducerFactory {
    type Producer: ProducerPort;

    /// A producer that connects in the background. Its batches of more than one record have at most
    /// `batch_bytes_max` bytes, before they are compressed.
    fn open(&mut self, kind: ProducerKind, batch_bytes_max: usize)
    -> Result<Self::Producer, Fault>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProducerKind {
    /// Makes batches. After a record was refused it sends nothing more and is unusable, because
    /// what is behind that record would overtake its next delivery.
    Normal,
    /// Has one record in a request and one request under way, and goes on after a refusal.
    Isolated,
}

/// A producer. Nothing but [`ProducerPort::poll`] waits.
pub trait ProducerPort {
    /// The topic of that name, which need not exist.
    fn topic(&mut self, name: &str) -> Result<TopicId, Code>;

    fn topic_name(&self, topic: TopicId) -> Option<&str>;

    /// Most bytes of its batches of more than one record.
    fn batch_bytes_max(&self) -> usize;

    /// Takes a record for `partition`, or for the one that the producer chooses. After an `Err` the
    /// producer does not have it. The record's timestamp is the time of this call.
    fn produce(
        &mut self,
        topic: TopicId,
        sequence: Sequence,
        event: &Outbound<'_>,
        partition: Option<i32>,
    ) -> Result<(), Code>;

    /// Collects all answers, waiting at most `patience` for the first.
    fn poll(&mut self, patience: Duration) -> ProducerAnswers;

    /// Sets the time from which on no connection is made while the producer holds records: its threads may
    /// run before the relay can withdraw them.
    fn connect_until(&mut self, _until: Instant, _is_idle: bool) {}

    /// Drops what was not sent, and does not send again what was: each is answered as purged, or as
    /// confirmed if the broker has answered already.
    fn purge(&mut self);

    /// The partition of a key in a topic of `count` partitions.
    fn partition_of(&mut self, key: &[u8], count: i32) -> i32;

    /// Asks how many partitions these topics have. The answer comes with [`ProducerPort::poll`], or
    /// never.
    fn ask_partitions(&mut self, topics: &[TopicId]);

    /// Asks how large a batch this topic takes. The answer comes with [`ProducerPort::poll`], or
    /// never: the login may lack the right to describe the topic's configuration.
    fn ask_record_limit(&mut self, topic: &str);

    /// Asks the cluster for the metadata of `topic`, or of all topics in use. Returns whether it is
    /// connected: then the producer soon knows them.
    fn renew_metadata(&mut self, topic: Option<&str>) -> bool;

    /// Names the configured brokers to the producer again; see
    /// [`super::reachability::LostBrokers`].
    fn name_brokers(&mut self);

    /// The fatal error that has made the producer unusable, if there is one.
    fn fatal(&mut self) -> Option<(Code, String)>;

    /// The id of the cluster, once the producer has heard it.
    fn cluster_id(&self) -> Option<String>;
}

/// A topic as the cluster describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    pub topic: TopicId,
    pub partitions: usize,
    /// The id that the cluster has given it when it was made; 0 if it has none.
    pub id: u128,
}

/// Delivery reports, answers to requests, and errors of the client.
#[derive(Default)]
pub struct ProducerAnswers {
    /// The broker has these; with their partitions.
    pub confirmed: Vec<(Sequence, i32)>,
    /// The broker does not have these, or may not have them. Lane and commit time of the record are
    /// not set.
    pub failed: Vec<(Sequence, Code, Record)>,
    /// To [`ProducerPort::ask_partitions`], of topics that have any.
    pub topics: Vec<TopicDescription>,
    /// To [`ProducerPort::ask_record_limit`].
    pub record_limits: Vec<(String, usize)>,
    /// Errors of the client as a whole; `Fatal` makes the producer unusable from now on.
    pub errors: Vec<(Code, String)>,
}
