//! The kinds of values and how they are read. Values of the file have types, those of the
//! environment and of flags are words; both become the same [`SettingValue`] after the same checks.
//! An error about a secret never quotes it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::units;
use crate::base::secret::Secret;
use crate::base::template::Template;
use crate::base::text::nearest;

#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    Text(TextRule),
    Template,
    /// A secret that is shown with its password masked.
    Url,
    Secret,
    Bool,
    Integer(i64, i64),
    /// From 0 to 1.
    Ratio,
    Bytes(i64, i64),
    /// In milliseconds.
    Duration(u64, u64),
    /// One of these words.
    Choice(fn() -> Vec<&'static str>),
    Strings(TextRule),
}

#[derive(Clone, Copy, Debug)]
pub struct TextRule {
    /// For the JSON Schema.
    pub pattern: &'static str,
    /// For error texts.
    pub wanted: &'static str,
    pub holds: fn(&str) -> bool,
}

pub const FILLED: TextRule = TextRule {
    pattern: "^.+$",
    wanted: "a text that is not empty",
    holds: |text| !text.is_empty(),
};
/// The name of a column, a table or a publication.
pub const IDENTIFIER: TextRule = TextRule {
    pattern: "^.{1,63}$",
    wanted: "a Postgres identifier of 1 to 63 bytes, without quotes",
    holds: |text| (1..=63).contains(&text.len()) && !text.contains(['"', '\0']),
};
pub const TOPIC: TextRule = TextRule {
    pattern: "^[A-Za-z0-9._-]{1,249}$",
    wanted: "a topic name: 1 to 249 letters, digits, dots, underscores and dashes, and not \".\" or \"..\"",
    holds: |text| {
        (1..=249).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
            && text != "."
            && text != ".."
    },
};
pub const ADDRESS: TextRule = TextRule {
    pattern: "^.+:[0-9]+$",
    wanted: "an IP address and a port, as in 127.0.0.1:9464",
    holds: |text| text.parse::<core::net::SocketAddr>().is_ok(),
};
pub const HOST_NAME: TextRule = TextRule {
    pattern: "^[A-Za-z0-9._-]{1,253}$",
    wanted: "a host name without scheme and port, as in relay.example.org",
    holds: |text| {
        (1..=253).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    },
};

/// A value as it was given. No `Debug`: it may be a secret.
#[derive(Clone)]
pub enum RawValue {
    /// From the environment or a flag, without a type.
    Word(String),
    Text(String),
    Bool(bool),
    Integer(i64),
    /// As it was written.
    Float(String),
    List(Vec<RawValue>),
    /// `{ env = "NAME" }`.
    Variable(String),
    /// `{ file = "/run/secrets/x" }`.
    File(String),
    /// A TOML value of this type, which no key accepts.
    Unsupported(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// Of [`ValueKind::Text`], [`ValueKind::Template`], [`ValueKind::Choice`] and
    /// [`ValueKind::Ratio`].
    Text(String),
    /// Of [`ValueKind::Secret`] and [`ValueKind::Url`].
    Secret(Secret),
    Bool(bool),
    /// Of [`ValueKind::Integer`] and [`ValueKind::Bytes`].
    Integer(i64),
    Duration(Duration),
    Strings(Vec<String>),
    /// The values of a section by name.
    Section(BTreeMap<String, SettingValue>),
    /// An array of sections.
    Sections(Vec<SettingValue>),
}

#[derive(Debug, PartialEq, Eq)]
pub struct BadValue {
    pub what: String,
    pub mend: String,
    /// Whether a later start may read it: something else has yet to write a file.
    pub may_pass: bool,
}

fn bad(what: impl Into<String>, mend: impl Into<String>) -> BadValue {
    BadValue { what: what.into(), mend: mend.into(), may_pass: false }
}

/// Looks up an environment variable.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;
/// Reads a secret out of its file. The error is what is wrong, and what mends it.
pub type ReadSecret<'a> = &'a dyn Fn(&Path) -> Result<Secret, (String, String)>;

/// Reads none.
pub fn no_files(path: &Path) -> Result<Secret, (String, String)> {
    Err((format!("{} is not read here", path.display()), "write the value".to_owned()))
}

impl ValueKind {
    pub fn read(
        self,
        raw: &RawValue,
        env: Lookup<'_>,
        files: ReadSecret<'_>,
    ) -> Result<SettingValue, BadValue> {
        Ok(match self {
            ValueKind::Url | ValueKind::Secret => {
                SettingValue::Secret(self.read_secret(raw, env, files)?)
            }
            ValueKind::Bool => SettingValue::Bool(match raw {
                RawValue::Bool(flag) => *flag,
                RawValue::Word(word) => word.parse().map_err(|_| {
                    bad(format!("{word:?} is not true or false"), "write true or false")
                })?,
                other => return Err(self.mismatch(other)),
            }),
            ValueKind::Integer(min, max) => {
                SettingValue::Integer(self.read_integer(raw, (min, max))?)
            }
            ValueKind::Ratio => {
                let text = match raw {
                    RawValue::Integer(number) => number.to_string(),
                    RawValue::Float(text) | RawValue::Word(text) => text.trim().replace('_', ""),
                    other => return Err(self.mismatch(other)),
                };
                let ratio = text.parse().ok();
                let show = |ratio| format!("{ratio:?}");
                let ratio = in_range(ratio, &text, (0.0, 1.0), show, "a number", "")?;
                SettingValue::Text(show(ratio))
            }
            ValueKind::Bytes(min, max) => {
                let (size, shown) = match raw {
                    RawValue::Integer(size) => {
                        (Some(*size).filter(|it| *it >= 0), size.to_string())
                    }
                    other => {
                        let text = self.text_of(other)?;
                        (units::parse_bytes(text), format!("{text:?}"))
                    }
                };
                let hint = ", as in \"64MiB\"";
                let bounds = (min, max);
                let size = in_range(size, &shown, bounds, units::show_bytes, "a size", hint)?;
                SettingValue::Integer(size)
            }
            ValueKind::Duration(min_ms, max_ms) => {
                let text = self.text_of(raw)?;
                let (ms, shown) = (units::parse_duration_ms(text), format!("{text:?}"));
                let show = |ms| units::show_duration(Duration::from_millis(ms));
                let hint = " with its unit, as in \"200ms\" or \"30s\"";
                let ms = in_range(ms, &shown, (min_ms, max_ms), show, "a duration", hint)?;
                SettingValue::Duration(Duration::from_millis(ms))
            }
            ValueKind::Strings(rule) => SettingValue::Strings(self.read_strings(raw, rule)?),
            ValueKind::Text(_) | ValueKind::Template | ValueKind::Choice(_) => {
                let text = self.text_of(raw)?;
                self.check_text(text)?;
                SettingValue::Text(text.to_owned())
            }
        })
    }

    fn read_integer(self, raw: &RawValue, bounds: (i64, i64)) -> Result<i64, BadValue> {
        let (number, shown) = match raw {
            RawValue::Integer(number) => (Some(*number), number.to_string()),
            RawValue::Word(word) => match word.trim().replace('_', "").parse() {
                Ok(number) => (Some(number), i64::to_string(&number)),
                Err(_) => (None, format!("{word:?}")),
            },
            other => return Err(self.mismatch(other)),
        };
        let show = |number| i64::to_string(&number);
        in_range(number, &shown, bounds, show, "an integer", "")
    }

    fn text_of(self, raw: &RawValue) -> Result<&str, BadValue> {
        match raw {
            RawValue::Word(text) | RawValue::Text(text) => Ok(text),
            other => Err(self.mismatch(other)),
        }
    }

    fn mismatch(self, raw: &RawValue) -> BadValue {
        let found = match raw {
            RawValue::Word(_) | RawValue::Text(_) => "a string",
            RawValue::Bool(_) => "a boolean",
            RawValue::Integer(_) => "an integer",
            RawValue::Float(_) => "a float",
            RawValue::List(_) => "an array",
            RawValue::Variable(_) | RawValue::File(_) => "a table",
            RawValue::Unsupported(name) => name,
        };
        let (_, name, example) = self.described();
        bad(format!("expected {name}, found {found}"), format!("write {example}"))
    }

    fn check_text(self, text: &str) -> Result<(), BadValue> {
        match self {
            ValueKind::Text(rule) | ValueKind::Strings(rule) if !(rule.holds)(text) => {
                let wanted = rule.wanted;
                Err(bad(format!("{text:?} is not {wanted}"), format!("write {wanted}")))
            }
            ValueKind::Template => Template::parse(text).map(drop).map_err(|error| {
                bad(error.to_string(), "write a column as ${name}, a literal \"${\" as $${")
            }),
            ValueKind::Choice(words) if !words().contains(&text) => {
                let all = words().join(", ");
                let near = nearest(text, words());
                let hint = near.map_or_else(String::new, |near| format!("did you mean {near:?}? "));
                Err(bad(format!("{text:?} is not one of {all}"), format!("{hint}use one of {all}")))
            }
            _ => Ok(()),
        }
    }

    fn read_secret(
        self,
        raw: &RawValue,
        env: Lookup<'_>,
        files: ReadSecret<'_>,
    ) -> Result<Secret, BadValue> {
        let is_url = matches!(self, ValueKind::Url);
        let secret = match raw {
            RawValue::Word(text) | RawValue::Text(text) => Secret::new(text),
            // Client properties: `linger.ms = 5`, `enable.idempotence = true`.
            RawValue::Bool(flag) if !is_url => Secret::new(flag.to_string()),
            RawValue::Integer(number) if !is_url => Secret::new(number.to_string()),
            RawValue::Variable(name) => Secret::new(env(name).ok_or_else(|| {
                let what = format!("environment variable {name} is not set");
                bad(what, format!("export {name}=..."))
            })?),
            RawValue::File(path) => files(Path::new(path))
                .map_err(|(what, mend)| BadValue { may_pass: true, ..bad(what, mend) })?,
            other => return Err(self.mismatch(other)),
        };
        if secret.is_empty() && is_url {
            return Err(bad("the value is empty", format!("write {}", self.described().2)));
        }
        Ok(secret)
    }

    fn read_strings(self, raw: &RawValue, rule: TextRule) -> Result<Vec<String>, BadValue> {
        let texts: Vec<String> = match raw {
            RawValue::Word(word) => {
                let parts = word.split(',').map(str::trim).filter(|part| !part.is_empty());
                parts.map(str::to_owned).collect()
            }
            RawValue::List(items) => {
                let text = |item| ValueKind::Text(rule).text_of(item).map(str::to_owned);
                items.iter().map(text).collect::<Result<_, _>>()?
            }
            other => return Err(self.mismatch(other)),
        };
        texts.iter().try_for_each(|text| self.check_text(text))?;
        Ok(texts)
    }

    /// How docs/configuration.md names this kind.
    pub fn documented(self) -> String {
        self.described().0
    }

    /// Its name in the documentation; its name and an example for error texts.
    fn described(self) -> (String, &'static str, String) {
        const SECRET: &str = "\"value\", { env = \"NAME\" } or { file = \"/run/secrets/x\" }";
        let fixed = |doc: &str, name, example: &str| (doc.to_owned(), name, example.to_owned());
        match self {
            ValueKind::Text(rule) => fixed("string", "a string", rule.wanted),
            ValueKind::Template => {
                let example = "a text with columns in it, as in \"outbox.event.${aggregatetype}\"";
                fixed("template", "a template", example)
            }
            ValueKind::Url => {
                fixed("URL, secret", "a URL, { env = \"NAME\" } or { file = \"PATH\" }", SECRET)
            }
            ValueKind::Secret => {
                fixed("secret", "a string, { env = \"NAME\" } or { file = \"PATH\" }", SECRET)
            }
            ValueKind::Bool => fixed("true or false", "true or false", "true or false"),
            ValueKind::Integer(min, max) => {
                let example = format!("an integer from {min} to {max}");
                (format!("integer, {min} to {max}"), "an integer", example)
            }
            ValueKind::Ratio => {
                fixed("number, 0 to 1", "a number", "a number from 0 to 1, as in 0.1")
            }
            ValueKind::Bytes(min, max) => {
                let [min, max] = [min, max].map(units::show_bytes);
                fixed(&format!("size, {min} to {max}"), "a size", "a size, as in \"64MiB\"")
            }
            ValueKind::Duration(min_ms, max_ms) => {
                let [min, max] =
                    [min_ms, max_ms].map(|ms| units::show_duration(Duration::from_millis(ms)));
                let example = "a duration, as in \"200ms\" or \"30s\"";
                fixed(&format!("duration, {min} to {max}"), "a duration", example)
            }
            ValueKind::Choice(words) => {
                let (words, example) = (words(), format!("one of {}", words().join(", ")));
                (format!("`{}`", words.join("`, `")), "one of a few words", example)
            }
            ValueKind::Strings(_) => {
                fixed("list of strings", "an array of strings", "an array, as in [\"a\", \"b\"]")
            }
        }
    }
}

/// Returns `value` if it was understood and is within the bounds; `shown` is how it was written.
fn in_range<T: PartialOrd + Copy>(
    value: Option<T>,
    shown: &str,
    (min, max): (T, T),
    show: impl Fn(T) -> String,
    name: &str,
    hint: &str,
) -> Result<T, BadValue> {
    let (least, most) = (show(min), show(max));
    let what = match value {
        Some(value) if min <= value && value <= max => return Ok(value),
        Some(_) => format!("{shown} is not in the range {least} to {most}"),
        None => format!("{shown} is not {name}"),
    };
    Err(bad(what, format!("write {name} from {least} to {most}{hint}")))
}

#[cfg(test)]
#[path = "kind_tests.rs"]
mod tests;
