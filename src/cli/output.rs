//! What a command prints: its result on standard output, how it goes on standard error.

use std::io::Write;

use crate::base::error::{Exit, Fault};
use crate::base::text::escaped;

/// True when colours are not forbidden by `NO_COLOR`.
pub(super) fn no_color_is_unset() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes the result of a command. A reader that has left early (`| head`) is no failure.
pub(super) fn print(text: &str) -> Result<Exit, Fault> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Exit::Done),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Exit::Done),
        Err(error) => Err(Fault::new(
            Exit::Failed,
            "output.unwritable",
            format!("cannot write the result: {}", error.kind()),
            "standard output",
            "",
        )),
    }
}

/// A line of the result, for people. What others wrote into it stays within it.
pub(super) fn say(line: &str) {
    put(&mut std::io::stdout(), &format!("{}\n", escaped(line)));
}

/// A line on standard error: how the command goes on.
pub(super) fn tell(line: &str) {
    put(&mut std::io::stderr(), &format!("{}\n", escaped(line)));
}

/// A reader that has left gets nothing more.
fn put(out: &mut dyn Write, text: &str) {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}
