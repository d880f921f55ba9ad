//! How a lane waits for Postgres, the broker or a pause: everybody can see that it stands, and it gives
//! up a message that is not wanted any more.

use std::pin::pin;
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
        (reason, why): Obstacle,
        delivery: &Delivery<impl Sized>,
        asking: impl Future<Output = T>,
    ) -> Result<T, GivenUp> {
        let mut asking = pin!(asking);
        let (began, mut unwanted_at) = (Instant::now(), None);
        loop {
            match tokio::time::timeout(LOOK_INTERVAL, &mut asking).await {
                Ok(answer) => return Ok(answer),
                Err(_) if delivery.is_wanted() => self.look(began, reason, why, &delivery.message),
                Err(_) => {
                    let since: &Instant = unwanted_at.get_or_insert_with(Instant::now);
                    if since.elapsed() > UNWANTED_WITHIN {
                        return Err(GivenUp);
                    }
                }
            }
        }
    }

    /// Waits for the answer, whatever becomes of the message: its outcome must be known.
    pub(crate) async fn last_answer<T>(
        &mut self,
        (reason, why): Obstacle,
        message: &Message,
        asking: impl Future<Output = T>,
    ) -> T {
        let mut asking = pin!(asking);
        let began = Instant::now();
        loop {
            match tokio::time::timeout(LOOK_INTERVAL, &mut asking).await {
                Ok(answer) => return answer,
                Err(_) => self.look(began, reason, why, message),
            }
        }
    }

    fn look(&mut self, began: Instant, reason: HoldReason, why: &str, message: &Message) {
        if began.elapsed() > ANSWER_WITHIN {
            self.hold(reason, why, message);
        }
    }
}

/// For as long as the message is wanted.
pub(crate) async fn pause(
    length: Duration,
    delivery: &Delivery<impl Sized>,
) -> Result<(), GivenUp> {
    let until = Instant::now() + length;
    loop {
        if !delivery.is_wanted() {
            return Err(GivenUp);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        tokio::time::sleep(left.min(LOOK_INTERVAL)).await;
    }
}
