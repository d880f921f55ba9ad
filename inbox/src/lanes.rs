//! Lanes: messages of one key are in one lane, and a lane handles one message after another.

use std::sync::Arc;

#[cfg(feature = "kafka")]
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;

use crate::Handler;
use crate::broker::{Broker, Delivery};
use crate::connection::{Database, Session};
use crate::process::{Processor, Shared};

/// Where a broker offers its deliveries.
pub(crate) struct Lanes<T> {
    lanes: Vec<Sender<Delivery<T>>>,
}

impl<T> Lanes<T> {
    /// Without waiting. What the lane has no room for is returned: it is to be offered again,
    /// before later ones of its key.
    #[cfg(feature = "kafka")]
    pub(crate) fn offer(&self, delivery: Delivery<T>) -> Option<Delivery<T>> {
        match self.lane(&delivery).try_send(delivery) {
            Ok(()) => None,
            Err(TrySendError::Full(delivery) | TrySendError::Closed(delivery)) => Some(delivery),
        }
    }

    /// Waits for room.
    #[cfg(feature = "rabbitmq")]
    pub(crate) async fn put(&self, delivery: Delivery<T>) {
        // A lane ends after its senders only; what it does not take is delivered again.
        let _gone = self.lane(&delivery).send(delivery).await.is_err();
    }

    fn lane(&self, delivery: &Delivery<T>) -> &Sender<Delivery<T>> {
        let count = self.lanes.len() as u64;
        &self.lanes[(delivery.message.lane_hash() % count) as usize]
    }
}

/// Starts the lanes. Each ends when the [`Lanes`] are dropped and it has come to its end.
pub(crate) fn start<B: Broker, H: Handler>(
    shared: &Arc<Shared<B, H>>,
    database: &Database,
    count: usize,
    messages_max: usize,
) -> (Lanes<B::Token>, JoinSet<()>) {
    let mut tasks = JoinSet::new();
    let lanes = (0..count).map(|_| {
        let (sender, receiver) = mpsc::channel(messages_max);
        let session = Session::new(database.clone());
        tasks.spawn(run(receiver, Processor::new(Arc::clone(shared), session)));
        sender
    });
    (Lanes { lanes: lanes.collect() }, tasks)
}

async fn run<B: Broker, H: Handler>(
    mut deliveries: Receiver<Delivery<B::Token>>,
    mut processor: Processor<B, H>,
) {
    while let Some(delivery) = deliveries.recv().await {
        processor.process(delivery).await;
    }
}
