//! The kinds of values. A kind is a type: it knows how its values are called, parsed, shown and described
//! to editors. Values of the file have types, those of the environment and of flags are words; both
//! pass the same checks. An error about a secret never quotes it.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::units;
use crate::base::secret::Secret;
use crate::base::template::Template;
use crate::base::text::nearest;

pub trait Kind {
    /// The type that a value is parsed as.
    type Value: Serialize;

    /// A word that begins with it is TOML.
    const TOML: Option<char> = None;

    fn described(&self) -> Described;

    fn parse(&self, raw: &Raw) -> Result<Self::Value, BadValue>;

    /// The value as it is shown, with secrets hidden.
    fn show(&self, value: &Self::Value) -> Json {
        json!(value)
    }

    /// The value with nothing hidden; null for a secret that is read again for each connection.
    fn expose(&self, value: &Self::Value) -> Json {
        self.show(value)
    }
}

/// How a kind is called in docs/configuration.md, after "expected" and after "write", and its JSON Schema.
#[derive(Clone)]
pub struct Described {
    pub documented: String,
    pub noun: &'static str,
    pub example: String,
    pub schema: Json,
}

impl Described {
    fn new(
        documented: impl Into<String>,
        noun: &'static str,
        example: impl Into<String>,
        schema: Json,
    ) -> Described {
        Described { documented: documented.into(), noun, example: example.into(), schema }
    }
}

/// A value as it was given. No `Debug`: it may be a secret.
pub enum Raw {
    /// From the environment or a flag, without a type.
    Word(String),
    Text(String),
    Bool(bool),
    Integer(i64),
    /// As it was written.
    Float(String),
    List(Vec<Raw>),
    /// `{ env = … }` or `{ file = … }`: reads the secret.
    Reference(Box<dyn Fn() -> Result<Secret, BadValue>>),
    /// Something that no key accepts; the text says what that is.
    Unsupported(&'static str),
    /// The beginning of a section.
    Section,
}

impl Raw {
    /// Word or text.
    pub fn text(&self) -> Option<&str> {
        if let Raw::Word(text) | Raw::Text(text) = self { Some(text) } else { None }
    }

    pub fn is_reference(&self) -> bool {
        matches!(self, Raw::Reference(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue {
    pub what: String,
    pub mend: String,
    /// Whether a later start may read it: something else has yet to write a file.
    pub may_pass: bool,
}

fn bad<T>(what: impl Into<String>, mend: impl Into<String>) -> Result<T, BadValue> {
    Err(BadValue { what: what.into(), mend: mend.into(), may_pass: false })
}

impl BadValue {
    fn mismatch(kind: &impl Kind, raw: &Raw) -> BadValue {
        let found = match raw {
            Raw::Word(_) | Raw::Text(_) => "a string",
            Raw::Bool(_) => "a boolean",
            Raw::Integer(_) => "an integer",
            Raw::Float(_) => "a float",
            Raw::List(_) => "an array",
            Raw::Reference(_) | Raw::Section => "a table",
            Raw::Unsupported(name) => name,
        };
        let Described { noun, example, .. } = kind.described();
        let (what, mend) = (format!("expected {noun}, found {found}"), format!("write {example}"));
        BadValue { what, mend, may_pass: false }
    }
}

/// A rule that texts follow.
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
    wanted: "a text of one character or more",
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
    holds: |text| is_dotted(text, 249) && text != "." && text != "..",
};
pub const ADDRESS: TextRule = TextRule {
    pattern: "^.+:[0-9]+$",
    wanted: "an IP address and a port, as in 127.0.0.1:9464",
    holds: |text| text.parse::<core::net::SocketAddr>().is_ok(),
};
pub const HOST_NAME: TextRule = TextRule {
    pattern: "^[A-Za-z0-9._-]{1,253}$",
    wanted: "a host name without scheme and port, as in relay.example.org",
    holds: |text| is_dotted(text, 253),
};

/// Letters, digits, dots, underscores and dashes.
fn is_dotted(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

type Check = dyn Fn(&str) -> Result<(), BadValue>;

/// Texts that pass a check.
pub struct Text {
    described: Described,
    check: Box<Check>,
}

impl Text {
    pub fn of(rule: TextRule) -> Text {
        let TextRule { pattern, wanted, holds } = rule;
        let schema = json!({ "type": "string", "pattern": pattern });
        let check = move |text: &str| match holds(text) {
            true => Ok(()),
            false => bad(format!("{text:?} is not {wanted}"), format!("write {wanted}")),
        };
        Text::new("string", "a string", wanted, schema, check)
    }

    /// Texts with columns in them.
    pub fn template() -> Text {
        let example = "a text with columns in it, as in \"outbox.event.${aggregatetype}\"";
        let mend = "write a column as ${name}, a literal \"${\" as $${";
        let check = move |text: &str| match Template::parse(text) {
            Ok(_) => Ok(()),
            Err(error) => bad(error.to_string(), mend),
        };
        Text::new("template", "a template", example, json!({ "type": "string" }), check)
    }

    pub fn one_of(words: Vec<&'static str>) -> Text {
        let (documented, all) = (format!("`{}`", words.join("`, `")), words.join(", "));
        let (example, schema) = (format!("one of {all}"), json!({ "enum": words }));
        let check = move |text: &str| {
            if words.contains(&text) {
                return Ok(());
            }
            let near = nearest(text, words.iter().copied());
            let hint = near.map_or_else(String::new, |near| format!("did you mean {near:?}? "));
            bad(format!("{text:?} is not one of {all}"), format!("{hint}use one of {all}"))
        };
        Text::new(&documented, "one of a few words", &example, schema, check)
    }

    fn new(
        documented: &str,
        noun: &'static str,
        example: &str,
        schema: Json,
        check: impl Fn(&str) -> Result<(), BadValue> + 'static,
    ) -> Text {
        let described = Described::new(documented, noun, example, schema);
        Text { described, check: Box::new(check) }
    }

    fn text<'r>(&self, raw: &'r Raw) -> Result<&'r str, BadValue> {
        raw.text().ok_or_else(|| BadValue::mismatch(self, raw))
    }
}

impl Kind for Text {
    type Value = String;

    fn described(&self) -> Described {
        self.described.clone()
    }

    fn parse(&self, raw: &Raw) -> Result<String, BadValue> {
        let text = self.text(raw)?;
        (self.check)(text).map(|()| text.to_owned())
    }
}

/// Lists of texts.
pub struct Strings(pub Text);

impl Kind for Strings {
    type Value = Vec<String>;
    const TOML: Option<char> = Some('[');

    fn described(&self) -> Described {
        let (noun, example) = ("an array of strings", "an array, as in [\"a\", \"b\"]");
        let schema = json!({ "type": "array", "items": self.0.described.schema });
        Described::new("list of strings", noun, example, schema)
    }

    fn parse(&self, raw: &Raw) -> Result<Vec<String>, BadValue> {
        let texts: Vec<&str> = match raw {
            Raw::Word(word) => word.split(',').map(str::trim).filter(|it| !it.is_empty()).collect(),
            Raw::List(items) => items.iter().map(|it| self.0.text(it)).collect::<Result<_, _>>()?,
            other => return Err(BadValue::mismatch(self, other)),
        };
        texts.iter().try_for_each(|text| (self.0.check)(text))?;
        Ok(texts.into_iter().map(str::to_owned).collect())
    }
}

/// Secrets; one that is a URL is shown with its password masked.
pub struct SecretText {
    pub is_url: bool,
}

impl Kind for SecretText {
    type Value = Secret;
    const TOML: Option<char> = Some('{');

    fn described(&self) -> Described {
        const EXAMPLE: &str = "\"value\", { env = \"NAME\" } or { file = \"/run/secrets/x\" }";
        if self.is_url {
            let noun = "a URL, { env = \"NAME\" } or { file = \"PATH\" }";
            return Described::new(
                "URL, secret",
                noun,
                EXAMPLE,
                json!({ "$ref": "#/$defs/secret" }),
            );
        }
        let noun = "a string, { env = \"NAME\" } or { file = \"PATH\" }";
        // Client properties may be spelt as TOML numbers and booleans.
        let types = json!([{ "$ref": "#/$defs/secret" }, { "type": ["integer", "boolean"] }]);
        Described::new("secret", noun, EXAMPLE, json!({ "anyOf": types }))
    }

    fn parse(&self, raw: &Raw) -> Result<Secret, BadValue> {
        let secret = match raw {
            Raw::Word(text) | Raw::Text(text) => match variable(text).filter(|_| self.is_url) {
                Some(name) => {
                    return bad(
                        "variables are not expanded in a value",
                        format!("write {{ env = \"{name}\" }}"),
                    );
                }
                None => Secret::new(text),
            },
            Raw::Bool(flag) if !self.is_url => Secret::new(flag.to_string()),
            Raw::Integer(number) if !self.is_url => Secret::new(number.to_string()),
            Raw::Reference(read) => read()?,
            other => return Err(BadValue::mismatch(self, other)),
        };
        if !self.is_url || !secret.is_empty() {
            return Ok(secret);
        }
        let Some(file) = secret.file() else {
            return bad("the value is empty", format!("write {}", self.described().example));
        };
        let (what, mend) = (
            format!("the file {} is empty", file.display()),
            format!("write the URL into it: ls -l {}", file.display()),
        );
        Err(BadValue { what, mend, may_pass: true })
    }

    fn show(&self, secret: &Secret) -> Json {
        if self.is_url { json!(units::mask_url(secret.expose())) } else { json!("***") }
    }

    fn expose(&self, secret: &Secret) -> Json {
        if secret.is_of_file() { Json::Null } else { json!(secret.expose()) }
    }
}

/// The name in a text that is a variable of a shell and nothing else. No URL is one.
fn variable(text: &str) -> Option<&str> {
    let name = text.trim().strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let is_name = |name: &&str| {
        let is_first = |first: char| first.is_ascii_alphabetic() || first == '_';
        name.starts_with(is_first) && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
    };
    Some(name).filter(is_name)
}

pub struct Flag;

impl Kind for Flag {
    type Value = bool;

    fn described(&self) -> Described {
        const WORDS: &str = "true or false";
        Described::new(WORDS, WORDS, WORDS, json!({ "type": "boolean" }))
    }

    fn parse(&self, raw: &Raw) -> Result<bool, BadValue> {
        match raw {
            Raw::Bool(flag) => Ok(*flag),
            Raw::Word(word) => word
                .parse()
                .or_else(|_| bad(format!("{word:?} is not true or false"), "write true or false")),
            other => Err(BadValue::mismatch(self, other)),
        }
    }
}

/// A type of numbers that have bounds.
pub trait Number: Copy + PartialOrd + Serialize {
    /// How an example of a number with its unit is added to a text.
    const UNIT: &'static str = "";

    fn described(bounds: &Within<Self>) -> Described;

    /// The number, if it is written as one, and how it is written; none for a value of another type.
    fn read(raw: &Raw) -> Option<(Option<Self>, String)>;

    fn shown(self) -> Json {
        json!(self)
    }
}

/// Numbers between two bounds.
pub struct Within<N>(pub N, pub N);

impl<N: Number> Within<N> {
    fn bounds(&self) -> String {
        let [least, most] = [self.0, self.1].map(N::shown);
        let plain = |bound: Json| bound.as_str().map_or_else(|| bound.to_string(), str::to_owned);
        format!("{} to {}", plain(least), plain(most))
    }
}

impl<N: Number> Kind for Within<N> {
    type Value = N;

    fn described(&self) -> Described {
        N::described(self)
    }

    fn parse(&self, raw: &Raw) -> Result<N, BadValue> {
        let (number, written) = N::read(raw).ok_or_else(|| BadValue::mismatch(self, raw))?;
        let (noun, bounds) = (self.described().noun, self.bounds());
        let what = match number {
            Some(number) if self.0 <= number && number <= self.1 => return Ok(number),
            Some(_) => format!("{written} is not in the range {bounds}"),
            None => format!("{written} is not {noun}"),
        };
        bad(what, format!("write {noun} from {bounds}{}", N::UNIT))
    }

    fn show(&self, number: &N) -> Json {
        number.shown()
    }
}

impl Number for i64 {
    fn described(bounds: &Within<i64>) -> Described {
        let (Within(min, max), shown) = (bounds, bounds.bounds());
        let schema = json!({ "type": "integer", "minimum": min, "maximum": max });
        let example = format!("an integer from {shown}");
        Described::new(format!("integer, {shown}"), "an integer", example, schema)
    }

    fn read(raw: &Raw) -> Option<(Option<i64>, String)> {
        let number = match raw {
            Raw::Integer(number) => Ok(*number),
            Raw::Word(word) => word.trim().replace('_', "").parse().map_err(|_| word),
            _ => return None,
        };
        Some((number.ok(), number.map_or_else(|word| format!("{word:?}"), |it| it.to_string())))
    }
}

impl Number for f64 {
    fn described(_: &Within<f64>) -> Described {
        let schema = json!({ "type": "number", "minimum": 0, "maximum": 1 });
        let example = "a number from 0 to 1, as in 0.1";
        Described::new("number, 0 to 1", "a number", example, schema)
    }

    fn read(raw: &Raw) -> Option<(Option<f64>, String)> {
        let text = match raw {
            Raw::Integer(number) => number.to_string(),
            Raw::Float(text) | Raw::Word(text) => text.trim().replace('_', ""),
            _ => return None,
        };
        Some((text.parse().ok(), text))
    }
}

/// A size.
#[derive(Clone, Copy, PartialEq, PartialOrd, Serialize)]
pub struct Bytes(pub i64);

impl Number for Bytes {
    const UNIT: &'static str = ", as in \"64MiB\"";

    fn described(bounds: &Within<Bytes>) -> Described {
        let (documented, example) =
            (format!("size, {}", bounds.bounds()), "a size, as in \"64MiB\"");
        Described::new(documented, "a size", example, json!({ "$ref": "#/$defs/size" }))
    }

    fn read(raw: &Raw) -> Option<(Option<Bytes>, String)> {
        let (size, written) = match raw {
            Raw::Integer(size) => (Some(*size).filter(|it| *it >= 0), size.to_string()),
            other => (units::parse_bytes(other.text()?), format!("{:?}", other.text()?)),
        };
        Some((size.map(Bytes), written))
    }

    fn shown(self) -> Json {
        json!(units::show_bytes(self.0))
    }
}

impl Number for Duration {
    const UNIT: &'static str = " with its unit, as in \"200ms\" or \"30s\"";

    fn described(bounds: &Within<Duration>) -> Described {
        let documented = format!("duration, {}", bounds.bounds());
        let example = "a duration, as in \"200ms\" or \"30s\"";
        Described::new(documented, "a duration", example, json!({ "$ref": "#/$defs/duration" }))
    }

    fn read(raw: &Raw) -> Option<(Option<Duration>, String)> {
        let text = raw.text()?;
        Some((units::parse_duration_ms(text).map(Duration::from_millis), format!("{text:?}")))
    }

    fn shown(self) -> Json {
        json!(units::show_duration(self))
    }
}

#[cfg(test)]
#[path = "kind_tests.rs"]
mod tests;
