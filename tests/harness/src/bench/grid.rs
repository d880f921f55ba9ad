//! One table, shown on a terminal or written as Markdown.

use crate::stats::Table;

/// A title, a header and rows of text.
#[derive(Clone, Debug)]
pub struct Grid {
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub fn new(title: impl Into<String>, header: &[&str]) -> Grid {
        let header = header.iter().map(|name| (*name).to_owned()).collect();
        Grid { title: title.into(), header, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn terminal(&self) -> String {
        let mut table = Table::new(self.title.clone(), self.header.clone());
        for row in &self.rows {
            table.row(row.clone());
        }
        table.to_string()
    }

    pub fn terminal_all(grids: &[Grid]) -> String {
        grids.iter().map(Grid::terminal).collect::<Vec<_>>().join("\n")
    }

    pub fn markdown_all(grids: &[Grid]) -> String {
        grids.iter().map(Grid::markdown).collect::<Vec<_>>().join("\n")
    }

    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace('\n', " "));
        let rule = vec!["---".to_owned(); self.header.len()];
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("### {}\n\n{}{}{rows}", self.title, line(&self.header), line(&rule))
    }
}
