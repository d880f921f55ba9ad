//! How a sink is configured: it reads its own `[sink.NAME]` section, and says which settings are
//! invalid.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::secret::Secret;
use crate::dead_letter::writer::DeadLetterAddress;

/// The values of one section, each of the kind that its key declares, and with its default. A key
/// that is absent reads as its type's default.
pub(crate) trait Section {
    /// A text; nothing when the key is absent.
    fn optional_text(&self, key: &str) -> Option<String>;
    /// A secret; nothing when the key is absent.
    fn secret(&self, key: &str) -> Option<Secret>;
    fn integer(&self, key: &str) -> i64;
    fn duration(&self, key: &str) -> Duration;
    fn strings(&self, key: &str) -> Vec<String>;
    /// The entries of a table whose names the user chose.
    fn texts_below(&self, key: &str) -> BTreeMap<String, String>;
    /// The same, of secrets.
    fn secrets_below(&self, key: &str) -> BTreeMap<String, Secret>;

    /// A template's text; nothing when there is a column in it.
    fn constant(&self, key: &str) -> Option<String> {
        self.optional_text(key).filter(|text| !text.contains("${"))
    }

    /// A text; empty when the key is absent.
    fn text(&self, key: &str) -> String {
        self.optional_text(key).unwrap_or_default()
    }
}

/// What a sink's settings are held against: values of other sections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) window_events_max: u64,
    pub(crate) window_bytes_max: u64,
    /// The same for people.
    pub(crate) window_bytes_text: &'a str,
    pub(crate) dead_letters: &'a DeadLetterAddress,
}

/// Why a section cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidSetting {
    /// The key in the section.
    pub(crate) key: &'static str,
    /// The name below it, where the key is a table whose names the user chose.
    pub(crate) name: Option<String>,
    /// `config.bad-value`, `config.conflict` or `config.unsafe-property`.
    pub(crate) code: &'static str,
    pub(crate) what: String,
    /// What to write instead.
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
