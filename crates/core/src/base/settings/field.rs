//! The fields of a declared section.

use std::collections::BTreeMap;

use super::kind::{RawValue, SettingValue, ValueKind, no_files};

/// The values of a section by name.
pub type Values = BTreeMap<String, SettingValue>;

#[derive(Clone, Debug)]
pub struct SettingField {
    pub name: &'static str,
    pub doc: &'static str,
    pub shape: Shape,
}

#[derive(Clone, Debug)]
pub enum Shape {
    Key(KeyRow),
    /// Values under names that the user chooses.
    Map(KeyRow),
    Section(Vec<SettingField>, Used),
    /// An array of tables.
    Sections(Box<Shape>),
}

impl Shape {
    pub fn fields(&self) -> &[SettingField] {
        if let Shape::Section(fields, _) = self { fields } else { &[] }
    }

    pub fn child(&self, name: &str) -> Option<&Shape> {
        self.fields().iter().find(|field| field.name == name).map(|field| &field.shape)
    }
}

/// When a section is used. In a section that is not, no key is required and no default filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    Always,
    /// When it appears.
    Given,
    /// When this key beside it has this value.
    Chosen(&'static str, &'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct KeyRow {
    pub kind: ValueKind,
    pub absent: Absent,
    /// The default when the table is polled, if it differs.
    pub polled: Option<&'static str>,
    /// Prefixes of names whose values may be shown, in a map of secrets.
    pub shown_prefixes: &'static [&'static str],
}

impl KeyRow {
    pub fn default_value(&self, is_polled: bool) -> Option<SettingValue> {
        let Absent::Default(text) = self.absent else { return None };
        let text = self.polled.filter(|_| is_polled).unwrap_or(text);
        self.kind.read(&RawValue::Word(text.to_owned()), &|_| None, &no_files).ok()
    }
}

/// The meaning of an absent key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// This value, written as in an environment variable.
    Default(&'static str),
    /// No value; the text says what that means.
    Means(&'static str),
    /// The value of the same name in this section.
    Inherited(&'static str),
    /// A problem; the text is an example of a value.
    Required(&'static str),
}

/// A section declared with `settings!`.
pub trait Settings: Default {
    fn fields() -> Vec<SettingField>;
    /// An absent key has its default.
    fn read(values: &Values) -> Self;
}

/// The name of a key by that of its field, as in `name_of!(DeliverySettings, backoff_base)`.
#[macro_export]
macro_rules! name_of {
    ($section:ty, $field:ident) => {{
        const _: usize = std::mem::offset_of!($section, $field);
        stringify!($field)
    }};
}

pub use crate::name_of;
