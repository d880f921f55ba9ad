//! `walrelay find`: where an event is.

use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::args::FindArgs;
use super::output::{print, print_json};
use super::progress::StatusLine;
use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::text::escaped;
use crate::config::Config;
use crate::find::{EventFinder, FindReport, FindRequest, FindText, FoundEvent, sentences};

/// Where there is no terminal.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

pub(super) fn run(config: &Config, args: &FindArgs) -> Result<Exit, Vec<Fault>> {
    let FindArgs { id, key, since, within, json } = args.clone();
    let text = FindText { id, key, since };
    let request = FindRequest::parse(&text, &within, unix_now_us()).map_err(|mut faults| {
        for fault in faults.iter_mut().filter(|fault| fault.place != "id") {
            fault.place.insert_str(0, "--");
        }
        faults
    })?;
    let mut line = StatusLine::new(PROGRESS_EVERY);
    let found = EventFinder::new(config).find(&request, &AtomicBool::new(false), &mut |records| {
        if line.is_due() {
            line.show("…", &format!("{records} records read"));
        }
    });
    line.erase();
    let report = found?;
    match json {
        true => print_json(&report.to_json())?,
        false => print(&to_text(&request, &report))?,
    };
    Ok(if report.events.is_empty() { Exit::Failed } else { Exit::Done })
}

/// A block for each event, and what was searched where that matters.
fn to_text(request: &FindRequest, report: &FindReport) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for event in &report.events {
        text += &block(event, report);
        text.push('\n');
    }
    let (name, wanted) = (request.wanted.name(), escaped(request.wanted.text()));
    if report.events.is_empty() {
        writeln!(text, "no event with {name} {wanted} was found").ok();
        text +=
            "a transaction that was rolled back, or is still open, leaves nothing to be found\n";
    }
    list(&mut text, "searched", &report.searched);
    list(&mut text, "not searched", &report.not_searched);
    text
}

fn block(event: &FoundEvent, report: &FindReport) -> String {
    let key = event.key.as_ref().map(|key| format!(", key {}", escaped(key))).unwrap_or_default();
    let state = event.state.name().replace('_', " ");
    let mut text = format!("event {}{key}: {state}\n", escaped(&event.id));
    for sentence in sentences(event, report.slot.as_ref()) {
        writeln!(text, "  {sentence}").ok();
    }
    text
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        writeln!(text, "{title}:").ok();
    }
    for line in lines {
        writeln!(text, "  {}", escaped(line)).ok();
    }
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
