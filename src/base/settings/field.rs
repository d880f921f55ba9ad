//! What a declared section consists of, and the macro that declares one.

use std::collections::BTreeMap;

use super::kind::{RawValue, SettingValue, ValueKind};

/// The values of a section by name.
pub(crate) type Values = BTreeMap<String, SettingValue>;

/// One row of a section.
#[derive(Clone, Debug)]
pub(crate) struct SettingField {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) shape: Shape,
}

/// What stands under a name.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// A value.
    Key(KeyRow),
    /// Values under names that the user chooses.
    Map(KeyRow),
    Section(Vec<SettingField>, Used),
    /// An array of such sections.
    Sections(Box<Shape>),
}

impl Shape {
    /// The rows of a section.
    pub(crate) fn fields(&self) -> &[SettingField] {
        if let Shape::Section(fields, _) = self { fields } else { &[] }
    }

    /// What stands under that name in a section.
    pub(crate) fn child(&self, name: &str) -> Option<&Shape> {
        self.fields().iter().find(|field| field.name == name).map(|field| &field.shape)
    }
}

/// When a section plays a part; otherwise nothing in it is missed, and no default filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    Always,
    /// When it is there.
    Given,
    /// When the key beside it has this value.
    Chosen(&'static str, &'static str),
}

/// What a value may be, and what holds without one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyRow {
    pub(crate) kind: ValueKind,
    pub(crate) absent: Absent,
    /// The default where the table is polled, when it is another.
    pub(crate) polled: Option<&'static str>,
    /// Of secrets under names that the user chooses: beginnings of names whose values may be shown.
    pub(crate) open: &'static [&'static str],
}

impl KeyRow {
    /// The default as a value, where there is one.
    pub(crate) fn default_value(&self, is_polled: bool) -> Option<SettingValue> {
        let Absent::Default(text) = self.absent else { return None };
        let text = self.polled.filter(|_| is_polled).unwrap_or(text);
        self.kind.read(&RawValue::Word(text.to_owned()), &|_| None).ok()
    }
}

/// What holds when a key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// This value, spelled as in the environment.
    Default(&'static str),
    /// Nothing; the text says what that means.
    Means(&'static str),
    /// What stands under the same name in this section.
    Inherited(&'static str),
    /// A problem; the text is an example of a value.
    Required(&'static str),
}

/// A section that was declared.
pub(crate) trait Settings: Default {
    fn fields() -> Vec<SettingField>;
    /// A key that is absent has its default.
    fn read(values: &Values) -> Self;
}

/// The name of a key by that of its field, as in `name_of!(DeliverySettings, backoff_base)`.
macro_rules! name_of {
    ($section:ty, $field:ident) => {{
        const _: usize = std::mem::offset_of!($section, $field);
        stringify!($field)
    }};
}

pub(crate) use name_of;
