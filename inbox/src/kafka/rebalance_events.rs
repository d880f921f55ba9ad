//! What librdkafka tells of rebalances, kept for the reader.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaResult;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, TopicPartitionList};

/// Rebalances are noted here, and answered by the reader outside of librdkafka's callback.
#[derive(Default)]
pub(super) struct RebalanceEvents {
    noted: Mutex<VecDeque<Rebalance>>,
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
        if let Ok(mut noted) = self.noted.lock() {
            noted.push_back(event);
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        if let Err(error) = result {
            // They are committed with the next ones, or delivered again.
            tracing::debug!(%error, "offsets were not committed");
        }
    }
}

impl RebalanceEvents {
    /// The next one that is to be answered with `assign` or `unassign`.
    pub(super) fn next(&self) -> Option<Rebalance> {
        self.noted.lock().ok()?.pop_front()
    }

    /// From now on the client answers them itself.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
    }
}
