//! How a lane waits for Postgres, the broker or a pause: everybody can see that it stands, and it gives
//! up a message that is not wanted any more.

use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::hold::{Hold, HoldReason};
use crate::message::Message;
use crate::metrics::Metrics;

/// How often it is asked whether a message that is held is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// A lane counts as held once it has waited for an answer for so long.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long an answer is waited for once the message is not wanted any more.
const UNWANTED_WITHIN: Duration = Duration::from_secs(1);

/// The message was taken back while it was held: it will be delivered again.
pub(crate) struct GivenUp;

/// A place where a lane may stand: why, and what the log says.
pub(crate) type Obstacle = (HoldReason, &'static str);

/// The hold of a lane.
pub(crate) struct Waiting {
    consumer: String,
    metrics: Metrics,
    /// While the message waits for something to pass, or has just been tried again.
    hold: Option<Hold>,
}

impl Waiting {
    pub(crate) fn new(consumer: &str, metrics: &Metrics) -> Waiting {
        Waiting { consumer: consumer.to_owned(), metrics: metrics.clone(), hold: None }
    }

    pub(crate) fn hold(&mut self, reason: HoldReason, why: &str, message: &Message) {
        let begin = || Hold::begin(reason, self.metrics.held_lanes(reason));
        let hold = self.hold.take().filter(|hold| hold.reason == reason).unwrap_or_else(begin);
        if self.hold.insert(hold).reminder.is_due(Instant::now()) {
            let (code, consumer, id) = (reason.code(), &self.consumer, message.id());
            tracing::warn!(code, consumer, id, reason = why, "a message is held, and its lane");
        }
    }

    pub(crate) fn reason(&self) -> Option<HoldReason> {
        self.hold.as_ref().map(|hold| hold.reason)
    }

    /// The message is done with; false if it was not held.
    pub(crate) fn end(&mut self) -> bool {
        self.hold.take().is_some()
    }

    /// Waits for the answer for as long as the message is wanted. The future is dropped if it is not.
    pub(crate) async fn answer<T>(
        &mut self,
        obstacle: Obstacle,
        delivery: &Delivery<impl Sized>,
        asking: impl Future<Output = T>,
    ) -> Result<T, GivenUp> {
        let asking = pin!(asking);
        let giving_up = async {
            unwanted(delivery).await;
            tokio::time::sleep(UNWANTED_WITHIN).await;
        };
        tokio::select! {
            biased;
            answer = self.last_answer(obstacle, &delivery.message, asking) => Ok(answer),
            () = giving_up => Err(GivenUp),
        }
    }

    /// Waits for the answer, whatever becomes of the message: its outcome must be known.
    pub(crate) async fn last_answer<T>(
        &mut self,
        (reason, why): Obstacle,
        message: &Message,
        mut asking: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        let began = Instant::now();
        loop {
            match tokio::time::timeout(LOOK_INTERVAL, asking.as_mut()).await {
                Ok(answer) => return answer,
                Err(_) if began.elapsed() > ANSWER_WITHIN => self.hold(reason, why, message),
                Err(_) => {}
            }
        }
    }
}

/// For as long as the message is wanted.
pub(crate) async fn pause(
    length: Duration,
    delivery: &Delivery<impl Sized>,
) -> Result<(), GivenUp> {
    match tokio::time::timeout(length, unwanted(delivery)).await {
        Err(_) if delivery.is_wanted() => Ok(()),
        _ => Err(GivenUp),
    }
}

/// Waits until the message is not wanted any more.
async fn unwanted(delivery: &Delivery<impl Sized>) {
    while delivery.is_wanted() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
