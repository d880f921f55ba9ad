//! One member of a JSON document, found without building the document: routes may name a member of
//! a column, as in `${headers.PARTITION_ID}`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Error;
use serde_json::value::RawValue;

/// The JSON text of the member at this path. `None` if there is none, if it is null, and where a
/// value on the way is no object. Of several members of one name the last counts, as in `jsonb`.
pub fn member<'j>(json: &'j [u8], path: &[String]) -> Result<Option<&'j str>, Error> {
    let mut found = serde_json::from_slice::<&RawValue>(json)?.get();
    for name in path {
        if !found.starts_with('{') {
            return Ok(None);
        }
        let mut deserializer = serde_json::Deserializer::from_str(found);
        match deserializer.deserialize_map(Member(name))? {
            Some(value) => found = value.get(),
            None => return Ok(None),
        }
    }
    Ok((found != "null").then_some(found))
}

/// The text of a JSON value: a string is unquoted, any other value is its JSON text.
pub fn text_of(json: &str) -> Result<Cow<'_, str>, Error> {
    match json.as_bytes() {
        [b'"', text @ .., b'"'] if !text.contains(&b'\\') => {
            Ok(Cow::Borrowed(&json[1..json.len() - 1]))
        }
        [b'"', ..] => serde_json::from_str(json).map(Cow::Owned),
        _ => Ok(Cow::Borrowed(json)),
    }
}

struct Member<'n>(&'n str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(IsName(self.0))? {
            match is_it {
                true => found = Some(map.next_value()?),
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// Reads a name as whether it is this one.
struct IsName<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
#[path = "json_path_tests.rs"]
mod tests;
