//! Decision about a message after it was tried: pure.

use std::borrow::Cow;
use std::time::Duration;

use crate::Failure;

/// Class of a message that failed after its last level, too.
pub(crate) const EXHAUSTED: &str = "consumer.exhausted";

/// The step that is left before the delivery is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Handler and row of `processed_messages` are committed.
    Processed,
    /// Another delivery of the message was processed, or a newer copy of it is under way.
    Duplicate,
    Copy(LevelCopy),
    DeadLetter(Cause),
    /// It is tried again, and nothing of its lane is handled before.
    Hold {
        reason: String,
    },
}

/// A copy for a retry level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LevelCopy {
    /// From 1.
    pub(crate) level: usize,
    pub(crate) wait: Duration,
    /// How often the handler has failed.
    pub(crate) attempts: u32,
    /// Why it has failed now. Without it the message waits for an earlier one of its key.
    pub(crate) failure: Option<String>,
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

impl Step {
    /// The handler has failed, after `attempts` failures before, and its transaction is rolled back.
    pub(crate) fn after_failure(
        failure: Failure,
        reason: String,
        attempts: u32,
        levels: &[Duration],
    ) -> Step {
        let attempts = attempts.saturating_add(1);
        let level = usize::try_from(attempts).unwrap_or(usize::MAX);
        let class = match failure {
            Failure::Transient => match levels.get(level - 1) {
                Some(wait) => {
                    let failure = Some(reason);
                    return Step::Copy(LevelCopy { level, wait: *wait, attempts, failure });
                }
                None => EXHAUSTED.into(),
            },
            Failure::Permanent => "consumer.permanent".into(),
            Failure::PermanentAs(class) => class,
            Failure::Hold => return Step::Hold { reason },
        };
        Step::DeadLetter(Cause { class, attempts, reason, has_id: true })
    }

    /// An earlier message of the key is in the retry level `level`. It is due after this time, or was
    /// due so long ago.
    pub(crate) fn behind(level: i32, due: Duration, attempts: u32, levels: &[Duration]) -> Step {
        // There may have been more levels when the earlier message was deferred.
        let level = usize::try_from(level).unwrap_or_default().clamp(1, levels.len().max(1));
        let Some(delay) = levels.get(level - 1) else {
            let reason =
                "an earlier message of its key waits in a retry level, and there are none any more";
            let (class, reason) = (EXHAUSTED.into(), reason.to_owned());
            return Step::DeadLetter(Cause { class, attempts, reason, has_id: true });
        };
        // It waits until the earlier one is due: if it waited for the whole time of the level, a key
        // with steady traffic would never leave it. If that one is late, the pauses double.
        Step::Copy(LevelCopy { level, wait: due.min(*delay), attempts, failure: None })
    }

    /// Without a usable id a repetition could not be recognised. The database knows nothing of the
    /// message.
    pub(crate) fn without_id(reason: String) -> Step {
        let class = "consumer.no-id".into();
        Step::DeadLetter(Cause { class, attempts: 0, reason, has_id: false })
    }

    /// The failure may pass: the message goes to a retry level, or has been in the last one.
    pub(crate) fn is_retry(&self) -> bool {
        match self {
            Step::Copy(_) => true,
            Step::DeadLetter(cause) => cause.class == EXHAUSTED,
            Step::Processed | Step::Duplicate | Step::Hold { .. } => false,
        }
    }

    /// Why the message has failed, if it is to blame.
    pub(crate) fn failure(&self) -> Option<&str> {
        match self {
            Step::Copy(copy) => copy.failure.as_deref(),
            Step::DeadLetter(cause) => Some(&cause.reason),
            Step::Processed | Step::Duplicate | Step::Hold { .. } => None,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns levels of 30 s, 1 min and 5 min.
    fn levels() -> Vec<Duration> {
        crate::Settings::new("billing", "").levels
    }

    fn failed(failure: Failure, attempts: u32) -> Step {
        Step::after_failure(failure, "why".into(), attempts, &levels())
    }

    fn dead(class: &'static str, attempts: u32) -> Step {
        let (class, reason) = (class.into(), "why".into());
        Step::DeadLetter(Cause { class, attempts, reason, has_id: true })
    }

    #[test]
    fn a_transient_failure_goes_up_one_level_each_time_and_then_to_the_dead_letters() {
        for (before, level, wait) in [(0, 1, 30), (1, 2, 60), (2, 3, 300)] {
            let (wait, failure) = (Duration::from_secs(wait), Some("why".to_owned()));
            let copy = LevelCopy { level, wait, attempts: before + 1, failure };
            assert_eq!(failed(Failure::Transient, before), Step::Copy(copy));
        }
        assert_eq!(failed(Failure::Transient, 3), dead("consumer.exhausted", 4));
    }

    #[test]
    fn a_permanent_failure_is_dead_lettered_at_once_under_its_class() {
        for (failure, class) in [
            (Failure::Permanent, "consumer.permanent"),
            (Failure::PermanentAs("billing.closed".into()), "billing.closed"),
            (Failure::PermanentAs("consumer.no-id".into()), "consumer.no-id"),
        ] {
            assert_eq!(failed(failure, 0), dead(class, 1));
        }
    }

    #[test]
    fn a_dead_letter_says_why_also_without_an_id() {
        for step in [failed(Failure::Permanent, 0), Step::without_id("why".to_owned())] {
            assert_eq!(step.failure(), Some("why"));
        }
    }

    #[test]
    fn what_is_not_the_fault_of_the_message_holds_its_lane_however_often_it_has_failed() {
        for attempts in [0, 9] {
            let hold = Step::Hold { reason: "why".to_owned() };
            assert_eq!(failed(Failure::Hold, attempts), hold);
        }
    }

    #[test]
    fn what_waits_goes_to_the_level_of_the_message_before_it_until_that_is_due_and_is_not_counted()
    {
        let behind = |level, due, levels: &[Duration]| {
            Step::behind(level, Duration::from_secs(due), 1, levels)
        };
        let copy = |level, wait| {
            let wait = Duration::from_secs(wait);
            Step::Copy(LevelCopy { level, wait, attempts: 1, failure: None })
        };
        assert_eq!(behind(2, 7, &levels()), copy(2, 7));
        assert_eq!(behind(2, 70, &levels()), copy(2, 60), "no longer than the level lasts");
        assert_eq!(behind(5, 7, &levels()), copy(3, 7), "there were more levels");
        assert_eq!(behind(0, 7, &levels()), copy(1, 7));
        assert!(matches!(behind(1, 7, &[]), Step::DeadLetter(_)), "there were levels");
    }
}
