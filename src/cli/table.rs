//! Tables for people, printed row by row: a list may be longer than memory, so that widths are fixed.

use std::fmt::Write as _;

use crate::base::text::escaped;

/// The name of each column, and its width.
pub(super) struct Table(pub(super) &'static [(&'static str, Width)]);

/// The width of a column in characters.
#[derive(Clone, Copy)]
pub(super) enum Width {
    /// What is longer is cut.
    Cut(usize),
    /// What is longer moves the rest of its row.
    AtLeast(usize),
}

impl Table {
    /// The names of the columns.
    pub(super) fn head(&self) -> String {
        self.row(self.0.iter().map(|(name, _)| *name))
    }

    /// A row; what others wrote into it stays within its line.
    pub(super) fn row<'a>(&self, cells: impl IntoIterator<Item = &'a str>) -> String {
        let mut line = String::new();
        for (cell, (_, width)) in cells.into_iter().zip(self.0) {
            let cell = escaped(cell);
            // Writing to a string does not fail.
            match *width {
                Width::Cut(width) => write!(line, "{:<width$}  ", cut(&cell, width)).ok(),
                Width::AtLeast(width) => write!(line, "{cell:<width$}  ").ok(),
            };
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// At most `width` characters, the last of them an ellipsis when there were more.
pub(super) fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
    }
}
