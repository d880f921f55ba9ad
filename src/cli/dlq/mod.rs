//! `walrelay dlq list | show | replay | discard | release | purge`.
//!
//! Results go to standard output, notes on them to standard error. Options are checked before the
//! broker is contacted.

mod of_consumer;
mod purge;
mod table;

use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use super::args::{DlqAction, ListArgs, ReleaseArgs, ReplayArgs, ShowArgs, WorkArgs};
use super::output::{json_line, print, print_json, print_note, written};
use super::progress::JobProgress;
use crate::app::replay_destinations;
use crate::base::clock::steady_clock;
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::config::Config;
use crate::dead_letter::destinations::Destinations;
use crate::dead_letter::filter::{DeadLetterFilter, FilterText};
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::release::{ReleaseRequest, ReleasedKeys, release};
use crate::dead_letter::replay::{self, ReplayAction, ReplayJob, ReplayReport};
use crate::dead_letter::view;

/// Lines of a table, unless `--limit` is given.
const TABLE_LINES: usize = 1000;

/// `from` is the dead-letter topic of a consumer.
pub(super) fn run(
    config: &Config,
    from: Option<&str>,
    action: &DlqAction,
) -> Result<Exit, Vec<Fault>> {
    let stop = Arc::new(AtomicBool::new(false));
    let own = DeadLetterTopic::of_relay(&*config.sink, &config.dead_letter.address, &stop);
    let Some(name) = from.filter(|name| *name != own.address.topic) else {
        return act(config, &own, action, &stop);
    };
    let address = of_consumer::address(config, name, action)?;
    act(config, &DeadLetterTopic { address: &address, ..own }, action, &stop)
        .map_err(|faults| faults.into_iter().map(|it| of_consumer::fault(it, name)).collect())
}

fn act(
    config: &Config,
    topic: &DeadLetterTopic<'_>,
    action: &DlqAction,
    stop: &Arc<AtomicBool>,
) -> Result<Exit, Vec<Fault>> {
    match action {
        DlqAction::List(args) => list(topic, args),
        DlqAction::Show(args) => Ok(show(topic, args)?),
        DlqAction::Replay(ReplayArgs { work, any_destination }) => {
            let destinations = (!any_destination).then(|| replay_destinations(config));
            replay_or_discard(topic, work, ReplayAction::Replay, destinations, stop)
        }
        DlqAction::Discard(args) => {
            replay_or_discard(topic, args, ReplayAction::Discard, None, stop)
        }
        DlqAction::Release(args) => {
            stop_on_signal(stop)?;
            Ok(release_keys(topic, args)?)
        }
        DlqAction::Purge(args) => {
            stop_on_signal(stop)?;
            Ok(purge::run(topic, args, &user_at_host())?)
        }
    }
}

fn list(topic: &DeadLetterTopic<'_>, args: &ListArgs) -> Result<Exit, Vec<Fault>> {
    let filter = parse_filter(&args.filter)?;
    print_note(&print_matching(topic, &filter, args.json, args.limit)?);
    Ok(Exit::Done)
}

/// Prints the dead letters that match; returns a sentence that says how many they are.
fn print_matching(
    topic: &DeadLetterTopic<'_>,
    filter: &DeadLetterFilter,
    json: bool,
    limit: Option<usize>,
) -> Result<String, Fault> {
    let limit = limit.unwrap_or(if json { usize::MAX } else { TABLE_LINES });
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
        outcome = match json {
            true => writeln!(out, "{}", json_line(&view::summary(letter, known))?),
            false => writeln!(out, "{}", table::line(letter, known)),
        };
        printed += 1;
        Ok(true)
    })?;
    written(outcome.and_then(|()| out.flush()))?;
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
            format!(
                "{printed} of {count} dead letters, the others have just been removed; {records}"
            )
        }
        _ => format!("{count} dead letters; {records}"),
    })
}

fn show(topic: &DeadLetterTopic<'_>, args: &ShowArgs) -> Result<Exit, Fault> {
    let found = view::find(topic, &args.id)?;
    let texts = found.iter().map(|found| match args.json {
        true => json_line(&found.detail(args.payload)),
        false => Ok(table::detail(found, args.payload)),
    });
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    print(&(texts.join(if args.json { "\n" } else { "\n\n" }) + "\n"))
}

fn replay_or_discard(
    topic: &DeadLetterTopic<'_>,
    args: &WorkArgs,
    action: ReplayAction,
    destinations: Option<Destinations>,
    stop: &Arc<AtomicBool>,
) -> Result<Exit, Vec<Fault>> {
    let filter = parse_filter(&args.filter)?;
    let rate = args.rate.as_deref().map(str::parse).transpose();
    let rate = rate.map_err(|fault: Fault| Fault { place: "--rate".to_owned(), ..fault })?;
    check_selection(&filter, args.all, action)?;
    if args.dry_run {
        let listed = print_matching(topic, &filter, args.json, None)?;
        print_note(&format!("dry run, nothing was changed: {listed}"));
        return Ok(Exit::Done);
    }
    stop_on_signal(stop)?;
    let past = match action {
        ReplayAction::Replay => "replayed",
        ReplayAction::Discard => "discarded",
    };
    let job = ReplayJob { action, filter, rate, expected: None, destinations, by: user_at_host() };
    let mut bar = JobProgress::new(past);
    let mut observe = |it: &replay::ReplayProgress| bar.update(it.done, it.matched);
    let ReplayReport { progress, fault } = replay::run(topic, &job, &steady_clock(), &mut observe);
    bar.end();
    let replay::ReplayProgress { matched, done, records, .. } = progress;
    if args.json {
        print_json(&progress)?;
    } else if matched > 0 {
        print(&format!("{past} {done} of {matched} dead letters\n"))?;
    } else if fault.is_none() {
        print_note(&format!("no dead letter matches {}; {records} records read", job.filter));
    }
    Ok(fault.map_or(Ok(Exit::Done), Err)?)
}

fn release_keys(topic: &DeadLetterTopic<'_>, args: &ReleaseArgs) -> Result<Exit, Fault> {
    let request = ReleaseRequest { key: args.key.clone(), anyway: args.anyway, by: user_at_host() };
    let ReleasedKeys { keys, meanwhile } = release(topic, &request, &steady_clock())?;
    if keys.is_empty() {
        print_note("no key is parked");
    }
    if meanwhile > 0 {
        print_note(&format!(
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
            format!("{name} which dead letters? neither a filter nor --all was given"),
            format!("walrelay dlq {name} --all, or a filter: walrelay dlq {name} --help"),
        ),
        (true, true) => (
            "--all and a filter contradict each other".to_owned(),
            "leave one of them out".to_owned(),
        ),
    };
    Err(Fault::new(Exit::Usage, "dead-letter.unselected", what, "", mend))
}

/// Asks the job to stop at the first signal, and ends the process at the second.
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
            print_note("stopping: settling what is in flight; a second signal stops at once");
        }
    };
    runtime::spawn("signals", move || runtime::try_block_on(waiting)).map(drop)
}

/// Who runs this command, for the log: `alice@host`.
pub(super) fn user_at_host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    format!("{}@{}", user.unwrap_or_else(|| "unknown".to_owned()), host.trim())
}
