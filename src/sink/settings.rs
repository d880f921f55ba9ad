//! How a sink is configured: it reads its own `[sink.NAME]` section, and says what will not do.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::secret::Secret;

/// The values of one section, each already of its kind and with its default. A key that is absent
/// reads as its type's default.
pub trait Section {
    /// A text; nothing when the key is absent.
    fn optional_text(&self, key: &str) -> Option<String>;
    /// A secret; nothing when the key is absent.
    fn secret(&self, key: &str) -> Option<Secret>;
    /// A number.
    fn integer(&self, key: &str) -> i64;
    /// A duration.
    fn duration(&self, key: &str) -> Duration;
    /// A list of texts.
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

/// Why a section cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The key in the section.
    pub key: &'static str,
    /// What is wrong with its value.
    pub what: String,
    /// What to write instead.
    pub mend: String,
}
