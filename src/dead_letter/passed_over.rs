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
        let reason = |(why, count): (NotReplayable, usize)| match why {
            NotReplayable::Uncarried => format!("{} ({count}, first {uncarried})", why.reason()),
            _ => format!("{} ({count})", why.reason()),
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
