//! `walrelay dlq list | show | replay | discard | release`: dead letters, looked at and acted on.
//!
//! Results go to standard output, how they came about to standard error. Options are checked before
//! the broker is asked anything.

mod table;

use std::io::{BufWriter, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use super::args::{DlqAction, ListArgs, ReleaseArgs, ShowArgs, WorkArgs};
use super::progress::Progress;
use super::tell;
use crate::base::clock::steady_clock;
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::base::text::json_shown;
use crate::config::Config;
use crate::dead_letter::filter::{DeadLetterFilter, FilterText};
use crate::dead_letter::rate::{InvalidRate, Rate};
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::release::{KeySelection, ReleaseRequest, ReleasedKeys, release};
use crate::dead_letter::replay::{self, ReplayAction, ReplayJob, ReplayReport};
use crate::dead_letter::view::{DeadLetterDetail, DeadLetterSummary, find};

/// More lines of a table are not for people.
const TABLE_LINES: usize = 1000;

/// Carries out one of the commands.
pub(super) fn run(config: &Config, action: &DlqAction) -> Result<Exit, Vec<Fault>> {
    let stop = Arc::new(AtomicBool::new(false));
    let address = &config.dead_letter.address;
    let topic = DeadLetterTopic { broker: &*config.sink, address, stop: &stop };
    let one = |fault| vec![fault];
    match action {
        DlqAction::List(args) => list(&topic, args),
        DlqAction::Show(args) => show(&topic, args).map_err(one),
        DlqAction::Replay(args) => work(&topic, args, ReplayAction::Replay, &stop),
        DlqAction::Discard(args) => work(&topic, args, ReplayAction::Discard, &stop),
        DlqAction::Release(args) => {
            stop_on_signal(&stop).map_err(one)?;
            let_go(&topic, args).map_err(one)
        }
    }
}

fn list(topic: &DeadLetterTopic<'_>, args: &ListArgs) -> Result<Exit, Vec<Fault>> {
    let filter = understood(&args.filter)?;
    let limit = args.limit.unwrap_or(if args.json { usize::MAX } else { TABLE_LINES });
    let told = print_letters(topic, &filter, args.json, limit).map_err(|fault| vec![fault])?;
    tell(&told);
    Ok(Exit::Done)
}

/// Prints what is meant; says what it was.
fn print_letters(
    topic: &DeadLetterTopic<'_>,
    filter: &DeadLetterFilter,
    json: bool,
    limit: usize,
) -> Result<String, Fault> {
    let index = topic.index(filter)?;
    let meant = index.count_selected(filter.states());
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut printed, mut outcome) = (0, Ok(()));
    if !json && meant > 0 {
        outcome = writeln!(out, "{}", table::head());
    }
    topic.letters(filter, &index, |letter, known| {
        if outcome.is_err() || printed == limit {
            return Ok(false);
        }
        let view = DeadLetterSummary::new(letter, known);
        outcome = match json {
            true => writeln!(out, "{}", json_text(&view)?),
            false => writeln!(out, "{}", table::line(&view)),
        };
        printed += 1;
        Ok(true)
    })?;
    match outcome.and_then(|()| out.flush()) {
        // A reader that has left early (`| head`) is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(unwritable(&error)),
        _ => {}
    }
    let records = match index.foreign {
        0 => format!("{} records read", index.records),
        foreign => format!("{} records read, {foreign} of them foreign", index.records),
    };
    Ok(match meant {
        0 => format!("no dead letter matches {filter}; {records}"),
        _ if printed == limit && printed < meant => {
            format!("{printed} of {meant} dead letters (--limit); {records}")
        }
        _ if printed < meant => {
            format!("{printed} of {meant} dead letters, the others have just gone; {records}")
        }
        _ => format!("{meant} dead letters; {records}"),
    })
}

fn show(topic: &DeadLetterTopic<'_>, args: &ShowArgs) -> Result<Exit, Fault> {
    let found = find(topic, &args.id)?;
    let mut text = String::new();
    for (index, one) in found.iter().enumerate() {
        let detail = DeadLetterDetail::new(one, args.payload);
        if args.json {
            text.push_str(&json_text(&detail)?);
        } else {
            text.push_str(if index > 0 { "\n" } else { "" });
            text.push_str(&table::detail(&detail));
        }
        text.push('\n');
    }
    super::print(&text)
}

fn work(
    topic: &DeadLetterTopic<'_>,
    args: &WorkArgs,
    action: ReplayAction,
    stop: &Arc<AtomicBool>,
) -> Result<Exit, Vec<Fault>> {
    let filter = understood(&args.filter)?;
    let one = |fault| vec![fault];
    let rate = args.rate.as_deref().map(rate).transpose().map_err(one)?;
    select(&filter, args.all, action).map_err(one)?;
    if args.dry_run {
        let limit = if args.json { usize::MAX } else { TABLE_LINES };
        let told = print_letters(topic, &filter, args.json, limit).map_err(one)?;
        tell(&format!("dry run, nothing was changed: {told}"));
        return Ok(Exit::Done);
    }
    stop_on_signal(stop).map_err(one)?;
    let (by, clock) = (who(), steady_clock());
    let job = ReplayJob { action, filter: &filter, rate, by: &by };
    let past = match action {
        ReplayAction::Replay => "replayed",
        ReplayAction::Discard => "discarded",
    };
    let mut progress = Progress::new(past);
    let ReplayReport { progress: tally, fault } =
        replay::run(topic, &job, &clock, &mut |tally| progress.tell(tally.done, tally.meant));
    progress.end();
    match (args.json, tally.meant) {
        (true, _) => super::print(&format!("{}\n", json_text(&tally).map_err(one)?)),
        (false, 0) => {
            if fault.is_none() {
                let records = tally.records;
                tell(&format!("no dead letter matches {filter}; {records} records read"));
            }
            Ok(Exit::Done)
        }
        (false, meant) => super::print(&format!("{past} {} of {meant} dead letters\n", tally.done)),
    }
    .map_err(one)?;
    fault.map_or(Ok(Exit::Done), |fault| Err(vec![fault]))
}

fn let_go(topic: &DeadLetterTopic<'_>, args: &ReleaseArgs) -> Result<Exit, Fault> {
    let keys = args.key.clone().map_or(KeySelection::All, KeySelection::One);
    let by = who();
    let asked = ReleaseRequest { keys: &keys, anyway: args.anyway, by: &by };
    let ReleasedKeys { keys, meanwhile } = release(topic, &asked, &steady_clock())?;
    if keys.is_empty() {
        tell("no key is parked");
    }
    if meanwhile > 0 {
        tell(&format!(
            "{meanwhile} dead letters of what was released came meanwhile and are open: walrelay dlq list"
        ));
    }
    let lines = keys.iter().map(|key| format!("key {key} released\n"));
    super::print(&lines.collect::<String>())
}

fn understood(words: &FilterText) -> Result<DeadLetterFilter, Vec<Fault>> {
    let mut faults = match DeadLetterFilter::parse(words, steady_clock()()) {
        Ok(filter) => return Ok(filter),
        Err(faults) => faults,
    };
    for fault in &mut faults {
        fault.place = format!("--{}", fault.place.replace('_', "-"));
    }
    Err(faults)
}

fn rate(text: &str) -> Result<Rate, Fault> {
    text.parse().map_err(|error: InvalidRate| {
        let mend = format!("expected {}", InvalidRate::EXPECTED);
        Fault::new(Exit::Usage, "dead-letter.bad-rate", error.to_string(), "--rate", mend)
    })
}

/// A slip of the hand must not act on everything.
fn select(filter: &DeadLetterFilter, all: bool, action: ReplayAction) -> Result<(), Fault> {
    let name = action.name();
    let (what, mend) = match (filter.narrows(), all) {
        (true, false) | (false, true) => return Ok(()),
        (false, false) => (
            format!("{name} of what? neither a filter nor --all was given"),
            format!("walrelay dlq {name} --all, or a filter: walrelay dlq {name} --help"),
        ),
        (true, true) => (
            "--all and a filter contradict each other".to_owned(),
            "leave one of them out".to_owned(),
        ),
    };
    Err(Fault::new(Exit::Usage, "dead-letter.unselected", what, "", mend))
}

/// Asks to stop at the first signal, and ends the process at the second.
fn stop_on_signal(stop: &Arc<AtomicBool>) -> Result<(), Fault> {
    let stop = Arc::clone(stop);
    let waiting = async move {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        let [Ok(mut interrupt), Ok(mut terminate)] = kinds else { return Ok(()) };
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if stop.swap(true, Ordering::Relaxed) {
                std::process::exit(Exit::Failed as i32);
            }
            tell("stopping: settling what is in flight; once more to stop at once");
        }
    };
    runtime::spawn("signals", move || super::wait_for(waiting)).map(drop)
}

/// Who runs this, for the log: `alice@host`.
fn who() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    format!("{}@{}", user.unwrap_or_else(|| "unknown".to_owned()), host.trim())
}

fn json_text(value: &impl serde::Serialize) -> Result<String, Fault> {
    serde_json::to_string(value).map(|text| json_shown(&text)).map_err(|error| {
        let what = format!("cannot write JSON: {error}");
        Fault::new(Exit::Failed, "output.unwritable", what, "standard output", "")
    })
}

fn unwritable(error: &std::io::Error) -> Fault {
    let what = format!("cannot write the result: {}", error.kind());
    Fault::new(Exit::Failed, "output.unwritable", what, "standard output", "")
}
