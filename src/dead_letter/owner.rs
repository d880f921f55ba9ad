//! Whose dead letters a relay counts: several relays may share a dead-letter topic, and services with
//! default names do so unless somebody gives each a topic of its own.

use std::collections::BTreeMap;

use super::reader::DeadLetterTopic;
use super::record::{DeadLetter, LogRecord, Resolution, StopBody};
use crate::base::error::Fault;
use crate::sink::log::ReadFrom;

/// A slot of a database system.
#[derive(Clone, Debug)]
pub(crate) struct LetterOwner {
    slot: String,
    system: Option<String>,
}

/// Most records that are looked at.
const RECORDS_MAX: usize = 100_000;
/// Most others that are told apart.
const OTHERS_MAX: usize = 5;

impl LetterOwner {
    pub(crate) fn new(slot: &str, system: Option<&str>) -> LetterOwner {
        LetterOwner { slot: slot.to_owned(), system: system.map(str::to_owned) }
    }

    /// Is it of this relay's slot and system? What does not name its system may be.
    pub(crate) fn wrote(&self, letter: &DeadLetter) -> bool {
        slot_of(letter) == self.slot && self.is_of_system(&letter.system)
    }

    /// Is a release about keys that this relay has parked? Without a system it is about all.
    pub(crate) fn is_released_by(&self, resolution: &Resolution) -> bool {
        self.is_of_system(&resolution.system)
    }

    /// Is it a stop of a relay on this slot, or its acknowledgement?
    pub(crate) fn has_stopped(&self, body: &StopBody) -> bool {
        body.slot == self.slot && self.is_of_system(&body.system)
    }

    fn is_of_system(&self, named: &str) -> bool {
        named.is_empty() || self.system.as_deref().is_none_or(|own| own == named)
    }
}

fn slot_of(letter: &DeadLetter) -> &str {
    letter.relay.split('@').next().unwrap_or_default()
}

/// How many dead letters of others the topic has, by whose they are, as far as there is time to look.
pub(crate) fn others(
    topic: &DeadLetterTopic<'_>,
    owner: &LetterOwner,
    has_time: &dyn Fn() -> bool,
) -> Result<BTreeMap<String, usize>, Fault> {
    let (mut others, mut records) = (BTreeMap::new(), 0);
    topic.each(topic.reader(ReadFrom::Beginning)?, |record| {
        records += 1;
        if let LogRecord::DeadLetter(letter) = &record
            && !owner.wrote(letter)
        {
            let system = Some(letter.system.as_str()).filter(|system| !system.is_empty());
            let of_system = system.map(|system| format!(" of system {system}"));
            let whose = format!("slot {}{}", slot_of(letter), of_system.unwrap_or_default());
            if others.len() < OTHERS_MAX || others.contains_key(&whose) {
                *others.entry(whose).or_default() += 1;
            }
        }
        Ok(records < RECORDS_MAX && has_time())
    })?;
    Ok(others)
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
