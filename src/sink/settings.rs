//! Settings beside its own section that a sink needs to check its own, and the problems that it
//! reports.

use crate::dead_letter::writer::DeadLetterAddress;

/// Values of other sections that a sink checks its own against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) window_events_max: usize,
    pub(crate) window_bytes_max: usize,
    pub(crate) dead_letters: &'a DeadLetterAddress,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidSetting {
    /// The key in the section.
    pub(crate) key: &'static str,
    /// The name below it, where the key is a table whose names the user chose.
    pub(crate) name: Option<String>,
    /// `config.bad-value`, `config.conflict` or `config.unsafe-property`.
    pub(crate) code: &'static str,
    pub(crate) what: String,
    /// The text to write instead.
    pub(crate) mend: String,
}

impl InvalidSetting {
    pub(crate) fn new(
        code: &'static str,
        key: &'static str,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> InvalidSetting {
        InvalidSetting { key, name: None, code, what: what.into(), mend: mend.into() }
    }

    /// Events and dead letters would go to the same place, which `key` names.
    pub(crate) fn taken_by_dead_letters(
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
