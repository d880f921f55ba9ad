//! The rows of a declaration: the kind of a key's value, and what its absence means.

use std::collections::BTreeMap;
use std::time::Duration;

use super::field::{Absent, KeyRow, SettingField, Settings, Shape, Used, Values};
use super::kind::{SettingValue, TextRule, ValueKind};
use super::types::{Choice, SettingType};
use crate::base::secret::Secret;
use crate::base::template::Template;

/// A declared row whose value becomes a `T`.
pub struct Row<T> {
    shape: Shape,
    /// The fields of that section belong to this one.
    is_flattened: bool,
    read: fn(&Values, &str, Option<&SettingValue>) -> T,
}

impl<T> Row<T> {
    fn section(read: fn(&Values, &str, Option<&SettingValue>) -> T, shape: Shape) -> Row<T> {
        Row { shape, is_flattened: false, read }
    }

    fn with(mut self, change: impl FnOnce(&mut KeyRow)) -> Row<T> {
        if let Shape::Key(row) | Shape::Map(row) = &mut self.shape {
            change(row);
        }
        self
    }

    pub fn default(self, text: &'static str) -> Row<T> {
        self.with(|row| row.absent = Absent::Default(text))
    }

    /// `meaning` says what it means without a value.
    pub fn or_none(self, meaning: &'static str) -> Row<T> {
        self.with(|row| row.absent = Absent::Means(meaning))
    }

    pub fn required(self, example: &'static str) -> Row<T> {
        self.with(|row| row.absent = Absent::Required(example))
    }

    pub fn default_when_polled(self, text: &'static str) -> Row<T> {
        self.with(|row| row.polled = Some(text))
    }

    /// Secrets whose names have one of these prefixes may be shown.
    pub fn showing(self, prefixes: &'static [&'static str]) -> Row<T> {
        self.with(|row| row.shown_prefixes = prefixes)
    }

    pub fn fields(self, name: &'static str, doc: &'static str) -> Vec<SettingField> {
        match self.shape {
            Shape::Section(fields, _) if self.is_flattened => fields,
            shape => vec![SettingField { name, doc, shape }],
        }
    }

    pub fn value(&self, values: &Values, name: &str) -> T {
        let default = match &self.shape {
            Shape::Key(row) => row.default_value(false),
            _ => None,
        };
        (self.read)(values, name, default.as_ref())
    }
}

fn key<T: SettingType>(kind: ValueKind) -> Row<T> {
    let row = KeyRow { kind, absent: Absent::Means("none"), polled: None, shown_prefixes: &[] };
    let read = |values: &Values, name: &str, default: Option<&SettingValue>| {
        T::read(values.get(name).or(default))
    };
    Row { shape: Shape::Key(row), is_flattened: false, read }
}

pub fn text<T: SettingType<Form = String>>(rule: TextRule) -> Row<T> {
    key(ValueKind::Text(rule))
}

pub fn template<T: SettingType<Form = Template>>() -> Row<T> {
    key(ValueKind::Template)
}

/// One of these words.
pub fn word<T: SettingType<Form = String>>(words: fn() -> Vec<&'static str>) -> Row<T> {
    key(ValueKind::Choice(words))
}

pub fn choice<T: Choice>() -> Row<T> {
    key(ValueKind::Choice(|| T::WORDS.iter().map(|(word, _)| *word).collect()))
}

pub fn secret<T: SettingType<Form = Secret>>() -> Row<T> {
    key(ValueKind::Secret)
}

/// A secret that is shown with its password masked.
pub fn url<T: SettingType<Form = Secret>>() -> Row<T> {
    key(ValueKind::Url)
}

pub fn flag<T: SettingType<Form = bool>>() -> Row<T> {
    key(ValueKind::Bool)
}

pub fn integer<T: SettingType<Form = i64>>(min: i64, max: i64) -> Row<T> {
    key(ValueKind::Integer(min, max))
}

pub fn ratio<T: SettingType<Form = f64>>() -> Row<T> {
    key(ValueKind::Ratio)
}

pub fn bytes<T: SettingType<Form = i64>>(min: i64, max: i64) -> Row<T> {
    key(ValueKind::Bytes(min, max))
}

pub fn duration<T: SettingType<Form = Duration>>(min_ms: u64, max_ms: u64) -> Row<T> {
    key(ValueKind::Duration(min_ms, max_ms))
}

pub fn strings<T: SettingType<Form = Vec<String>>>(rule: TextRule) -> Row<T> {
    key(ValueKind::Strings(rule))
}

/// Values under names that the user chooses.
pub fn map<T: SettingType>(each: Row<T>) -> Row<BTreeMap<String, T>> {
    let shape = match each.shape {
        Shape::Key(row) => Shape::Map(row),
        other => other,
    };
    Row::section(
        |values, name, _| match values.get(name) {
            Some(SettingValue::Section(entries)) => {
                entries.iter().map(|(name, value)| (name.clone(), T::read(Some(value)))).collect()
            }
            _ => BTreeMap::new(),
        },
        shape,
    )
}

fn section_of<T: Settings>(value: Option<&SettingValue>) -> Option<T> {
    match value {
        Some(SettingValue::Section(values)) => Some(T::read(values)),
        _ => None,
    }
}

pub fn section<T: Settings>() -> Row<T> {
    let shape = Shape::Section(T::fields(), Used::Always);
    Row::section(|values, name, _| section_of(values.get(name)).unwrap_or_default(), shape)
}

/// A section whose absent keys are those of another section.
pub fn section_over<T: Settings>(inherited: &'static str) -> Row<T> {
    let mut fields = T::fields();
    for field in &mut fields {
        if let Shape::Key(row) | Shape::Map(row) = &mut field.shape {
            row.absent = Absent::Inherited(inherited);
        }
    }
    Row { shape: Shape::Section(fields, Used::Always), ..section() }
}

pub fn optional_section<T: Settings>() -> Row<Option<T>> {
    let shape = Shape::Section(T::fields(), Used::Given);
    Row::section(|values, name, _| section_of(values.get(name)), shape)
}

/// A section that is used when the key beside it has this value.
pub fn section_when<T: Settings>(key: &'static str, value: &'static str) -> Row<Option<T>> {
    let shape = Shape::Section(T::fields(), Used::Chosen(key, value));
    Row { shape, ..optional_section() }
}

pub fn sections<T: Settings>() -> Row<Vec<T>> {
    Row::section(
        |values, name, _| match values.get(name) {
            Some(SettingValue::Sections(all)) => {
                all.iter().filter_map(|section| section_of(Some(section))).collect()
            }
            _ => Vec::new(),
        },
        Shape::Sections(Box::new(Shape::Section(T::fields(), Used::Always))),
    )
}

/// The fields of another declaration in this section.
pub fn flattened<T: Settings>() -> Row<T> {
    let shape = Shape::Section(T::fields(), Used::Always);
    Row { shape, is_flattened: true, read: |values, _, _| T::read(values) }
}
