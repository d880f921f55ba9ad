//! A declared key: the kind of its value, what its absence means, and the type that the value becomes.

use core::marker::PhantomData;
use core::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::kind::{Bytes, Flag, Kind, SecretText, Strings, Text, TextRule, Within};
use crate::base::secret::Secret;
use crate::base::template::Template;

pub struct Key<K, T> {
    pub(super) kind: K,
    pub(super) absent: Absent,
    /// Another default, where this key has this value.
    pub(super) default_when: Option<(&'static [&'static str], &'static str, &'static str)>,
    /// Prefixes of names whose values may be shown, in a map of secrets.
    pub(super) shown_prefixes: &'static [&'static str],
    becomes: PhantomData<fn() -> T>,
}

/// The meaning of an absent key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// This value, written as in an environment variable.
    Default(&'static str),
    /// No value; the text says what that means.
    Means(&'static str),
    /// A problem; the text is an example of a value.
    Required(&'static str),
}

impl<K: Kind, T: SettingType<K::Value>> Key<K, T> {
    fn new(kind: K) -> Key<K, T> {
        let absent = Absent::Means("none");
        Key { kind, absent, default_when: None, shown_prefixes: &[], becomes: PhantomData }
    }

    pub fn default(self, text: &'static str) -> Key<K, T> {
        Key { absent: Absent::Default(text), ..self }
    }

    /// `meaning` says what it means without a value.
    pub fn or_none(self, meaning: &'static str) -> Key<K, T> {
        Key { absent: Absent::Means(meaning), ..self }
    }

    pub fn required(self, example: &'static str) -> Key<K, T> {
        Key { absent: Absent::Required(example), ..self }
    }

    /// Another default, where the key at this path has this value.
    pub fn default_when(
        self,
        path: &'static [&'static str],
        value: &'static str,
        text: &'static str,
    ) -> Key<K, T> {
        Key { default_when: Some((path, value, text)), ..self }
    }

    /// Secrets whose names have one of these prefixes may be shown.
    pub fn showing(self, prefixes: &'static [&'static str]) -> Key<K, T> {
        Key { shown_prefixes: prefixes, ..self }
    }
}

pub fn text<T: SettingType<String>>(rule: TextRule) -> Key<Text, T> {
    Key::new(Text::of(rule))
}

pub fn template<T: SettingType<String>>() -> Key<Text, T> {
    Key::new(Text::template())
}

/// One of these words.
pub fn word<T: SettingType<String>>(words: Vec<&'static str>) -> Key<Text, T> {
    Key::new(Text::one_of(words))
}

pub fn choice<T: Choice>() -> Key<Text, T> {
    word(T::WORDS.iter().map(|(word, _)| *word).collect())
}

pub fn secret<T: SettingType<Secret>>() -> Key<SecretText, T> {
    Key::new(SecretText { is_url: false })
}

/// A secret that is shown with its password masked.
pub fn url<T: SettingType<Secret>>() -> Key<SecretText, T> {
    Key::new(SecretText { is_url: true })
}

pub fn flag<T: SettingType<bool>>() -> Key<Flag, T> {
    Key::new(Flag)
}

pub fn integer<T: SettingType<i64>>(min: i64, max: i64) -> Key<Within<i64>, T> {
    Key::new(Within(min, max))
}

pub fn ratio<T: SettingType<f64>>() -> Key<Within<f64>, T> {
    Key::new(Within(0.0, 1.0))
}

pub fn bytes<T: SettingType<Bytes>>(min: i64, max: i64) -> Key<Within<Bytes>, T> {
    Key::new(Within(Bytes(min), Bytes(max)))
}

pub fn duration<T: SettingType<Duration>>(min_ms: u64, max_ms: u64) -> Key<Within<Duration>, T> {
    Key::new(Within(Duration::from_millis(min_ms), Duration::from_millis(max_ms)))
}

pub fn strings<T: SettingType<Vec<String>>>(rule: TextRule) -> Key<Strings, T> {
    Key::new(Strings(Text::of(rule)))
}

/// A type that the values of a kind become.
pub trait SettingType<V> {
    /// Without a value, returns anything: the key may be absent, or a problem has been reported.
    fn of(value: Option<V>) -> Self;
}

/// A type with a word for each of its values.
pub trait Choice: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl<T: Choice> SettingType<String> for T {
    fn of(word: Option<String>) -> T {
        let word = word.unwrap_or_default();
        T::WORDS.iter().find(|(own, _)| *own == word).unwrap_or(&T::WORDS[0]).1
    }
}

impl<V, T: SettingType<V>> SettingType<V> for Option<T> {
    fn of(value: Option<V>) -> Option<T> {
        value.map(|value| T::of(Some(value)))
    }
}

macro_rules! setting_types {
    ($($value:ty => $type:ty: $of:expr),* $(,)?) => {$(
        impl SettingType<$value> for $type {
            fn of(value: Option<$value>) -> $type {
                let of: fn(Option<$value>) -> $type = $of;
                of(value)
            }
        }
    )*};
}

setting_types! {
    String => String: Option::unwrap_or_default,
    Secret => Secret: Option::unwrap_or_default,
    bool => bool: Option::unwrap_or_default,
    f64 => f64: Option::unwrap_or_default,
    Duration => Duration: Option::unwrap_or_default,
    Vec<String> => Vec<String>: Option::unwrap_or_default,
    i64 => usize: |it| it.unwrap_or_default().try_into().unwrap_or(usize::MAX),
    i64 => u32: |it| it.unwrap_or_default().try_into().unwrap_or(u32::MAX),
    i64 => i32: |it| it.unwrap_or_default().try_into().unwrap_or(i32::MAX),
    Bytes => usize: |it| it.map_or(0, |Bytes(size)| size.try_into().unwrap_or(usize::MAX)),
    String => PathBuf: |it| it.unwrap_or_default().into(),
    String => SocketAddr: |it| {
        it.and_then(|text| text.parse().ok()).unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into())
    },
    String => Template: |it| {
        it.and_then(|text| Template::parse(&text).ok()).unwrap_or_else(|| Template::column("id"))
    },
}
