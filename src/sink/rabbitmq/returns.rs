//! What a completed confirm says, when returned messages may be attached to the wrong one.
//!
//! RabbitMQ confirms what it cannot route, after it has sent it back. lapin keeps what came back
//! in a queue, and hangs its head on whichever confirm completes next: a confirm may carry another
//! message's return, and the return of a confirmed message may still be in that queue. So
//!
//! * a return is matched by its message id, and never by what carries it;
//! * a confirm that carries nothing was completed with the queue empty: every return that came
//!   before has been handed out, so a message whose id is not among them was routed;
//! * a confirm that carries another's return proves nothing yet: it waits until a later one carries
//!   nothing, or until no return is known whose own confirm is outstanding. With C confirms
//!   completed before their return was handed out, and R returns handed out before their own
//!   confirm, C ≤ R at all times (each confirm completed over a non-empty queue takes one return
//!   out of it), so R = 0 leaves no confirm whose return is still to come.
//!
//! Completions must be fed in batches that leave out none that was completed before one of theirs.
//! Pure: no socket, no clock.

use std::collections::HashMap;

use crate::base::event::Sequence;

/// A completed confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompletedConfirm {
    pub(super) sequence: Sequence,
    pub(super) id: String,
    pub(super) acked: bool,
    /// What was attached to it, whoever it belongs to.
    pub(super) carried: Option<ReturnedMessage>,
}

/// A message that came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReturnedMessage {
    pub(super) id: String,
    pub(super) code: u16,
    pub(super) text: String,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublishOutcome {
    /// Routed, and in every queue it was routed to.
    Confirmed,
    /// The broker could not or would not keep it.
    Nacked,
    /// The broker could not route it.
    Returned(ReturnedMessage),
}

#[derive(Debug)]
struct UndecidedConfirm {
    sequence: Sequence,
    id: String,
    acked: bool,
}

impl UndecidedConfirm {
    fn outcome(&self) -> (Sequence, PublishOutcome) {
        (self.sequence, if self.acked { PublishOutcome::Confirmed } else { PublishOutcome::Nacked })
    }
}

/// The state between batches.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Returns whose own confirm is outstanding, by message id.
    ahead: HashMap<String, ReturnedMessage>,
    /// Confirms that carried another's return.
    undecided: Vec<UndecidedConfirm>,
}

impl Returns {
    /// Decides what the batch allows to be decided.
    pub(super) fn settle(
        &mut self,
        batch: Vec<CompletedConfirm>,
    ) -> Vec<(Sequence, PublishOutcome)> {
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut queue_was_empty = false;
        let mut completed = Vec::with_capacity(batch.len());
        for CompletedConfirm { sequence, id, acked, carried } in batch {
            queue_was_empty |= carried.is_none();
            let foreign = carried.as_ref().is_some_and(|returned| returned.id != id);
            if let Some(returned) = carried {
                self.ahead.insert(returned.id.clone(), returned);
            }
            completed.push((UndecidedConfirm { sequence, id, acked }, foreign));
        }
        for earlier in std::mem::take(&mut self.undecided) {
            match self.ahead.remove(&earlier.id) {
                Some(returned) => {
                    outcomes.push((earlier.sequence, PublishOutcome::Returned(returned)))
                }
                None if queue_was_empty => outcomes.push(earlier.outcome()),
                None => self.undecided.push(earlier),
            }
        }
        for (completion, foreign) in completed {
            match self.ahead.remove(&completion.id) {
                Some(returned) => {
                    outcomes.push((completion.sequence, PublishOutcome::Returned(returned)));
                }
                None if foreign => self.undecided.push(completion),
                None => outcomes.push(completion.outcome()),
            }
        }
        if self.ahead.is_empty() {
            outcomes.extend(self.undecided.drain(..).map(|it| it.outcome()));
        }
        outcomes
    }
}

#[cfg(test)]
#[path = "returns_tests.rs"]
mod tests;
