//! Adds TOML to the layers: the configuration file, and sections given by a flag. Of a syntax error
//! only message and position are reported, because the line may contain a password.

use std::ops::Range;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::layers::{Layers, Origin, Problem, of_missing_sink};
use super::path::Path;
use super::removed;
use super::sections::{keys, root};
use crate::base::settings::kind::RawValue;
use crate::base::settings::{KeyRow, Shape};
use crate::base::text::nearest;

/// Returns the origin of a span of TOML.
type Locate<'a> = &'a dyn Fn(Range<usize>) -> Origin;

pub(crate) fn read(layers: &mut Layers, name: &str, text: &str) {
    let name: Arc<str> = name.into();
    let locate = |span: Range<usize>| {
        let (line, column) = line_and_column(text, span.start);
        Origin::File { name: name.clone(), line, column }
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        set_section(layers, root(), &Path::default(), table.get_ref(), &locate);
    }
    for error in errors {
        let origin = locate(error.span().unwrap_or(0..0));
        let what = format!("not TOML: {}", error.message());
        let mend = "mend the syntax; see https://toml.io";
        layers.problems.push(Problem::new(&origin, "config.syntax", what, mend));
    }
}

/// Both count from 1; a column is a character.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[start..].chars().count() + 1)
}

fn set_section(
    layers: &mut Layers,
    section: &Shape,
    path: &Path,
    table: &DeTable<'_>,
    locate: Locate<'_>,
) {
    for (name, value) in table {
        let origin = locate(name.span());
        let name = name.get_ref();
        match section.child(name) {
            Some(shape) => {
                set_toml(layers, shape, path.child(name), value.get_ref(), &origin, locate);
            }
            None => layers.problems.push(unknown_key(section, path, name, &origin)),
        }
    }
}

pub(crate) fn set_toml(
    layers: &mut Layers,
    shape: &Shape,
    path: Path,
    value: &DeValue<'_>,
    origin: &Origin,
    locate: Locate<'_>,
) {
    match (shape, value) {
        (Shape::Key(row), _) => set_value(layers, *row, path, value, origin),
        (Shape::Section(..), DeValue::Table(table)) => {
            layers.open(path.clone(), origin);
            set_section(layers, shape, &path, table, locate);
        }
        (Shape::Map(row), DeValue::Table(table)) => {
            layers.open(path.clone(), origin);
            for (name, value) in table {
                let path = path.child(name.get_ref());
                set_value(layers, *row, path, value.get_ref(), &locate(name.span()));
            }
        }
        (Shape::Sections(element), DeValue::Array(items)) => {
            layers.remove_array(&path);
            for (index, item) in items.iter().enumerate() {
                let at = locate(item.span());
                set_toml(layers, element, path.index(index), item.get_ref(), &at, locate);
            }
        }
        (Shape::Sections(_), _) => {
            let mend = format!("write [[{}]]", path.header());
            layers.bad(&path, origin, "expected an array of tables", mend);
        }
        (Shape::Section(..) | Shape::Map(_), _) => {
            let mend = format!("write [{}]", path.header());
            layers.bad(&path, origin, "expected a table", mend);
        }
    }
}

fn set_value(layers: &mut Layers, row: KeyRow, path: Path, value: &DeValue<'_>, origin: &Origin) {
    match raw_of(value) {
        Ok(raw) => layers.set(path, row, raw, origin),
        Err(what) => {
            let mend = "write { env = \"NAME\" } or { file = \"/run/secrets/x\" }";
            layers.bad(&path, origin, what, mend);
        }
    }
}

/// Fails for a table that does not refer to a secret.
pub(crate) fn raw_of(value: &DeValue<'_>) -> Result<RawValue, &'static str> {
    Ok(match value {
        DeValue::String(text) => RawValue::Text(text.to_string()),
        DeValue::Boolean(flag) => RawValue::Bool(*flag),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(RawValue::Unsupported("an integer beyond 64 bits"), RawValue::Integer),
        DeValue::Float(number) => RawValue::Float(number.as_str().to_owned()),
        DeValue::Datetime(_) => RawValue::Unsupported("a date or time"),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| raw_of(item.get_ref()));
            RawValue::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let mut fields = table.iter().map(|(name, value)| (&**name.get_ref(), value.get_ref()));
            match (fields.next(), fields.next()) {
                (Some(("env", DeValue::String(name))), None) => {
                    RawValue::Variable(name.to_string())
                }
                (Some(("file", DeValue::String(path))), None) => RawValue::File(path.to_string()),
                _ => return Err("this table is no reference to a secret"),
            }
        }
    })
}

fn unknown_key(section: &Shape, path: &Path, name: &str, origin: &Origin) -> Problem {
    let written = path.child(name).to_string();
    let known = removed::problem(&written, &written, origin);
    if let Some(problem) = known.or_else(|| of_missing_sink(&written, origin)) {
        return problem;
    }
    let names = || section.fields().iter().map(|field| field.name);
    let elsewhere = || keys().iter().find(|key| key.name == name).map(|key| key.path());
    let near = || nearest(name, names()).map(str::to_owned);
    // At the top, a key that is one of a section is meant rather than a section of a similar name.
    let meant = if path.is_root() { elsewhere().or_else(near) } else { near().or_else(elsewhere) };
    let mend = match meant {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let names = names().collect::<Vec<_>>().join(", ");
            match path.is_root() {
                true => format!("the file knows: {names}"),
                false => format!("[{}] knows: {names}", path.header()),
            }
        }
    };
    let what = format!("unknown key `{written}`");
    Problem::new(origin, "config.unknown-key", what, mend)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
