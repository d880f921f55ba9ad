//! Output of a command: its result on standard output, notes on it on standard error.

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write};

use serde_json::Value;

use super::args::OutputFormat;
use crate::base::error::{Exit, Fault};
use crate::base::text::{escaped, json_shown};

/// May this stream be coloured? Only a terminal, and not where `NO_COLOR` is set.
pub(super) fn is_coloured(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Prints the result of a command. A reader of standard output that has left early (`| head`) is no failure.
pub(super) fn print(text: &str) -> Result<Exit, Fault> {
    print_to_reader(text).map(|_| Exit::Done)
}

/// Prints a text. False if the reader of the output has gone.
pub(super) fn print_to_reader(text: &str) -> Result<bool, Fault> {
    let mut out = std::io::stdout().lock();
    is_read(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints the result of a command as one line of JSON.
pub(super) fn print_json(value: &(impl serde::Serialize + ?Sized)) -> Result<Exit, Fault> {
    print(&(json_line(value)? + "\n"))
}

/// Prints the result as text, or as one JSON document.
pub(super) fn print_as(
    format: OutputFormat,
    value: impl FnOnce() -> Value,
    text: impl FnOnce() -> String,
) -> Result<Exit, Fault> {
    match format {
        OutputFormat::Text => print(&text()),
        OutputFormat::Json | OutputFormat::Jsonl => print_json(&value()),
    }
}

/// Prints values as one array, or one per line.
pub(super) fn print_values(format: OutputFormat, values: &[Value]) -> Result<Exit, Fault> {
    print(&json_of(format, values)?)
}

/// The values as one array on a line, or a line for each.
pub(super) fn json_of(format: OutputFormat, values: &[Value]) -> Result<String, Fault> {
    match format {
        OutputFormat::Jsonl => values.iter().map(|value| Ok(json_line(value)? + "\n")).collect(),
        OutputFormat::Json | OutputFormat::Text => Ok(json_line(values)? + "\n"),
    }
}

/// A list that is printed item by item, because it may be longer than memory.
pub(super) struct ListPrinter<W> {
    out: W,
    format: OutputFormat,
    /// Stands above the lines of a text.
    head: String,
    pub(super) count: usize,
}

impl<W: Write> ListPrinter<W> {
    pub(super) fn new(out: W, format: OutputFormat, head: String) -> ListPrinter<W> {
        ListPrinter { out, format, head, count: 0 }
    }

    /// Prints the next item. False if the reader of the output has gone (`| head`): the list ends.
    pub(super) fn item(
        &mut self,
        value: impl FnOnce() -> Result<String, Fault>,
        line: impl FnOnce() -> String,
    ) -> Result<bool, Fault> {
        let is_first = self.count == 0;
        self.count += 1;
        let text = match self.format {
            OutputFormat::Text if is_first => format!("{}\n{}\n", self.head, line()),
            OutputFormat::Text => line() + "\n",
            OutputFormat::Json => format!("{}{}", if is_first { "[" } else { ",\n" }, value()?),
            OutputFormat::Jsonl => value()? + "\n",
        };
        is_read(self.out.write_all(text.as_bytes()))
    }

    /// Prints what follows the last item. False if the reader of the output has gone.
    pub(super) fn end(&mut self) -> Result<bool, Fault> {
        let text = match (self.format, self.count) {
            (OutputFormat::Json, 0) => "[]\n",
            (OutputFormat::Json, _) => "]\n",
            _ => "",
        };
        is_read(self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()))
    }
}

pub(super) fn json_line(value: &(impl serde::Serialize + ?Sized)) -> Result<String, Fault> {
    let text = serde_json::to_string(value);
    text.map(|text| json_shown(&text)).map_err(|error| unwritable(&error.to_string()))
}

/// False if the reader of the output has gone.
fn is_read(outcome: std::io::Result<()>) -> Result<bool, Fault> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(unwritable(&error.kind().to_string())),
    }
}

fn unwritable(reason: &str) -> Fault {
    let what = format!("cannot write the result: {reason}");
    Fault::new(Exit::Failed, "output.unwritable", what, "standard output", "")
}

/// Prints a line of the result. Line ends in it are escaped.
pub(super) fn print_line(line: &str) {
    put(&mut std::io::stdout(), &format!("{}\n", escaped(line)));
}

/// Prints a line on standard error. Line ends in it are escaped.
pub(super) fn print_note(line: &str) {
    put(&mut std::io::stderr(), &format!("{}\n", escaped(line)));
}

/// Writes what need not be read: a stream that is closed is ignored.
pub(super) fn put(out: &mut dyn Write, text: &str) {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

/// The columns of a table for people, by name and width. It is printed row by row, because a list
/// may be longer than memory, so its widths are fixed.
pub(super) struct Table(pub(super) &'static [(&'static str, Width)]);

/// The width of a column in characters.
#[derive(Clone, Copy)]
pub(super) enum Width {
    /// Longer text is cut.
    Cut(usize),
    /// Longer text moves the rest of its row.
    AtLeast(usize),
}

impl Table {
    pub(super) fn head(&self) -> String {
        self.row(self.0.iter().map(|(name, _)| *name))
    }

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

/// At most `width` characters, the last of them an ellipsis where there were more.
pub(super) fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
