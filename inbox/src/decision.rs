//! Decision about a message after it was tried: pure, one match.

use std::borrow::Cow;
use std::time::Duration;

use crate::Failure;
use crate::settings::Level;

/// Class of a message that failed after its last level, too.
pub(crate) const EXHAUSTED: &str = "consumer.exhausted";

/// The outcome of a delivery in the consumer's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Handler and row of `processed_messages` are committed.
    Processed,
    /// Another delivery of the message was processed, or a newer copy of it is under way.
    Duplicate,
    /// An earlier message of its key is in this retry level. It is due after this time, or was due so
    /// long ago.
    Waiting { level: i32, due: Duration },
    /// The handler has failed, and its transaction is rolled back.
    Failed { failure: Failure, reason: String },
    /// Without a usable id a repetition could not be recognised. The database knows nothing of it.
    NoId { reason: String },
}

/// The step that is left before the delivery is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Acknowledge(Outcome),
    Copy {
        level: usize,
        wait: Duration,
        attempts: u32,
        outcome: Outcome,
    },
    DeadLetter(Cause),
    /// It is tried again, and nothing of its lane is handled before.
    Hold {
        reason: String,
    },
}

impl Step {
    /// The failure may pass: the message goes to a retry level, or has been in the last one.
    pub(crate) fn is_retry(&self) -> bool {
        match self {
            Step::Copy { .. } => true,
            Step::DeadLetter(cause) => cause.class == EXHAUSTED,
            Step::Acknowledge(_) | Step::Hold { .. } => false,
        }
    }
}

/// Why a message becomes a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) class: Cow<'static, str>,
    pub(crate) attempts: u32,
    pub(crate) reason: String,
    /// Without an id that can be stored there is no row to be written.
    pub(crate) has_id: bool,
}

/// How a message was settled: the label of `consumer_messages_total`, and the span's
/// `consumer.outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Processed,
    Duplicate,
    /// It waits for an earlier message of its key.
    Deferred,
    Retried,
    DeadLettered,
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 5] = [
        Outcome::Processed,
        Outcome::Duplicate,
        Outcome::Deferred,
        Outcome::Retried,
        Outcome::DeadLettered,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Outcome::Processed => "processed",
            Outcome::Duplicate => "duplicate",
            Outcome::Deferred => "deferred",
            Outcome::Retried => "retried",
            Outcome::DeadLettered => "dead_lettered",
        }
    }
}

/// `attempts` have failed before this one; levels are numbered from 1.
pub(crate) fn next_step(verdict: Verdict, attempts: u32, levels: &[Level]) -> Step {
    let dead_letter = |class: Cow<'static, str>, attempts, reason| {
        Step::DeadLetter(Cause { class, attempts, reason, has_id: true })
    };
    match verdict {
        Verdict::Processed => Step::Acknowledge(Outcome::Processed),
        Verdict::Duplicate => Step::Acknowledge(Outcome::Duplicate),
        // It waits until the earlier one is due: if it waited for the whole time of the level, a key
        // with steady traffic would never leave it. If that one is late, the pauses double. There may
        // have been more levels when that one was deferred.
        Verdict::Waiting { level, due } if !levels.is_empty() => {
            let level = usize::try_from(level).unwrap_or_default().clamp(1, levels.len());
            let wait = due.min(levels[level - 1].delay);
            Step::Copy { level, wait, attempts, outcome: Outcome::Deferred }
        }
        Verdict::Waiting { .. } => dead_letter(
            EXHAUSTED.into(),
            attempts,
            "an earlier message of its key waits in a retry level, and there are none any more"
                .to_owned(),
        ),
        Verdict::Failed { failure, reason } => {
            let attempts = attempts.saturating_add(1);
            let level = usize::try_from(attempts).unwrap_or(usize::MAX);
            match failure {
                Failure::Transient => match levels.get(level - 1) {
                    Some(Level { delay: wait, .. }) => {
                        Step::Copy { level, wait: *wait, attempts, outcome: Outcome::Retried }
                    }
                    None => dead_letter(EXHAUSTED.into(), attempts, reason),
                },
                Failure::Permanent => dead_letter("consumer.permanent".into(), attempts, reason),
                Failure::PermanentAs(class) => dead_letter(class, attempts, reason),
                Failure::Hold => Step::Hold { reason },
            }
        }
        Verdict::NoId { reason } => {
            let class = "consumer.no-id".into();
            Step::DeadLetter(Cause { class, attempts, reason, has_id: false })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 30 s, 1 min and 5 min.
    fn levels() -> Vec<Level> {
        crate::Settings::new("billing", "").levels
    }

    fn failed(failure: Failure) -> Verdict {
        Verdict::Failed { failure, reason: "why".into() }
    }

    #[test]
    fn a_transient_failure_goes_up_one_level_each_time_and_then_to_the_dead_letters() {
        for (attempts, level, wait) in [(0, 1, 30), (1, 2, 60), (2, 3, 300)] {
            let step = next_step(failed(Failure::Transient), attempts, &levels());
            let (wait, outcome) = (Duration::from_secs(wait), Outcome::Retried);
            assert_eq!(step, Step::Copy { level, wait, attempts: attempts + 1, outcome });
        }
        let last = next_step(failed(Failure::Transient), 3, &levels());
        let class = "consumer.exhausted".into();
        let reason = "why".into();
        let cause = Cause { class, attempts: 4, reason, has_id: true };
        assert_eq!(last, Step::DeadLetter(cause));
    }

    #[test]
    fn a_permanent_failure_is_dead_lettered_at_once_under_its_class() {
        for (failure, name) in [
            (Failure::Permanent, "consumer.permanent"),
            (Failure::PermanentAs("billing.closed".into()), "billing.closed"),
            (Failure::PermanentAs("consumer.no-id".into()), "consumer.no-id"),
        ] {
            let (class, reason) = (name.into(), "why".into());
            let cause = Cause { class, attempts: 1, reason, has_id: true };
            assert_eq!(next_step(failed(failure), 0, &levels()), Step::DeadLetter(cause));
        }
    }

    #[test]
    fn what_is_not_the_fault_of_the_message_holds_its_lane_however_often_it_has_failed() {
        for attempts in [0, 9] {
            let step = next_step(failed(Failure::Hold), attempts, &levels());
            assert_eq!(step, Step::Hold { reason: "why".to_owned() });
        }
    }

    #[test]
    fn what_waits_goes_to_the_level_of_the_message_before_it_until_that_is_due_and_is_not_counted()
    {
        let step = |level, due, levels: &[Level]| {
            let due = Duration::from_secs(due);
            next_step(Verdict::Waiting { level, due }, 1, levels)
        };
        let deferred = |level, wait| {
            let (wait, outcome) = (Duration::from_secs(wait), Outcome::Deferred);
            Step::Copy { level, wait, attempts: 1, outcome }
        };
        assert_eq!(step(2, 7, &levels()), deferred(2, 7));
        assert_eq!(step(2, 70, &levels()), deferred(2, 60), "no longer than the level lasts");
        assert_eq!(step(5, 7, &levels()), deferred(3, 7), "there were more levels");
        assert_eq!(step(0, 7, &levels()), deferred(1, 7));
        assert!(matches!(step(1, 7, &[]), Step::DeadLetter(_)), "there were levels");
    }

    #[test]
    fn a_repetition_is_acknowledged_and_no_id_is_a_dead_letter() {
        let duplicate = next_step(Verdict::Duplicate, 2, &levels());
        assert_eq!(duplicate, Step::Acknowledge(Outcome::Duplicate));
        let none = next_step(Verdict::NoId { reason: "why".into() }, 0, &levels());
        let (class, reason) = ("consumer.no-id".into(), "why".into());
        let cause = Cause { class, attempts: 0, reason, has_id: false };
        assert_eq!(none, Step::DeadLetter(cause));
    }
}
