//! The one rule for commands that destroy something: they ask on a terminal, and need `--yes` elsewhere. A
//! command that only makes something needs no `--yes` elsewhere.

use std::io::{BufRead as _, IsTerminal as _};

use super::output::print_note;
use crate::base::error::{Exit, Fault};

/// Asks `question`, unless `yes` answers it. Without a terminal nobody can be asked: wrong usage.
pub(super) fn confirm(question: &str, yes: bool) -> Result<(), Fault> {
    check_askable(question, yes)?;
    if yes {
        return Ok(());
    }
    print_note(&format!("{question} Type yes to confirm:"));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read.is_ok() && is_yes(&answer) {
        true => Ok(()),
        false => Err(unconfirmed(Exit::Failed, "not confirmed: nothing was changed")),
    }
}

/// Whether there is somebody who can be asked.
pub(super) fn is_on_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Refuses a command that nobody could confirm, before it looks at what it would destroy.
pub(super) fn check_askable(question: &str, yes: bool) -> Result<(), Fault> {
    askable(question, yes || is_on_terminal())
}

fn askable(question: &str, is_askable: bool) -> Result<(), Fault> {
    let what = || format!("a confirmation is required, and there is no terminal: {question}");
    if is_askable { Ok(()) } else { Err(unconfirmed(Exit::Usage, &what())) }
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].iter().any(|yes| answer.trim().eq_ignore_ascii_case(yes))
}

fn unconfirmed(exit: Exit, what: &str) -> Fault {
    Fault::new(exit, "command.unconfirmed", what, "", "add --yes to confirm")
}

#[cfg(test)]
#[path = "confirm_tests.rs"]
mod tests;
