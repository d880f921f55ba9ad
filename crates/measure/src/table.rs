//! Tables of words and numbers, for a terminal and as Markdown.

use std::fmt;

/// A text table with aligned columns: words to the left, numbers to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<I: IntoIterator<Item: Into<String>>>(title: impl Into<String>, header: I) -> Table {
        let header = header.into_iter().map(Into::into).collect();
        Table { title: title.into(), header, rows: Vec::new() }
    }

    /// Adds a row; missing cells are blank.
    pub fn row<I: IntoIterator<Item: Into<String>>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    pub fn header(&self) -> &[String] {
        &self.header
    }

    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace('\n', " "));
        let rule = vec!["---".to_owned(); self.header.len()];
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("### {}\n\n{}{}{rows}", self.title, line(&self.header), line(&rule))
    }

    fn cell(row: &[String], column: usize) -> &str {
        row.get(column).map_or("", String::as_str)
    }

    fn columns(&self) -> usize {
        self.rows.iter().map(Vec::len).chain([self.header.len()]).max().unwrap_or(0)
    }

    /// A column is numeric when every filled cell begins with a digit or a sign.
    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().map(|row| Table::cell(row, column)).peekable();
        cells.peek().is_some()
            && cells.all(|cell| {
                matches!(cell, "" | "-" | "–")
                    || cell
                        .trim_start_matches(['+', '-', '<', '>', '×', '≤', '≥', ' '])
                        .starts_with(|first: char| first.is_ascii_digit())
            })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.columns();
        let widths: Vec<usize> = (0..columns)
            .map(|at| {
                let cells = self.rows.iter().map(|row| Table::cell(row, at));
                cells.chain([Table::cell(&self.header, at)]).map(|c| c.chars().count()).max()
            })
            .map(Option::unwrap_or_default)
            .collect();
        let right: Vec<bool> = (0..columns).map(|at| self.is_numeric(at)).collect();
        let line = |row: &[String]| {
            let cells = (0..columns).map(|at| {
                let (cell, width) = (Table::cell(row, at), widths[at]);
                if right[at] { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        if !self.title.is_empty() {
            writeln!(f, "{}", self.title)?;
        }
        writeln!(f, "{}", line(&self.header))?;
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        writeln!(f, "{}", rule.join("  "))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", line(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_aligned_to_the_left_and_numbers_to_the_right() {
        let mut table = Table::new("Drain", ["relay", "events/s", "CPU"]);
        table.row(["walrelay", "250k/s", "1.9"]);
        table.row(["Ünlü", "47k/s"]);
        let want = "Drain\nrelay     events/s  CPU\n────────  ────────  ───\n\
                    walrelay    250k/s  1.9\nÜnlü         47k/s\n";
        assert_eq!(table.to_string(), want);
    }
}
