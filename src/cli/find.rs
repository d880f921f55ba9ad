//! `walrelay find`: where an event is.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Value, json};

use super::args::{FindArgs, OutputFormat};
use super::output::{print, print_json, print_values};
use super::progress::StatusLine;
use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::figures::counted;
use crate::base::text::escaped;
use crate::config::Config;
use crate::find::{EventFinder, FindReport, FindRequest, FindText, FoundEvent, sentences};

/// Where there is no terminal.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

pub(super) fn run(config: &Config, args: &FindArgs) -> Result<Exit, Vec<Fault>> {
    let requests = requests(args)?;
    let finder = EventFinder::new(config);
    let mut line = StatusLine::new(PROGRESS_EVERY);
    let mut reports = Vec::new();
    for (at, request) in requests.iter().enumerate() {
        let ids = match requests.len() {
            1 => String::new(),
            ids => format!("{} of {ids} ids, ", at + 1),
        };
        let mut show = |records: u64| {
            if line.is_due() {
                line.show("…", &format!("{ids}{} read", counted(records as usize, "record")));
            }
        };
        show(0);
        let found = finder.find(request, &AtomicBool::new(false), &mut show);
        line.erase();
        reports.push(found?);
    }
    match args.output.format() {
        OutputFormat::Text => {
            let texts = requests.iter().zip(&reports).map(|(request, it)| to_text(request, it));
            print(&texts.collect::<String>())?
        }
        OutputFormat::Json => print_json(&to_json(&reports))?,
        OutputFormat::Jsonl => print_values(OutputFormat::Jsonl, &events(&reports))?,
    };
    let knows_all = reports.iter().all(FindReport::is_known);
    Ok(if knows_all { Exit::Done } else { Exit::Failed })
}

/// One for each id, or one for the key.
fn requests(args: &FindArgs) -> Result<Vec<FindRequest>, Vec<Fault>> {
    let FindArgs { ids, key, since, within, .. } = args;
    let text =
        |id: Option<&String>| FindText { id: id.cloned(), key: key.clone(), since: since.clone() };
    let texts = match ids.as_slice() {
        [] => vec![text(None)],
        ids => ids.iter().map(|id| text(Some(id))).collect(),
    };
    let now = unix_now_us();
    let requests = texts.iter().map(|text| FindRequest::parse(text, within, now));
    requests.collect::<Result<_, _>>().map_err(|mut faults: Vec<Fault>| {
        for fault in &mut faults {
            if fault.place != "id" {
                fault.place.insert_str(0, "--");
            } else if ids.is_empty() {
                fault.mend = "walrelay find ID, or --key KEY".to_owned();
            }
        }
        faults
    })
}

fn events(reports: &[FindReport]) -> Vec<Value> {
    reports.iter().flat_map(FindReport::events_json).collect()
}

fn to_json(reports: &[FindReport]) -> Value {
    let searched = reports.iter().flat_map(|report| &report.searched);
    let not_searched = reports.iter().flat_map(|report| &report.not_searched);
    json!({
        "events": events(reports),
        "searched": distinct(searched),
        "not_searched": distinct(not_searched),
    })
}

/// Each sentence once: the searches for several ids say much the same.
fn distinct<'a>(sentences: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut seen = BTreeSet::new();
    sentences.filter(|sentence| seen.insert(*sentence)).collect()
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
    if report.events.is_empty() && report.is_unsearched {
        writeln!(
            text,
            "an event with {name} {wanted} may exist: neither rows nor topics could be searched"
        )
        .ok();
        list(&mut text, "not searched", &report.not_searched);
        list(&mut text, "searched", &report.searched);
        return text;
    }
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
