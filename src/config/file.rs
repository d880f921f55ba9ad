//! Adds TOML to the tree: the configuration file, and sections given by a flag. Of a syntax error
//! only message and position are reported, because the line may contain a password.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::missing;
use super::sections::{Declared, declared, keys, names};
use crate::base::secret::{self, Secret};
use crate::base::settings::kind::{BadValue, Raw};
use crate::base::settings::{Origin, Path, Problem, Tree};
use crate::base::text::nearest;

/// Returns the origin of a span of TOML.
type Locate<'a> = &'a dyn Fn(Range<usize>) -> Origin;

pub(crate) fn read(tree: &mut Tree, name: &str, text: &str) {
    let name: Arc<str> = name.into();
    let locate = |span: Range<usize>| {
        let (line, column) = line_and_column(text, span.start);
        Origin::File { name: name.clone(), line, column }
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        set_table(tree, &Path::default(), table.get_ref(), &locate);
    }
    for error in errors {
        let origin = locate(error.span().unwrap_or(0..0));
        let what = format!("not TOML: {}", error.message());
        let mend = "mend the syntax; see https://toml.io";
        tree.problems.push(Problem::new(&origin, "config.syntax", what, mend));
    }
}

/// Both count from 1; a column is a character.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[start..].chars().count() + 1)
}

fn set_table(tree: &mut Tree, path: &Path, table: &DeTable<'_>, locate: Locate<'_>) {
    for (name, value) in table {
        let path = path.child(name.get_ref());
        set_toml(tree, path, value.get_ref(), &locate(name.span()), locate);
    }
}

pub(crate) fn set_toml(
    tree: &mut Tree,
    path: Path,
    value: &DeValue<'_>,
    origin: &Origin,
    locate: Locate<'_>,
) {
    match (declared(&path), value) {
        (None, _) => tree.problems.push(unknown_key(&path, origin)),
        (Some(Declared::Key(_)), _) => {
            let raw = raw_of(value, tree);
            tree.set(path, raw, origin);
        }
        (Some(Declared::Section | Declared::Map(_)), DeValue::Table(table)) => {
            tree.open(path.clone(), origin);
            set_table(tree, &path, table, locate);
        }
        (Some(Declared::Array), DeValue::Array(items)) => {
            tree.remove_array(&path);
            for (index, item) in items.iter().enumerate() {
                let at = locate(item.span());
                set_toml(tree, path.index(index), item.get_ref(), &at, locate);
            }
        }
        (Some(Declared::Array), _) => {
            let mend = format!("write [[{}]]", path.header());
            tree.bad(&path, origin, "expected an array of tables", mend);
        }
        (Some(_), _) => {
            let mend = format!("write [{}]", path.header());
            tree.bad(&path, origin, "expected a table", mend);
        }
    }
}

/// The value of a key. The only table that is one refers to a secret.
pub(crate) fn raw_of(value: &DeValue<'_>, tree: &Tree) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Boolean(flag) => Raw::Bool(*flag),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Raw::Unsupported("an integer beyond 64 bits"), Raw::Integer),
        DeValue::Float(number) => Raw::Float(number.as_str().to_owned()),
        DeValue::Datetime(_) => Raw::Unsupported("a date or time"),
        DeValue::Array(items) => {
            Raw::List(items.iter().map(|item| raw_of(item.get_ref(), tree)).collect())
        }
        DeValue::Table(table) => {
            let mut fields = table.iter().map(|(name, value)| (&**name.get_ref(), value.get_ref()));
            match (fields.next(), fields.next()) {
                (Some(("env", DeValue::String(name))), None) if !name.is_empty() => {
                    let value = tree.variables.get(&**name).cloned();
                    let secret = value.map(Secret::new).ok_or_else(|| unset_variable(name));
                    Raw::Reference(Box::new(move || secret.clone()))
                }
                (Some(("file", DeValue::String(path))), None) if !path.is_empty() => {
                    let may_be_secret =
                        path.contains("://") || path.contains('=') && path.contains("password");
                    let misplaced = may_be_secret.then(|| {
                        misplaced_text("file", "the path of a file", "{ file = \"PATH\" }")
                    });
                    let path = PathBuf::from(&**path);
                    Raw::Reference(Box::new(move || {
                        secret::read_file(&path).map_err(|bad| misplaced.clone().unwrap_or(bad))
                    }))
                }
                _ => Raw::Unsupported("a table that is no reference to a secret"),
            }
        }
    }
}

fn unset_variable(name: &str) -> BadValue {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.chars().all(is_of_name) || name.starts_with(|c: char| c.is_ascii_digit()) {
        let mend = "{ env = \"NAME\" }, and: export NAME=...";
        return misplaced_text("env", "the name of a variable", mend);
    }
    BadValue {
        what: format!("environment variable {name} is not set"),
        mend: format!("export {name}=..."),
        may_pass: false,
    }
}

/// A text in a reference that refers to nothing.
fn misplaced_text(key: &str, wanted: &str, mend: &str) -> BadValue {
    BadValue {
        what: format!(
            "{key} is not {wanted}; it is not shown, because it may be the secret itself"
        ),
        mend: format!("write {mend}"),
        may_pass: false,
    }
}

fn unknown_key(path: &Path, origin: &Origin) -> Problem {
    let written = path.to_string();
    if let Some(problem) = missing::problem(&written, &written, origin) {
        return problem;
    }
    let mend = suggestion(&path.parent(), path.name(), str::to_owned);
    Problem::new(origin, "config.unknown-key", format!("unknown key `{written}`"), mend)
}

/// Names the key that is meant by an unknown name in a section, or else all keys of the section.
/// `spell` writes a name of this section.
pub(crate) fn suggestion(section: &Path, name: &str, spell: impl Fn(&str) -> String) -> String {
    let names = names(section);
    let elsewhere = || keys().iter().find(|key| key.name == name).map(|key| key.path.clone());
    let near = || nearest(name, names.iter().copied()).map(&spell);
    // At the top, a key that is one of a section is meant rather than a section of a similar name.
    let meant =
        if section.is_root() { elsewhere().or_else(near) } else { near().or_else(elsewhere) };
    match meant {
        Some(near) => format!("did you mean `{near}`?"),
        None if section.is_root() => format!("the file knows: {}", names.join(", ")),
        None => format!("[{}] knows: {}", section.header(), names.join(", ")),
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
