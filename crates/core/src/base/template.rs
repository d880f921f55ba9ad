//! Templates such as `outbox.event.${aggregatetype}`: text with names of columns. `${headers.type}`
//! is a member of a column that holds JSON, `${table}` the name of the table; a column whose name has
//! a dot, or is `table`, is written in double quotes. `$${` is a literal `${`.

use std::borrow::Cow;
use std::fmt;

use super::json_path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Literal(String),
    /// Is replaced by the text of this column.
    Column(String),
    /// Is replaced by the text of the member at this path of the JSON in this column.
    Member {
        column: String,
        path: Vec<String>,
    },
    /// Is replaced by the name of the table.
    Table,
}

impl Part {
    /// The column whose value it needs.
    pub fn column(&self) -> Option<&str> {
        match self {
            Part::Column(column) | Part::Member { column, .. } => Some(column),
            Part::Literal(_) | Part::Table => None,
        }
    }

    /// Reads what stands between the braces.
    fn named(name: &str) -> Option<Part> {
        let mut rest = name;
        let mut steps = Vec::new();
        loop {
            let (step, after) = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
            };
            if step.is_empty() {
                return None;
            }
            steps.push(step.to_owned());
            match after.strip_prefix('.') {
                Some(after) => rest = after,
                None if after.is_empty() => break,
                None => return None,
            }
        }
        let column = steps.remove(0);
        Some(match steps.is_empty() {
            false => Part::Member { column, path: steps },
            true if name == "table" => Part::Table,
            true => Part::Column(column),
        })
    }
}

/// A step of a name, quoted where it has to be.
struct Step<'s>(&'s str);

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.contains('.') {
            true => write!(f, "\"{}\"", self.0),
            false => f.write_str(self.0),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Literal(text) => f.write_str(&text.replace("${", "$${")),
            Part::Table => f.write_str("${table}"),
            Part::Column(name) if name == "table" => f.write_str("${\"table\"}"),
            Part::Column(name) => write!(f, "${{{}}}", Step(name)),
            Part::Member { column, path } => {
                write!(f, "${{{}", Step(column))?;
                path.iter().try_for_each(|name| write!(f, ".{}", Step(name)))?;
                f.write_str("}")
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("\"${{\" at character {0} is never closed with \"}}\"")]
    Unclosed(usize),
    #[error("\"${{}}\" at character {0} names no column")]
    Empty(usize),
    #[error("\"${{{1}}}\" at character {0} is no name, nor names joined by dots")]
    BadName(usize, String),
}

/// As it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| part.fmt(f))
    }
}

impl Template {
    pub fn parse(text: &str) -> Result<Template, TemplateError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let offset = text.len() - rest.len() + at;
            if rest[..at].ends_with('$') {
                literal.push_str(&rest[..at]);
                literal.push('{');
                rest = &rest[at + 2..];
                continue;
            }
            literal.push_str(&rest[..at]);
            let close = rest[at..].find('}').ok_or(TemplateError::Unclosed(offset))?;
            let column = rest[at + 2..at + close].trim();
            if column.is_empty() {
                return Err(TemplateError::Empty(offset));
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            let named = Part::named(column);
            parts.push(named.ok_or_else(|| TemplateError::BadName(offset, column.to_owned()))?);
            rest = &rest[at + close + 1..];
        }
        literal.push_str(rest);
        if !literal.is_empty() || parts.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Template { parts })
    }

    /// A template of this text alone.
    #[must_use]
    pub fn literal(text: &str) -> Template {
        Template { parts: vec![Part::Literal(text.to_owned())] }
    }

    /// A template of this column alone.
    pub fn column(name: &str) -> Template {
        Template { parts: vec![Part::Column(name.to_owned())] }
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The names of its columns in order.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(Part::column)
    }

    /// Whether `${table}` is in it.
    pub fn names_table(&self) -> bool {
        self.parts.contains(&Part::Table)
    }

    /// With the name of the table in the place of `${table}`.
    #[must_use]
    pub fn for_table(&self, table: &str) -> Template {
        let mut parts: Vec<Part> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let text = match part {
                Part::Table => table,
                Part::Literal(text) => text,
                Part::Column(_) | Part::Member { .. } => {
                    parts.push(part.clone());
                    continue;
                }
            };
            match parts.last_mut() {
                Some(Part::Literal(before)) => before.push_str(text),
                _ => parts.push(Part::Literal(text.to_owned())),
            }
        }
        Template { parts }
    }

    /// None when a column has no value.
    pub fn render<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
        let part = |part: &Part| match part {
            Part::Literal(text) => Some(text.clone()),
            Part::Column(name) => value(name).map(str::to_owned),
            Part::Member { column, path } => {
                let json = json_path::member(value(column)?.as_bytes(), path).ok()??;
                json_path::text_of(json).ok().map(Cow::into_owned)
            }
            Part::Table => None,
        };
        self.parts.iter().map(part).collect()
    }

    /// Could it become `text`, with some value in each column?
    #[must_use]
    pub fn could_become(&self, text: &str) -> bool {
        let mut rest = text;
        let mut after_column = false;
        for (at, part) in self.parts.iter().enumerate() {
            let Part::Literal(literal) = part else {
                after_column = true;
                continue;
            };
            let is_last = at + 1 == self.parts.len();
            let found = match after_column {
                false => rest.strip_prefix(literal.as_str()),
                true if is_last => return rest.ends_with(literal.as_str()),
                true => rest.split_once(literal.as_str()).map(|(_, rest)| rest),
            };
            let Some(found) = found else { return false };
            (rest, after_column) = (found, false);
        }
        after_column || rest.is_empty()
    }

    /// Its text if it has no column.
    pub fn constant(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
