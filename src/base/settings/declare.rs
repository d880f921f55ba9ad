//! The macro that declares a section.

/// Declares a struct with [`Settings`](super::Settings) and `Default`. A field without `=` is not a
/// key; the caller sets it. A key that is not named like its field has its name in brackets.
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

pub(crate) use settings;
