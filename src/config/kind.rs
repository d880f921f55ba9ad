//! What a value may be, and how it is read.
//!
//! The file gives typed values, the environment and flags give words; both end in the same
//! [`Value`] after the same checks. A complaint about a secret never quotes it.

use std::net::SocketAddr;
use std::time::Duration;

use crate::base::secret::Secret;
use crate::outbox::template::Template;

use super::units;

/// The kind of a configuration value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text(Rule),
    Template,
    /// A secret that is shown with its password masked.
    Url,
    Secret,
    Bool,
    Integer {
        min: i64,
        max: i64,
    },
    Bytes {
        min: u64,
        max: u64,
    },
    Duration {
        min_ms: u64,
        max_ms: u64,
    },
    Choice(&'static [&'static str]),
    Strings(Rule),
    Address,
}

/// What a text must look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// The same in the language of JSON Schema.
    pub(crate) pattern: &'static str,
    pub(crate) wanted: &'static str,
    pub(crate) holds: fn(&str) -> bool,
}

/// The rules there are.
pub(crate) mod rule {
    use super::Rule;

    pub(crate) const FILLED: Rule = Rule {
        pattern: "^.+$",
        wanted: "a text that is not empty",
        holds: |text| !text.is_empty(),
    };
    pub(crate) const SLOT: Rule = Rule {
        pattern: "^[a-z0-9_]{1,63}$",
        wanted: "1 to 63 lower-case letters, digits and underscores",
        holds: |text| (1..=63).contains(&text.len()) && text.bytes().all(slot_byte),
    };
    pub(crate) const IDENTIFIER: Rule = Rule {
        pattern: "^.{1,63}$",
        wanted: "a Postgres identifier of 1 to 63 bytes, without quotes",
        holds: identifier,
    };
    pub(crate) const TABLE: Rule = Rule {
        pattern: "^[^.\"]{1,63}(\\.[^.\"]{1,63})?$",
        wanted: "schema.table, without quotes",
        holds: |text| match text.split_once('.') {
            Some((schema, table)) => {
                identifier(schema) && identifier(table) && !table.contains('.')
            }
            None => identifier(text),
        },
    };
    pub(crate) const TOPIC: Rule = Rule {
        pattern: "^[A-Za-z0-9._-]{1,249}$",
        wanted: "1 to 249 letters, digits, dots, underscores and dashes",
        holds: |text| {
            (1..=249).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
                && text != "."
                && text != ".."
        },
    };
    pub(crate) const BROKERS: Rule = Rule {
        pattern: "^[^,\\s]+(,\\s*[^,\\s]+)*$",
        wanted: "host:port,host:port",
        holds: |text| text.split(',').all(|broker| broker_address(broker.trim())),
    };
    pub(crate) const EXCHANGE_TYPE: Rule = Rule {
        pattern: "^(topic|direct|fanout|headers|x-.{1,253})$",
        wanted: "topic, direct, fanout, headers, or a type that begins with x-",
        holds: |text| {
            ["topic", "direct", "fanout", "headers"].contains(&text)
                || (text.starts_with("x-") && (3..=NAME_BYTES_MAX).contains(&text.len()))
        },
    };
    pub(crate) const BINDING_KEY: Rule = Rule {
        pattern: "^.{0,255}$",
        wanted: "a binding key of at most 255 bytes",
        holds: |text| text.len() <= NAME_BYTES_MAX,
    };

    /// Most bytes of a name in AMQP.
    pub(crate) const NAME_BYTES_MAX: usize = 255;

    fn slot_byte(byte: u8) -> bool {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
    }

    fn identifier(text: &str) -> bool {
        (1..=63).contains(&text.len()) && !text.contains(['"', '\0'])
    }

    fn broker_address(text: &str) -> bool {
        let address = text.rsplit_once("://").map_or(text, |(_, address)| address);
        let bracketed = address.starts_with('[');
        let port = match address.rsplit_once(':') {
            Some((host, port)) if !bracketed || host.ends_with(']') => Some((host, port)),
            _ => None,
        };
        !address.contains(char::is_whitespace)
            && match port {
                Some((host, port)) => {
                    !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
                }
                None => !address.is_empty(),
            }
    }
}

/// A value as it was given. No `Debug`: it may be a secret.
#[derive(Clone)]
pub(crate) enum Raw {
    /// Text without a type, from the environment or a flag.
    Word(String),
    Text(String),
    Bool(bool),
    Integer(i64),
    List(Vec<Raw>),
    /// `{ env = "NAME" }`.
    Variable(String),
    /// `{ file = "/run/secrets/x" }`.
    File(String),
    /// Something that no key takes; the text names it.
    Foreign(&'static str),
}

/// A value of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Secret(Secret),
    Bool(bool),
    Integer(i64),
    Bytes(u64),
    Duration(Duration),
    Strings(Vec<String>),
}

/// Why a value will not do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) what: String,
    pub(crate) mend: String,
}

impl Wrong {
    fn new(what: impl Into<String>, mend: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), mend: mend.into() }
    }
}

/// Looks up an environment variable.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads `raw` as a value of `kind`.
pub(crate) fn read(kind: Kind, raw: &Raw, env: Lookup<'_>) -> Result<Value, Wrong> {
    match kind {
        Kind::Url | Kind::Secret => read_secret(kind, raw, env).map(Value::Secret),
        Kind::Bool => read_bool(raw).map(Value::Bool),
        Kind::Integer { min, max } => read_integer(raw, min, max).map(Value::Integer),
        Kind::Bytes { min, max } => read_bytes(raw, min, max).map(Value::Bytes),
        Kind::Duration { min_ms, max_ms } => {
            read_duration(raw, min_ms, max_ms).map(Value::Duration)
        }
        Kind::Strings(rule) => read_strings(raw, rule).map(Value::Strings),
        Kind::Text(_) | Kind::Template | Kind::Choice(_) | Kind::Address => {
            let text = text_of(kind, raw)?;
            check_text(kind, text).map(|()| Value::Text(text.to_owned()))
        }
    }
}

fn text_of(kind: Kind, raw: &Raw) -> Result<&str, Wrong> {
    match raw {
        Raw::Word(text) | Raw::Text(text) => Ok(text),
        other => Err(mismatch(kind, other)),
    }
}

fn mismatch(kind: Kind, raw: &Raw) -> Wrong {
    let got = match raw {
        Raw::Word(_) | Raw::Text(_) => "a string",
        Raw::Bool(_) => "a boolean",
        Raw::Integer(_) => "an integer",
        Raw::List(_) => "an array",
        Raw::Variable(_) | Raw::File(_) => "a table",
        Raw::Foreign(name) => name,
    };
    Wrong::new(
        format!("expected {}, found {got}", describe(kind)),
        format!("write {}", example(kind)),
    )
}

fn check_text(kind: Kind, text: &str) -> Result<(), Wrong> {
    match kind {
        Kind::Text(rule) | Kind::Strings(rule) if !(rule.holds)(text) => Err(Wrong::new(
            format!("{text:?} is not {}", rule.wanted),
            format!("write {}", rule.wanted),
        )),
        Kind::Template => Template::parse(text).map(|_| ()).map_err(|error| {
            Wrong::new(error.to_string(), "write a column as ${name}, a literal \"${\" as $${")
        }),
        Kind::Choice(choices) if !choices.contains(&text) => {
            let nearest = units::nearest(text, choices.iter().copied());
            let hint = nearest.map_or_else(String::new, |near| format!("did you mean {near:?}? "));
            Err(Wrong::new(
                format!("{text:?} is not one of {}", choices.join(", ")),
                format!("{hint}use one of {}", choices.join(", ")),
            ))
        }
        Kind::Address if text.parse::<SocketAddr>().is_err() => Err(Wrong::new(
            format!("{text:?} is not an address with a port"),
            "write an IP address and a port, as in 127.0.0.1:9464",
        )),
        _ => Ok(()),
    }
}

fn read_secret(kind: Kind, raw: &Raw, env: Lookup<'_>) -> Result<Secret, Wrong> {
    let secret = match raw {
        Raw::Word(text) | Raw::Text(text) => text.clone(),
        // Client properties are text to the client library, whatever they look like in TOML.
        Raw::Bool(flag) if matches!(kind, Kind::Secret) => flag.to_string(),
        Raw::Integer(number) if matches!(kind, Kind::Secret) => number.to_string(),
        Raw::Variable(name) => env(name).ok_or_else(|| {
            Wrong::new(
                format!("environment variable {name} is not set"),
                format!("export {name}=..."),
            )
        })?,
        Raw::File(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                let reason = error.kind();
                Wrong::new(format!("cannot read {path}: {reason}"), format!("ls -l {path}"))
            })?;
            let line = text.strip_suffix('\n').unwrap_or(&text);
            line.strip_suffix('\r').unwrap_or(line).to_owned()
        }
        other @ (Raw::Bool(_) | Raw::Integer(_) | Raw::List(_) | Raw::Foreign(_)) => {
            return Err(mismatch(kind, other));
        }
    };
    if secret.is_empty() && matches!(kind, Kind::Url) {
        return Err(Wrong::new("the value is empty", format!("write {}", example(kind))));
    }
    Ok(Secret::new(secret))
}

fn read_bool(raw: &Raw) -> Result<bool, Wrong> {
    match raw {
        Raw::Bool(flag) => Ok(*flag),
        Raw::Word(word) if word == "true" => Ok(true),
        Raw::Word(word) if word == "false" => Ok(false),
        Raw::Word(word) => {
            Err(Wrong::new(format!("{word:?} is not true or false"), "write true or false"))
        }
        other => Err(mismatch(Kind::Bool, other)),
    }
}

fn read_integer(raw: &Raw, min: i64, max: i64) -> Result<i64, Wrong> {
    let mend = || format!("write an integer from {min} to {max}");
    let number = match raw {
        Raw::Integer(number) => *number,
        Raw::Word(word) => word
            .trim()
            .replace('_', "")
            .parse()
            .map_err(|_| Wrong::new(format!("{word:?} is not an integer"), mend()))?,
        other => return Err(mismatch(Kind::Integer { min, max }, other)),
    };
    if (min..=max).contains(&number) {
        Ok(number)
    } else {
        Err(Wrong::new(format!("{number} is not in the range {min} to {max}"), mend()))
    }
}

fn read_bytes(raw: &Raw, min: u64, max: u64) -> Result<u64, Wrong> {
    let kind = Kind::Bytes { min, max };
    let (least, most) = (units::show_bytes(min), units::show_bytes(max));
    let mend = format!("write a size from {least} to {most}, as in \"64MiB\"");
    let (size, shown) = match raw {
        Raw::Integer(number) => (u64::try_from(*number).ok(), number.to_string()),
        other => {
            let text = text_of(kind, other)?;
            (units::parse_bytes(text), format!("{text:?}"))
        }
    };
    match size {
        Some(size) if (min..=max).contains(&size) => Ok(size),
        Some(_) => Err(Wrong::new(format!("{shown} is not in the range {least} to {most}"), mend)),
        None => Err(Wrong::new(format!("{shown} is not a size"), mend)),
    }
}

fn read_duration(raw: &Raw, min_ms: u64, max_ms: u64) -> Result<Duration, Wrong> {
    let text = text_of(Kind::Duration { min_ms, max_ms }, raw)?;
    let least = units::show_duration(Duration::from_millis(min_ms));
    let most = units::show_duration(Duration::from_millis(max_ms));
    let mend = format!(
        "write a duration from {least} to {most} with its unit, as in \"200ms\" or \"30s\""
    );
    match units::parse_duration_ms(text) {
        Some(ms) if (min_ms..=max_ms).contains(&ms) => Ok(Duration::from_millis(ms)),
        Some(_) => Err(Wrong::new(format!("{text:?} is not in the range {least} to {most}"), mend)),
        None => Err(Wrong::new(format!("{text:?} is not a duration"), mend)),
    }
}

fn read_strings(raw: &Raw, rule: Rule) -> Result<Vec<String>, Wrong> {
    let kind = Kind::Strings(rule);
    let texts: Vec<String> = match raw {
        Raw::Word(word) => word
            .split(',')
            .map(|part| part.trim().to_owned())
            .filter(|part| !part.is_empty())
            .collect(),
        Raw::List(items) => items
            .iter()
            .map(|item| match item {
                Raw::Text(text) | Raw::Word(text) => Ok(text.clone()),
                other => Err(mismatch(Kind::Text(rule), other)),
            })
            .collect::<Result<_, _>>()?,
        other => return Err(mismatch(kind, other)),
    };
    texts.iter().try_for_each(|text| check_text(kind, text))?;
    Ok(texts)
}

/// What a value of `kind` is called.
pub(crate) fn describe(kind: Kind) -> &'static str {
    match kind {
        Kind::Text(_) => "a string",
        Kind::Template => "a template",
        Kind::Url => "a URL, { env = \"NAME\" } or { file = \"PATH\" }",
        Kind::Secret => "a string, { env = \"NAME\" } or { file = \"PATH\" }",
        Kind::Bool => "true or false",
        Kind::Integer { .. } => "an integer",
        Kind::Bytes { .. } => "a size",
        Kind::Duration { .. } => "a duration",
        Kind::Choice(_) => "one of a few words",
        Kind::Strings(_) => "an array of strings",
        Kind::Address => "an address with a port",
    }
}

fn example(kind: Kind) -> String {
    match kind {
        Kind::Text(rule) => rule.wanted.to_owned(),
        Kind::Template => {
            "a text with columns in it, as in \"outbox.event.${aggregatetype}\"".to_owned()
        }
        Kind::Url | Kind::Secret => {
            "\"value\", { env = \"NAME\" } or { file = \"/run/secrets/x\" }".to_owned()
        }
        Kind::Bool => "true or false".to_owned(),
        Kind::Integer { min, max } => format!("an integer from {min} to {max}"),
        Kind::Bytes { .. } => "a size, as in \"64MiB\"".to_owned(),
        Kind::Duration { .. } => "a duration, as in \"200ms\" or \"30s\"".to_owned(),
        Kind::Choice(choices) => format!("one of {}", choices.join(", ")),
        Kind::Strings(_) => "an array, as in [\"a\", \"b\"]".to_owned(),
        Kind::Address => "an IP address and a port, as in \"127.0.0.1:9464\"".to_owned(),
    }
}

#[cfg(test)]
#[path = "kind_tests.rs"]
mod tests;
