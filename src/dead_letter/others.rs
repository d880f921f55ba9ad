//! How many dead letters of other relays the topic has.

use std::collections::BTreeMap;

use super::owner::{LetterOwner, slot_of};
use super::reader::DeadLetterTopic;
use super::record::LogRecord;
use crate::base::error::Fault;
use crate::sink::log::ReadFrom;

/// Most records that are looked at.
const RECORDS_MAX: usize = 100_000;
/// Most others that are told apart.
const OTHERS_MAX: usize = 5;

/// How many dead letters of others the topic has, by whose they are, as far as there is time to look.
pub(crate) fn others(
    topic: &DeadLetterTopic<'_>,
    owner: &LetterOwner,
    has_time: &dyn Fn() -> bool,
) -> Result<BTreeMap<String, usize>, Fault> {
    let (mut others, mut records) = (BTreeMap::new(), 0);
    topic.each(ReadFrom::Beginning, |record| {
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
