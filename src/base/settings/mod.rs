//! A section of the configuration is declared once, with [`settings!`]: as a struct whose fields name
//! their kind and default. From it the file, the environment and flags are read and checked, and
//! docs/configuration.md, the JSON Schema and `config show` are written. A kind that does not fit the
//! type of its field does not compile.

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
