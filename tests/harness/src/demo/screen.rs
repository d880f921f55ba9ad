//! Output of the demo: colours and a redrawn line on a terminal, plain lines elsewhere.

use std::io::{IsTerminal as _, Write as _};

pub(super) struct Screen {
    terminal: bool,
    colours: bool,
}

impl Screen {
    pub(super) fn new() -> Screen {
        let terminal = std::io::stdout().is_terminal();
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Screen { terminal, colours: terminal && !unwanted }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(super) fn head(&self, text: &str) {
        self.put(&format!("{}\n{}\n", self.clear(), self.paint("1", text)));
    }

    pub(super) fn command(&self, text: &str) {
        self.put(&format!("\n{} {}\n", self.paint("2", "$"), self.paint("1", text)));
    }

    pub(super) fn say(&self, text: &str) {
        self.put(&format!("{text}\n"));
    }

    pub(super) fn event(&self, text: &str) {
        self.put(&format!("{}{} {text}\n", self.clear(), self.paint("33", ">>")));
    }

    /// Shows a line that the next one replaces; not seen where lines cannot be replaced.
    pub(super) fn redraw(&self, text: &str) {
        if self.terminal {
            self.put(&format!("{}{text}", self.clear()));
        }
    }

    /// Lets the redrawn line be this, for good.
    pub(super) fn settle(&self, text: &str) {
        self.put(&format!("{}{text}\n", self.clear()));
    }

    /// Removes a redrawn line that nobody has settled.
    fn clear(&self) -> &'static str {
        if self.terminal { "\r\x1b[K" } else { "" }
    }

    pub(super) fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(super) fn bad(&self, text: &str) -> String {
        self.paint("1;31", text)
    }

    /// A reader that has left is no reason to stop: the verdict is the exit code.
    fn put(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
    }
}
