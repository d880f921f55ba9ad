//! `walrelay dlq list | show | replay | discard | release`: dead letters, looked at and acted on.
//!
//! Results go to standard output, notes on them to standard error. Options are checked before the
//! broker is asked anything.

mod table;

use std::io::{BufWriter, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use super::args::{DlqAction, ListArgs, ReleaseArgs, ShowArgs, WorkArgs};
use super::output::{print, tell};
use super::progress::JobProgress;
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
    match action {
        DlqAction::List(args) => list(&topic, args),
        DlqAction::Show(args) => Ok(show(&topic, args)?),
        DlqAction::Replay(args) => replay_or_discard(&topic, args, ReplayAction::Replay, &stop),
        DlqAction::Discard(args) => replay_or_discard(&topic, args, ReplayAction::Discard, &stop),
        DlqAction::Release(args) => {
            stop_on_signal(&stop)?;
            Ok(release_keys(&topic, args)?)
        }
    }
}

fn list(topic: &DeadLetterTopic<'_>, args: &ListArgs) -> Result<Exit, Vec<Fault>> {
    let filter = parse_filter(&args.filter)?;
    let limit = args.limit.unwrap_or(if args.json { usize::MAX } else { TABLE_LINES });
    tell(&print_letters(topic, &filter, args.json, limit)?);
    Ok(Exit::Done)
}

/// Prints the letters that match; returns how many they are, as a sentence.
fn print_letters(
    topic: &DeadLetterTopic<'_>,
    filter: &DeadLetterFilter,
    json: bool,
    limit: usize,
) -> Result<String, Fault> {
    let index = topic.index(filter)?;
    let count = index.count_selected(filter.states());
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut printed, mut outcome) = (0, Ok(()));
    if !json && count > 0 {
        outcome = writeln!(out, "{}", table::TABLE.head());
    }
    topic.letters(filter, &index, |letter, known| {
        if outcome.is_err() || printed == limit {
            return Ok(false);
        }
        let summary = DeadLetterSummary::new(letter, known);
        outcome = match json {
            true => writeln!(out, "{}", json_text(&summary)?),
            false => writeln!(out, "{}", table::line(&summary)),
        };
        printed += 1;
        Ok(true)
    })?;
    match outcome.and_then(|()| out.flush()) {
        // A reader that has left early (`| head`) is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            return Err(unwritable(&format!("cannot write the result: {}", error.kind())));
        }
        _ => {}
    }
    let records = match index.foreign {
        0 => format!("{} records read", index.records),
        foreign => format!("{} records read, {foreign} of them foreign", index.records),
    };
    Ok(match count {
        0 => format!("no dead letter matches {filter}; {records}"),
        _ if printed == limit && printed < count => {
            format!("{printed} of {count} dead letters (--limit); {records}")
        }
        _ if printed < count => {
            format!("{printed} of {count} dead letters, the others have just gone; {records}")
        }
        _ => format!("{count} dead letters; {records}"),
    })
}

fn show(topic: &DeadLetterTopic<'_>, args: &ShowArgs) -> Result<Exit, Fault> {
    let mut texts = Vec::new();
    for letter in &find(topic, &args.id)? {
        let detail = DeadLetterDetail::new(letter, args.payload);
        texts.push(if args.json { json_text(&detail)? } else { table::detail(&detail) });
    }
    print(&(texts.join(if args.json { "\n" } else { "\n\n" }) + "\n"))
}

fn replay_or_discard(
    topic: &DeadLetterTopic<'_>,
    args: &WorkArgs,
    action: ReplayAction,
    stop: &Arc<AtomicBool>,
) -> Result<Exit, Vec<Fault>> {
    let filter = parse_filter(&args.filter)?;
    let rate = args.rate.as_deref().map(parse_rate).transpose()?;
    check_selection(&filter, args.all, action)?;
    if args.dry_run {
        let limit = if args.json { usize::MAX } else { TABLE_LINES };
        let listed = print_letters(topic, &filter, args.json, limit)?;
        tell(&format!("dry run, nothing was changed: {listed}"));
        return Ok(Exit::Done);
    }
    stop_on_signal(stop)?;
    let by = who();
    let job = ReplayJob { action, filter: &filter, rate, by: &by };
    let past = match action {
        ReplayAction::Replay => "replayed",
        ReplayAction::Discard => "discarded",
    };
    let mut bar = JobProgress::new(past);
    let mut observe = |it: &replay::ReplayProgress| bar.tell(it.done, it.meant);
    let ReplayReport { progress, fault } = replay::run(topic, &job, &steady_clock(), &mut observe);
    bar.end();
    match (args.json, progress.meant) {
        (true, _) => {
            print(&format!("{}\n", json_text(&progress)?))?;
        }
        (false, 0) if fault.is_none() => {
            let records = progress.records;
            tell(&format!("no dead letter matches {filter}; {records} records read"));
        }
        (false, 0) => {}
        (false, meant) => {
            let done = progress.done;
            print(&format!("{past} {done} of {meant} dead letters\n"))?;
        }
    }
    Ok(fault.map_or(Ok(Exit::Done), Err)?)
}

fn release_keys(topic: &DeadLetterTopic<'_>, args: &ReleaseArgs) -> Result<Exit, Fault> {
    let keys = args.key.clone().map_or(KeySelection::All, KeySelection::One);
    let request = ReleaseRequest { keys: &keys, anyway: args.anyway, by: &who() };
    let ReleasedKeys { keys, meanwhile } = release(topic, &request, &steady_clock())?;
    if keys.is_empty() {
        tell("no key is parked");
    }
    if meanwhile > 0 {
        tell(&format!(
            "{meanwhile} dead letters of the released keys were written meanwhile and are open: walrelay dlq list"
        ));
    }
    let lines = keys.iter().map(|key| format!("key {key} released\n"));
    print(&lines.collect::<String>())
}

fn parse_filter(text: &FilterText) -> Result<DeadLetterFilter, Vec<Fault>> {
    DeadLetterFilter::parse(text, steady_clock()()).map_err(|mut faults| {
        for fault in &mut faults {
            fault.place = format!("--{}", fault.place.replace('_', "-"));
        }
        faults
    })
}

fn parse_rate(text: &str) -> Result<Rate, Fault> {
    text.parse().map_err(|error: InvalidRate| {
        let mend = format!("expected {}", InvalidRate::EXPECTED);
        Fault::new(Exit::Usage, "dead-letter.bad-rate", error.to_string(), "--rate", mend)
    })
}

/// A mistake must not act on everything.
fn check_selection(
    filter: &DeadLetterFilter,
    all: bool,
    action: ReplayAction,
) -> Result<(), Fault> {
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
    runtime::spawn("signals", move || runtime::try_block_on(waiting)).map(drop)
}

/// Who runs this, for the log: `alice@host`.
fn who() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    format!("{}@{}", user.unwrap_or_else(|| "unknown".to_owned()), host.trim())
}

fn json_text(value: &impl serde::Serialize) -> Result<String, Fault> {
    serde_json::to_string(value)
        .map(|text| json_shown(&text))
        .map_err(|error| unwritable(&format!("cannot write JSON: {error}")))
}

fn unwritable(what: &str) -> Fault {
    Fault::new(Exit::Failed, "output.unwritable", what.to_owned(), "standard output", "")
}
