//! Events of librdkafka about rebalances and commits, kept for the reader.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, TopicPartitionList};

use super::lost_brokers::LostBrokers;
use crate::panics::lock;

/// Rebalances are noted here, and answered by the reader outside of librdkafka's callback.
pub(super) struct RebalanceEvents {
    pub(super) lost_brokers: LostBrokers,
    noted: Mutex<VecDeque<Rebalance>>,
    /// The last error of commits that nothing waits for.
    failed_commit: Mutex<Option<KafkaError>>,
    /// The reader is gone, and has committed what there was.
    is_closing: AtomicBool,
}

pub(super) enum Rebalance {
    Assign(TopicPartitionList),
    Revoke,
}

impl ClientContext for RebalanceEvents {}

impl ConsumerContext for RebalanceEvents {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        if self.is_closing.load(Ordering::SeqCst) {
            let _gone = consumer.unassign().is_err();
            return;
        }
        let event = match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                Rebalance::Assign(partitions.clone())
            }
            _ => Rebalance::Revoke,
        };
        lock(&self.noted).push_back(event);
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let of_partitions = || offsets.elements().iter().try_for_each(|offset| offset.error());
        match result.and_then(|()| of_partitions()) {
            Ok(()) => self.lost_brokers.answered(),
            Err(error) => {
                tracing::debug!(%error, "offsets were not committed");
                *lock(&self.failed_commit) = Some(error);
            }
        }
    }
}

impl RebalanceEvents {
    pub(super) fn new(brokers: &str) -> RebalanceEvents {
        RebalanceEvents {
            lost_brokers: LostBrokers::new(brokers),
            noted: Mutex::default(),
            failed_commit: Mutex::default(),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Why a commit has failed since the last call.
    pub(super) fn take_failed_commit(&self) -> Option<KafkaError> {
        lock(&self.failed_commit).take()
    }

    /// The next one that is to be answered with `assign` or `unassign`.
    pub(super) fn next(&self) -> Option<Rebalance> {
        lock(&self.noted).pop_front()
    }

    /// From now on the client answers them itself.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::Offset;
    use rdkafka::types::RDKafkaErrorCode as Code;

    use super::*;

    #[test]
    fn a_commit_that_has_failed_is_told_once() {
        let events = RebalanceEvents::new("a:1");
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset("orders", 0, Offset::Offset(7)).unwrap();
        events.commit_callback(Ok(()), &offsets);
        assert_eq!(events.take_failed_commit(), None);
        let refused = KafkaError::ConsumerCommit(Code::GroupAuthorizationFailed);
        events.commit_callback(Err(refused.clone()), &offsets);
        assert_eq!(events.take_failed_commit(), Some(refused));
        assert_eq!(events.take_failed_commit(), None);
    }
}
