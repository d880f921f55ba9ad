//! A section of the configuration is declared once, with [`settings!`]: as a struct whose fields
//! name their kind and default. From it the file, the environment and flags are read and checked,
//! and docs/configuration.md, the JSON Schema and `config show` are written. A kind that does not
//! fit the type of its field does not compile.

pub mod field;
pub mod kind;
pub mod row;
pub mod types;
pub mod units;

pub use self::field::{Absent, KeyRow, SettingField, Settings, Shape, Used, Values, name_of};
pub use self::row::{
    Row, bytes, choice, duration, flag, flattened, integer, map, optional_section, ratio, secret,
    section, section_over, section_when, sections, strings, template, text, url, word,
};
pub use self::types::{Choice, SettingType};

pub const SECOND_MS: u64 = 1000;
pub const HOUR_MS: u64 = 3600 * SECOND_MS;
pub const MIB: i64 = 1 << 20;

/// Declares a struct with [`Settings`] and `Default`. A field without `=` is not a
/// key; the caller sets it. A key that is not named like its field has its name in brackets.
#[macro_export]
macro_rules! settings {
    ($(#[$outer:meta])* $vis:vis struct $name:ident {
        $($(#[doc = $doc:literal])* $of:vis $field:ident $([$key:literal])?
            : $type:ty $(= $row:expr)?),* $(,)?
    }) => {
        $(#[$outer])*
        $vis struct $name { $($(#[doc = $doc])* $of $field: $type),* }

        impl $crate::base::settings::Settings for $name {
            fn fields() -> Vec<$crate::base::settings::SettingField> {
                let mut fields = Vec::new();
                $($crate::base::settings::settings!(
                    @row fields, $crate::base::settings::settings!(@name $field $($key)?),
                    concat!($($doc),*), $type $(, $row)?
                );)*
                fields
            }

            fn read(values: &$crate::base::settings::Values) -> $name {
                $name {
                    $($field: $crate::base::settings::settings!(
                        @value values, $crate::base::settings::settings!(@name $field $($key)?), $type $(, $row)?
                    )),*
                }
            }
        }

        impl Default for $name {
            fn default() -> $name {
                <$name as $crate::base::settings::Settings>::read(&Default::default())
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };
    (@row $fields:ident, $name:expr, $doc:expr, $type:ty) => {};
    (@row $fields:ident, $name:expr, $doc:expr, $type:ty, $row:expr) => {
        let row: $crate::base::settings::Row<$type> = $row;
        $fields.extend(row.fields($name, $doc));
    };
    (@value $values:ident, $name:expr, $type:ty) => { <$type>::default() };
    (@value $values:ident, $name:expr, $type:ty, $row:expr) => {{
        let row: $crate::base::settings::Row<$type> = $row;
        row.value($values, $name)
    }};
}

pub use crate::settings;

#[cfg(test)]
mod tests;
