//! The configuration file as the lowest layer.
//!
//! The parser's own rendering of an error quotes the line, and a line may hold a password: only
//! its message and its position are used.

use std::ops::Range;
use std::sync::Arc;

use toml::de::DeTable;

use crate::base::error::{Exit, Fault};

use super::layers::{Layers, Origin, Problem};
use super::path::Path;
use super::tree;

/// Lays the text of a file named `name` into `layers`.
pub(crate) fn read(layers: &mut Layers, name: &str, text: &str) {
    let name: Arc<str> = name.into();
    let locate = |span: Range<usize>| {
        let (line, column) = line_and_column(text, span.start);
        Origin::File { name: name.clone(), line, column }
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        layers.table(tree::root(), &Path::default(), table.get_ref(), &locate);
        return;
    }
    for error in errors {
        let origin = locate(error.span().unwrap_or(0..0));
        let fault = Fault::new(
            Exit::Usage,
            "config.syntax",
            format!("not TOML: {}", error.message()),
            origin.place(),
            "mend the syntax; see https://toml.io",
        );
        layers.problems.push(Problem { origin, fault });
    }
}

/// Both from 1; columns count characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[start..].chars().count() + 1)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
