//! A section of the configuration is declared once, with [`settings!`]: as a struct whose fields name
//! their kind and default. A [`Visit`] reads it from a [`Tree`] of values that were given in the file, the
//! environment and flags, and knows its keys, of which docs/configuration.md and the JSON Schema are
//! written. A kind that does not fit the type of its field does not compile.

pub mod key;
pub mod kind;
pub mod path;
pub mod tree;
pub mod units;
pub mod visit;

pub use self::key::{
    Choice, Key, SettingType, bytes, choice, duration, flag, integer, ratio, secret, strings,
    template, text, url, word,
};
pub use self::path::Path;
pub use self::tree::{Origin, Problem, Tree};
pub use self::visit::{
    Effective, Field, Row, Settings, Visit, flattened, map, optional_section, section,
    section_over, section_when, sections,
};

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
            fn read(at: &mut $crate::base::settings::Visit) -> $name {
                $name {
                    $($field: $crate::base::settings::settings!(
                        @value at, ($field $($key)?), concat!($($doc),*), $type $(, $row)?
                    )),*
                }
            }
        }

        impl Default for $name {
            fn default() -> $name {
                <$name as $crate::base::settings::Settings>::read(&mut Default::default())
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };
    (@value $at:ident, ($($name:tt)*), $doc:expr, $type:ty) => { <$type>::default() };
    (@value $at:ident, ($($name:tt)*), $doc:expr, $type:ty, $row:expr) => {{
        let name = $crate::base::settings::settings!(@name $($name)*);
        let field = $crate::base::settings::Field { name, doc: $doc };
        $crate::base::settings::Row::<$type>::read($row, $at, field)
    }};
}

/// The name of a key by that of its field, as in `name_of!(DeliverySettings, backoff_base)`.
#[macro_export]
macro_rules! name_of {
    ($section:ty, $field:ident) => {{
        const _: usize = std::mem::offset_of!($section, $field);
        stringify!($field)
    }};
}

pub use crate::{name_of, settings};

#[cfg(test)]
mod tests;
