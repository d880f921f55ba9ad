//! How a section of the configuration file is declared: once, with [`settings!`].
//!
//! A declaration is the struct that the program reads, and the rows from which the file, the
//! environment and flags are read and checked, and from which docs/configuration.md, the JSON
//! Schema and `config show` are written. A row is a field: its document, name, type, kind and
//! default. A kind that does not fit the type does not compile, and neither does a wrong name.

mod declare;
mod field;
pub(crate) mod kind;
mod row;
mod types;
pub(crate) mod units;

pub(crate) use self::declare::settings;
pub(crate) use self::field::{
    Absent, KeyRow, SettingField, Settings, Shape, Used, Values, name_of,
};
pub(crate) use self::row::{
    Row, bytes, choice, duration, flag, flattened, integer, map, optional_section, secret, section,
    section_over, section_when, sections, strings, template, text, url, word,
};
pub(crate) use self::types::{Choice, SettingType};

pub(crate) const SECOND_MS: u64 = 1000;
pub(crate) const HOUR_MS: u64 = 3600 * SECOND_MS;
pub(crate) const MIB: i64 = 1 << 20;

#[cfg(test)]
mod tests;
