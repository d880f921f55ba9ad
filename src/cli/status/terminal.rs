//! The terminal that the screen is shown on, if it is one.

use std::io::IsTerminal as _;

use super::screen::ScreenStyle;
use crate::cli::output;

/// Where the size of a terminal is not known, and where there is none.
const COLUMNS: usize = 80;
const ROWS: usize = 24;

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const ERASE_LINE_END: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";

/// The present state of standard output: a terminal may have been resized.
pub(super) struct Terminal {
    is_terminal: bool,
    columns: usize,
    pub(super) rows: usize,
}

impl Terminal {
    pub(super) fn look() -> Terminal {
        let out = std::io::stdout();
        let size = rustix::termios::tcgetwinsize(&out).ok();
        let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let (columns, rows) =
            size.map_or((COLUMNS, ROWS), |it| (it.ws_col.into(), it.ws_row.into()));
        Terminal { is_terminal: out.is_terminal(), columns, rows }
    }

    pub(super) fn can_redraw(&self) -> bool {
        self.is_terminal && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
    }

    pub(super) fn style(&self) -> ScreenStyle {
        ScreenStyle {
            columns: self.columns,
            is_plain: !self.is_terminal,
            is_coloured: output::is_coloured(&std::io::stdout()),
        }
    }
}

/// The second screen of a terminal, which is left when this is dropped.
pub(super) struct Redrawn(());

impl Redrawn {
    pub(super) fn begin() -> Redrawn {
        // A terminal that is gone is seen with the first frame.
        output::put(&mut std::io::stdout(), ENTER);
        Redrawn(())
    }
}

impl Drop for Redrawn {
    fn drop(&mut self) {
        output::put(&mut std::io::stdout(), LEAVE);
    }
}

/// The text that replaces what is shown by as many of the lines as there are rows. The last line has no
/// line end, which would scroll a full screen.
pub(super) fn frame(mut lines: Vec<String>, rows: usize) -> String {
    if lines.len() > rows {
        let left = lines.len() + 1 - rows;
        lines.truncate(rows.saturating_sub(1));
        lines.push(format!("{left} more lines do not fit"));
    }
    let lines: Vec<String> = lines.into_iter().map(|line| line + ERASE_LINE_END).collect();
    format!("{HOME}{}{ERASE_BELOW}", lines.join("\r\n"))
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
