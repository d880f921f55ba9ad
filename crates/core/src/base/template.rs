//! Templates such as `outbox.event.${aggregatetype}`: text with names of columns. `$${` is a
//! literal `${`.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Literal(String),
    /// Is replaced by the text of this column.
    Column(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("\"${{\" at character {0} is never closed with \"}}\"")]
    Unclosed(usize),
    #[error("\"${{}}\" at character {0} names no column")]
    Empty(usize),
}

/// As it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Literal(text) => f.write_str(&text.replace("${", "$${")),
            Part::Column(name) => write!(f, "${{{name}}}"),
        })
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
            parts.push(Part::Column(column.to_owned()));
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
        self.parts.iter().filter_map(|part| match part {
            Part::Column(name) => Some(name.as_str()),
            Part::Literal(_) => None,
        })
    }

    /// None when a column has no value.
    pub fn render<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
        let part = |part: &Part| match part {
            Part::Literal(text) => Some(text.clone()),
            Part::Column(name) => value(name).map(str::to_owned),
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
