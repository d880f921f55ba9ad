//! The one rule for commands that destroy something: they ask on a terminal, and need `--yes` elsewhere.

use std::io::{BufRead as _, IsTerminal as _};

use super::output::print_note;
use crate::base::error::{Exit, Fault};

/// Asks `question`, unless `yes` answers it. Without a terminal nobody can be asked: bad usage.
pub(super) fn confirm(question: &str, yes: bool) -> Result<(), Fault> {
    if yes {
        return Ok(());
    }
    check_askable(question, yes)?;
    print_note(&format!("{question} Type yes to confirm:"));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read.is_ok() && answer.trim().eq_ignore_ascii_case("yes") {
        true => Ok(()),
        false => Err(unconfirmed(Exit::Failed, "not confirmed; nothing was changed")),
    }
}

/// Refuses a command that nobody could confirm, before it looks at what it would destroy.
pub(super) fn check_askable(question: &str, yes: bool) -> Result<(), Fault> {
    match yes || std::io::stdin().is_terminal() {
        true => Ok(()),
        false => {
            let what = format!("a confirmation is required, and there is no terminal: {question}");
            Err(unconfirmed(Exit::Usage, &what))
        }
    }
}

fn unconfirmed(exit: Exit, what: &str) -> Fault {
    Fault::new(exit, "command.unconfirmed", what, "", "add --yes to confirm")
}
