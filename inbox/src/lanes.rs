//! Lanes: messages of one key are in one lane, and a lane handles one message after another.

use tokio::sync::mpsc::Sender;
#[cfg(feature = "kafka")]
use tokio::sync::mpsc::error::TrySendError;

use crate::delivery::Delivery;

/// Where a broker offers its deliveries. A lane ends when they are dropped and it has come to its end.
pub(crate) struct Lanes<M>(pub(crate) Vec<Sender<Delivery<M>>>);

impl<M> Lanes<M> {
    /// Without waiting. What the lane has no room for is returned: it is to be offered again,
    /// before later ones of its key.
    #[cfg(feature = "kafka")]
    pub(crate) fn offer(&self, delivery: Delivery<M>) -> Option<Delivery<M>> {
        match self.lane(&delivery).try_send(delivery) {
            Ok(()) => None,
            Err(TrySendError::Full(delivery) | TrySendError::Closed(delivery)) => Some(delivery),
        }
    }

    /// Waits for room.
    #[cfg(feature = "rabbitmq")]
    pub(crate) async fn put(&self, delivery: Delivery<M>) {
        // A lane ends after its senders only; what it does not take is delivered again.
        let _gone = self.lane(&delivery).send(delivery).await.is_err();
    }

    fn lane(&self, delivery: &Delivery<M>) -> &Sender<Delivery<M>> {
        let count = self.0.len() as u64;
        &self.0[(delivery.message.lane_hash() % count) as usize]
    }
}
