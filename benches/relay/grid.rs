//! One table, shown on a terminal or written as Markdown.

use walrelay_harness::stats::Table;

/// A title, a header and rows of text.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub(crate) fn new(title: impl Into<String>, header: &[&str]) -> Grid {
        let header = header.iter().map(|name| (*name).to_owned()).collect();
        Grid { title: title.into(), header, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Aligned, for a terminal.
    pub(crate) fn terminal(&self) -> String {
        let mut table = Table::new(self.title.clone(), self.header.clone());
        for row in &self.rows {
            table.row(row.clone());
        }
        table.to_string()
    }

    /// For a document.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace('\n', " "));
        let rule = vec!["---".to_owned(); self.header.len()];
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("### {}\n\n{}{}{rows}", self.title, line(&self.header), line(&rule))
    }
}
