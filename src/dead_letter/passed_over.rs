//! How many dead letters a replay has passed over, and why.

use serde::{Serialize, Serializer};

use super::record::NotReplayable;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassedOver([usize; NotReplayable::ALL.len()]);

impl PassedOver {
    pub(super) fn add(&mut self, why: NotReplayable) {
        self.0[why as usize] += 1;
    }

    pub(super) fn count(&self, why: NotReplayable) -> usize {
        self.0[why as usize]
    }

    pub(super) fn total(&self) -> usize {
        self.0.iter().sum()
    }

    fn counts(&self) -> impl Iterator<Item = (NotReplayable, usize)> {
        NotReplayable::ALL.into_iter().zip(self.0)
    }

    /// The reasons, each with its number. `uncarried` is the first event that the broker cannot carry.
    pub(super) fn reasons(&self, uncarried: &str) -> String {
        let reason = |(why, count)| match why {
            NotReplayable::Cut => format!("the value of {count} is cut"),
            NotReplayable::Unrouted => format!("the destination of {count} is unknown"),
            NotReplayable::Incomplete => format!(
                "{count} never became events, have lost headers, or their key, id, topic or type is cut"
            ),
            NotReplayable::Nameless => {
                format!("{count} have no id, without which their consumer gives them up again")
            }
            NotReplayable::Misrouted => {
                format!("{count} would be published to the dead-letter topic itself")
            }
            NotReplayable::Elsewhere => {
                format!("{count} would be published to where no route of the configuration leads")
            }
            NotReplayable::Uncarried => {
                format!("{count} have more than the broker can carry (first {uncarried})")
            }
            NotReplayable::Behind => format!("{count} follow such an event of their key"),
        };
        let reasons: Vec<String> = self.counts().filter(|(_, it)| *it > 0).map(reason).collect();
        reasons.join(", ")
    }
}

/// A number for each reason.
impl Serialize for PassedOver {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.counts())
    }
}
