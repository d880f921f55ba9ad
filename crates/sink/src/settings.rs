//! Settings beside its own section that a sink needs to check its own, and the problems that it
//! reports.

use std::path::Path;

use walrelay_core::dead_letter::writer::DeadLetterAddress;

/// Values of other sections that a sink checks its own against.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    pub window_events_max: usize,
    pub window_bytes_max: usize,
    pub dead_letters: &'a DeadLetterAddress,
    /// `delivery.state_file`.
    pub state_file: Option<&'a Path>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSetting {
    /// The key in the section.
    pub key: &'static str,
    /// The name below it, where the key is a table whose names the user chose.
    pub name: Option<String>,
    /// `config.bad-value`, `config.conflict` or `config.unsafe-property`.
    pub code: &'static str,
    pub what: String,
    /// The text to write instead.
    pub mend: String,
}

impl InvalidSetting {
    pub fn new(
        code: &'static str,
        key: &'static str,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> InvalidSetting {
        InvalidSetting { key, name: None, code, what: what.into(), mend: mend.into() }
    }

    /// Events and dead letters would go to the same place, which `key` names.
    pub fn taken_by_dead_letters(
        key: &'static str,
        place: &str,
        dead_letter_key: &str,
    ) -> InvalidSetting {
        InvalidSetting::new(
            "config.conflict",
            key,
            format!("{place:?} is where dead letters go: events need another place"),
            format!("give {dead_letter_key} another name"),
        )
    }
}
