//! Types that a key may have.

use core::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::kind::SettingValue;
use crate::base::secret::Secret;
use crate::base::template::Template;

pub trait SettingType {
    /// The type of the value that it is made of; it must be that of the kind.
    type Form;
    /// Without a value, returns anything: the key may be absent, or a problem has been reported.
    fn read(value: Option<&SettingValue>) -> Self;
}

/// A type with a word for each of its values.
pub trait Choice: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl<T: Choice> SettingType for T {
    type Form = T;

    fn read(value: Option<&SettingValue>) -> T {
        let word = match value {
            Some(SettingValue::Text(word)) => word.as_str(),
            _ => "",
        };
        T::WORDS.iter().find(|(own, _)| *own == word).unwrap_or(&T::WORDS[0]).1
    }
}

impl<T: SettingType> SettingType for Option<T> {
    type Form = T::Form;

    fn read(value: Option<&SettingValue>) -> Option<T> {
        value.map(|value| T::read(Some(value)))
    }
}

macro_rules! setting_types {
    ($($type:ty: $variant:ident),*) => {$(
        impl SettingType for $type {
            type Form = $type;

            fn read(value: Option<&SettingValue>) -> $type {
                match value {
                    Some(SettingValue::$variant(inner)) => inner.clone(),
                    _ => <$type>::default(),
                }
            }
        }
    )*};
}

setting_types!(
    String: Text, Secret: Secret, bool: Bool, i64: Integer, Duration: Duration,
    Vec<String>: Strings
);

macro_rules! integer_types {
    ($($type:ty),*) => {$(
        impl SettingType for $type {
            type Form = i64;

            fn read(value: Option<&SettingValue>) -> $type {
                <$type>::try_from(i64::read(value)).unwrap_or(<$type>::MAX)
            }
        }
    )*};
}

integer_types!(usize, u32, u64, i32);

impl SettingType for f64 {
    type Form = f64;

    fn read(value: Option<&SettingValue>) -> f64 {
        String::read(value).parse().unwrap_or_default()
    }
}

impl SettingType for PathBuf {
    type Form = String;

    fn read(value: Option<&SettingValue>) -> PathBuf {
        PathBuf::from(String::read(value))
    }
}

impl SettingType for SocketAddr {
    type Form = String;

    fn read(value: Option<&SettingValue>) -> SocketAddr {
        String::read(value).parse().unwrap_or_else(|_| (Ipv4Addr::LOCALHOST, 0).into())
    }
}

impl SettingType for Template {
    type Form = Template;

    fn read(value: Option<&SettingValue>) -> Template {
        Template::parse(&String::read(value)).unwrap_or_else(|_| Template::column("id"))
    }
}
