//! What a completed confirm means, although lapin may attach a returned message to the wrong one.
//!
//! RabbitMQ confirms a message that it cannot route, after it has returned it. lapin keeps returned
//! messages in a queue and attaches the first of them to whichever confirm completes next: a
//! confirm may carry the return of another message, and the return of a confirmed message may still
//! be in that queue. Therefore:
//!
//! * a return is matched by its message id, never by the confirm that carries it;
//! * a confirm that carries nothing completed while the queue was empty: every earlier return has been
//!   handed out, so a message whose id is not among them was routed;
//! * a confirm that carries the return of another message proves nothing yet: it waits until a later
//!   one carries nothing, or until no return is known whose own confirm is outstanding. With C confirms
//!   completed before their return was handed out, and R returns handed out before their own
//!   confirm, C ≤ R at all times (each confirm completed over a non-empty queue takes one return
//!   out of it), so R = 0 leaves no confirm whose return is still to come.
//!
//! A batch of completions must contain every completion that came before one of the batch.
//! Pure: no socket, no clock.

use std::collections::HashMap;

use crate::base::event::Sequence;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompletedConfirm {
    pub(super) sequence: Sequence,
    pub(super) id: String,
    pub(super) acked: bool,
    /// The return that lapin attached to it, which may be of another message.
    pub(super) carried: Option<ReturnedMessage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReturnedMessage {
    pub(super) id: String,
    pub(super) code: u16,
    pub(super) text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublishOutcome {
    /// Routed, and in every queue it was routed to.
    Confirmed,
    /// A queue could not or would not keep it.
    Nacked,
    /// Not routed to any queue.
    Returned(ReturnedMessage),
}

impl CompletedConfirm {
    /// The outcome of a message that was not returned.
    fn outcome(&self) -> (Sequence, PublishOutcome) {
        (self.sequence, if self.acked { PublishOutcome::Confirmed } else { PublishOutcome::Nacked })
    }
}

#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Returns whose own confirm is outstanding, by message id.
    ahead: HashMap<String, ReturnedMessage>,
    /// Confirms that carried the return of another message.
    undecided: Vec<CompletedConfirm>,
}

impl Returns {
    /// Returns the outcomes that the batch decides.
    pub(super) fn settle(
        &mut self,
        batch: Vec<CompletedConfirm>,
    ) -> Vec<(Sequence, PublishOutcome)> {
        let mut outcomes = Vec::with_capacity(batch.len());
        let queue_was_empty = batch.iter().any(|confirm| confirm.carried.is_none());
        let earlier = std::mem::take(&mut self.undecided).into_iter();
        let mut confirms: Vec<_> = earlier.map(|confirm| (confirm, queue_was_empty)).collect();
        for mut confirm in batch {
            let returned = confirm.carried.take();
            let foreign = returned.as_ref().is_some_and(|returned| returned.id != confirm.id);
            self.ahead.extend(returned.map(|returned| (returned.id.clone(), returned)));
            confirms.push((confirm, !foreign));
        }
        for (confirm, is_decided) in confirms {
            match self.ahead.remove(&confirm.id) {
                Some(returned) => {
                    outcomes.push((confirm.sequence, PublishOutcome::Returned(returned)));
                }
                None if is_decided => outcomes.push(confirm.outcome()),
                None => self.undecided.push(confirm),
            }
        }
        if self.ahead.is_empty() {
            outcomes.extend(self.undecided.drain(..).map(|confirm| confirm.outcome()));
        }
        outcomes
    }
}

#[cfg(test)]
#[path = "returns_tests.rs"]
mod tests;
