//! Whose dead letters a relay counts: several relays may share a dead-letter topic, and services with
//! default names do so unless somebody gives each a topic of its own.

use super::record::{DeadLetter, Resolution, StopBody};

/// A slot of a database system.
#[derive(Clone, Debug)]
pub struct LetterOwner {
    slot: String,
    system: Option<String>,
}

impl LetterOwner {
    pub fn new(slot: &str, system: Option<&str>) -> LetterOwner {
        LetterOwner { slot: slot.to_owned(), system: system.map(str::to_owned) }
    }

    /// Is it of this relay's slot and system? What does not name its system may be.
    pub fn wrote(&self, letter: &DeadLetter) -> bool {
        slot_of(letter) == self.slot && self.is_of_system(&letter.system)
    }

    /// Is a release about keys that this relay has parked? Without a system it is about all.
    pub fn is_released_by(&self, resolution: &Resolution) -> bool {
        self.is_of_system(&resolution.system)
    }

    /// Is it a stop of a relay on this slot, or its acknowledgement?
    pub fn has_stopped(&self, body: &StopBody) -> bool {
        body.slot == self.slot && self.is_of_system(&body.system)
    }

    fn is_of_system(&self, named: &str) -> bool {
        named.is_empty() || self.system.as_deref().is_none_or(|own| own == named)
    }
}

/// The slot of the relay that wrote it.
pub fn slot_of(letter: &DeadLetter) -> &str {
    letter.relay.split('@').next().unwrap_or_default()
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
