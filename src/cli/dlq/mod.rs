//! `walrelay dlq list | show | replay | discard | release | purge`.
//!
//! Results go to standard output, notes on them to standard error. Options are checked before the
//! broker is contacted.

mod of_consumer;
mod purge;
mod table;

use std::io::BufWriter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::args::{
    DiscardArgs, DlqAction, ListArgs, OutputFormat, ReleaseArgs, ReplayArgs, ShowArgs, WorkArgs,
};
use super::confirm::{check_askable, confirm};
use super::output::{ListPrinter, json_line, print, print_as, print_note, print_values};
use super::progress::JobProgress;
use super::stop_signal::stop_signals;
use crate::app::replay_destinations;
use crate::base::clock::{steady_clock, unix_now_us};
use crate::base::error::{Exit, Fault};
use crate::base::figures::counted;
use crate::base::host;
use crate::base::runtime;
use crate::base::stop_requests::{StopRequest, StopRequests};
use crate::config::{BrokerConfig, Config};
use crate::dead_letter::destinations::Destinations;
use crate::dead_letter::filter::{DeadLetterFilter, FilterText};
use crate::dead_letter::fold::DeadLetterIndex;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::release::{ReleaseRequest, ReleasedKeys, releasable_keys, release};
use crate::dead_letter::replay::{self, ReplayAction, ReplayJob, ReplayReport};
use crate::dead_letter::replay_check::check_replayable;
use crate::dead_letter::view;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::Broker;

/// Lines of a table, unless `--limit` is given.
const TABLE_LINES: usize = 1000;

/// Set by the first signal: what reads or writes the topic ends.
type StopFlag = Arc<AtomicBool>;

/// The work of an action on the dead-letter topic.
type TopicWork<'a> = &'a dyn Fn(&DeadLetterTopic<'_>, &StopFlag) -> Result<Exit, Vec<Fault>>;

/// `from` is the dead-letter topic of a consumer. All but a replay need the sections of the broker alone: the
/// routes of the whole configuration say where a replay may publish.
pub(super) fn run(
    from: Option<&str>,
    action: &DlqAction,
    broker: &dyn Fn() -> Result<BrokerConfig, Vec<Fault>>,
    whole: &dyn Fn() -> Result<Config, Vec<Fault>>,
) -> Result<Exit, Vec<Fault>> {
    let parks_keys = matches!(action, DlqAction::Release(_));
    let on = |work: TopicWork<'_>| {
        let BrokerConfig { sink, dead_letter, .. } = broker()?;
        on_topic(&*sink, &dead_letter.address, from, parks_keys, work)
    };
    match action {
        DlqAction::List(args) => on(&|topic, _| list(topic, args)),
        DlqAction::Show(args) => on(&|topic, _| Ok(show(topic, args)?)),
        DlqAction::Replay(ReplayArgs { work, any_destination }) => {
            let config = whole()?;
            let destinations = (!any_destination).then(|| replay_destinations(&config));
            let job = Job { action: ReplayAction::Replay, destinations, yes: true };
            let own = &config.dead_letter.address;
            on_topic(&*config.sink, own, from, parks_keys, &|topic, stop| {
                job.run(topic, work, stop)
            })
        }
        DlqAction::Discard(DiscardArgs { work, yes }) => {
            let job = Job { action: ReplayAction::Discard, destinations: None, yes: yes.yes };
            on(&|topic, stop| job.run(topic, work, stop))
        }
        DlqAction::Release(args) if args.key.is_none() && !args.all => {
            let what = "release which keys? Neither --key nor --all was given";
            Err(unselected(what, "walrelay dlq release --key KEY, or --all").into())
        }
        DlqAction::Release(args) => on(&|topic, stop| {
            stop_on_signal(stop)?;
            Ok(release_keys(topic, args)?)
        }),
        DlqAction::Purge(args) => on(&|topic, stop| {
            Ok(purge::run(topic, args, &user_at_host(), &|| stop_on_signal(stop))?)
        }),
    }
}

/// Does the work on the relay's topic, or on that of a consumer.
fn on_topic(
    broker: &dyn Broker,
    own: &DeadLetterAddress,
    from: Option<&str>,
    parks_keys: bool,
    work: TopicWork<'_>,
) -> Result<Exit, Vec<Fault>> {
    let stop = StopFlag::default();
    let own = DeadLetterTopic::of_relay(broker, own, &stop);
    let Some(name) = from.filter(|name| *name != own.address.topic) else {
        return work(&own, &stop);
    };
    let address = of_consumer::address(broker, name, parks_keys)?;
    work(&DeadLetterTopic { address: &address, ..own }, &stop)
        .map_err(|faults| faults.into_iter().map(|it| of_consumer::fault(it, name)).collect())
}

fn list(topic: &DeadLetterTopic<'_>, args: &ListArgs) -> Result<Exit, Vec<Fault>> {
    let filter = parse_filter(&args.filter)?;
    let index = topic.index(&filter)?;
    let limit = args.limit.map(|limit| limit as usize);
    let summary = print_matching(topic, &filter, &index, args.output.format(), limit)?;
    summary.iter().for_each(|summary| print_note(summary));
    Ok(Exit::Done)
}

/// Prints the dead letters that match; returns a sentence that says how many they are, or none if the
/// reader of standard output has gone.
fn print_matching(
    topic: &DeadLetterTopic<'_>,
    filter: &DeadLetterFilter,
    index: &DeadLetterIndex,
    format: OutputFormat,
    limit: Option<usize>,
) -> Result<Option<String>, Fault> {
    let is_text = format == OutputFormat::Text;
    let limit = limit.unwrap_or(if is_text { TABLE_LINES } else { usize::MAX });
    let count = index.count_selected(filter.states());
    let out = BufWriter::new(std::io::stdout().lock());
    let mut printer = ListPrinter::new(out, format, table::TABLE.head());
    topic.letters(filter, index, |letter, known| {
        if printer.count == limit {
            return Ok(false);
        }
        let value = || json_line(&view::summary(letter, known));
        printer.item(value, || table::line(letter, known))
    })?;
    if !printer.end()? {
        return Ok(None);
    }
    let records = counted(index.records as usize, "record") + " read";
    let records = match index.foreign {
        0 => records,
        foreign if foreign == index.records => {
            format!("{records}, none of them a dead letter: is the name of the topic right?")
        }
        foreign => format!("{records}, {foreign} of them foreign"),
    };
    let printed = printer.count;
    Ok(Some(match count {
        0 => format!("no dead letter matches {filter}; {records}"),
        _ if printed == limit && printed < count => {
            format!("{printed} of {count} dead letters (--limit); {records}")
        }
        _ if printed < count => {
            format!(
                "{printed} of {count} dead letters, the others have just been removed; {records}"
            )
        }
        _ => format!("{}; {records}", counted(count, "dead letter")),
    }))
}

/// Prints the dead letters that were found, also if there is none for another id.
fn show(topic: &DeadLetterTopic<'_>, args: &ShowArgs) -> Result<Exit, Fault> {
    let found = view::find(topic, &args.ids)?;
    let missing = found.missing(&args.ids);
    if let Some(fault) = missing.clone().filter(|_| found.letters.is_empty()) {
        return Err(fault);
    }
    match args.output.format() {
        OutputFormat::Text => {
            let texts = found.letters.iter().map(|it| table::detail(it, args.payload));
            print(&(texts.collect::<Vec<_>>().join("\n\n") + "\n"))?
        }
        format => {
            let values = found.letters.iter().map(|it| it.detail(args.payload));
            print_values(format, &values.collect::<Vec<Value>>())?
        }
    };
    missing.map_or(Ok(Exit::Done), Err)
}

/// A replay or a discard.
struct Job {
    action: ReplayAction,
    /// Where events may go; none for anywhere.
    destinations: Option<Destinations>,
    /// Needs no confirmation.
    yes: bool,
}

impl Job {
    fn run(
        &self,
        topic: &DeadLetterTopic<'_>,
        args: &WorkArgs,
        stop: &StopFlag,
    ) -> Result<Exit, Vec<Fault>> {
        let (action, yes, destinations) = (self.action, self.yes, self.destinations.clone());
        let mut filter = parse_filter(&args.filter)?;
        let rate = args.rate.as_deref().map(str::parse).transpose();
        let rate = rate.map_err(|fault: Fault| Fault { place: "--rate".to_owned(), ..fault })?;
        check_selection(&filter, args.all, action)?;
        if args.dry_run.dry_run {
            return Ok(self.dry_run(topic, &filter, args.output.list_format())?);
        }
        let mut expected = None;
        if !yes {
            check_askable(
                &format!("{} the dead letters that match {filter}?", capital(action)),
                yes,
            )?;
            // What arrives later was not confirmed.
            filter = filter.until_at_most(unix_now_us()).0;
            let count = topic.index(&filter)?.count_selected(filter.states());
            if count > 0 {
                let letters = counted(count, "dead letter");
                confirm(&format!("{} {letters}?", capital(action)), yes)?;
            }
            expected = Some(count);
        }
        stop_on_signal(stop)?;
        let by = user_at_host();
        log_reason(action.name(), &by, &args.reason.reason);
        let job = ReplayJob { action, filter, rate, expected, destinations, by };
        carry_out(topic, &job, args)
    }

    /// Prints the dead letters that match; fails where a replay would pass some of them over.
    fn dry_run(
        &self,
        topic: &DeadLetterTopic<'_>,
        filter: &DeadLetterFilter,
        format: OutputFormat,
    ) -> Result<Exit, Fault> {
        let index = topic.index(filter)?;
        let listed = print_matching(topic, filter, &index, format, None)?;
        let note = |listed| print_note(&format!("dry run, nothing was changed: {listed}"));
        listed.iter().for_each(note);
        if self.action == ReplayAction::Replay {
            check_replayable(topic, filter, &index, self.destinations.as_ref())?;
        }
        Ok(Exit::Done)
    }
}

fn carry_out(
    topic: &DeadLetterTopic<'_>,
    job: &ReplayJob,
    args: &WorkArgs,
) -> Result<Exit, Vec<Fault>> {
    let past = job.action.past();
    let mut bar = JobProgress::new(past);
    let mut observe = |it: &replay::ReplayProgress| bar.update(it.done, it.matched);
    let ReplayReport { progress, fault } = replay::run(topic, job, &steady_clock(), &mut observe);
    bar.end();
    let replay::ReplayProgress { matched, done, records, .. } = progress;
    let is_text = args.output.format() == OutputFormat::Text;
    if !is_text || matched > 0 {
        let text = || format!("{past} {done} of {matched} dead letters\n");
        print_as(args.output.format(), || json!(progress), text)?;
    } else if fault.is_none() {
        let records = counted(records as usize, "record");
        print_note(&format!("no dead letter matches {}; {records} read", job.filter));
    }
    // A dead letter that is passed over, or gone, is a fault.
    if fault.is_none() && done < matched {
        print_note("the others were resolved by somebody else meanwhile");
    }
    let wanted = args.filter.ids().len();
    if matched > 0 && matched < wanted {
        print_note(&format!("{wanted} ids were given: the other events have no such dead letter"));
    }
    Ok(fault.map_or(Ok(Exit::Done), Err)?)
}

/// As a question begins.
fn capital(action: ReplayAction) -> String {
    let (first, rest) = action.name().split_at(1);
    first.to_uppercase() + rest
}

/// The audit line of a request for which a reason was given; the work itself logs who does it.
fn log_reason(action: &str, who: &str, reason: &str) {
    if !reason.is_empty() {
        tracing::info!(target: "audit", who, action, reason, "dead letters: {action} requested");
    }
}

fn release_keys(topic: &DeadLetterTopic<'_>, args: &ReleaseArgs) -> Result<Exit, Fault> {
    let by = user_at_host();
    let request = ReleaseRequest { key: args.key.clone(), force: args.force, by };
    let dry_run = args.dry_run.dry_run;
    let ReleasedKeys { keys, meanwhile } = match dry_run {
        true => ReleasedKeys { keys: releasable_keys(topic, &request)?, meanwhile: 0 },
        false => {
            log_reason("release", &request.by, &args.reason.reason);
            release(topic, &request, &steady_clock())?
        }
    };
    if keys.is_empty() {
        print_note("no key is parked");
    }
    if meanwhile > 0 {
        print_note(&format!(
            "written meanwhile and open: {} of the released keys; walrelay dlq replay --key KEY",
            counted(meanwhile, "dead letter")
        ));
    }
    let would = if dry_run { "would be " } else { "" };
    let value = || json!({ "dry_run": dry_run, "keys": keys, "dead_letters_meanwhile": meanwhile });
    let lines = || keys.iter().map(|key| format!("key {key} {would}released\n")).collect();
    print_as(args.output.format(), value, lines)
}

fn parse_filter(text: &FilterText) -> Result<DeadLetterFilter, Vec<Fault>> {
    DeadLetterFilter::parse(text, unix_now_us()).map_err(|mut faults| {
        for fault in &mut faults {
            fault.place = match fault.place.as_str() {
                "id" => "ID".to_owned(),
                name => format!("--{}", name.replace('_', "-")),
            };
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
            format!("{name} which dead letters? No id, no filter and no --all was given"),
            format!("walrelay dlq {name} ID, or a filter, or --all: walrelay dlq {name} --help"),
        ),
        (true, true) => {
            ("--all contradicts an id or a filter".to_owned(), "leave one of them out".to_owned())
        }
    };
    Err(unselected(what, mend))
}

fn unselected(what: impl Into<String>, mend: impl Into<String>) -> Fault {
    Fault::new(Exit::Usage, "dead-letter.unselected", what, "", mend)
}

/// Asks the job to stop at the first signal, and ends the process at the second.
fn stop_on_signal(stop: &StopFlag) -> Result<(), Fault> {
    let stop = Arc::clone(stop);
    // Where the system refuses the handlers, a signal ends the process as it does any other.
    runtime::spawn("signals", move || runtime::try_block_on(watch_signals(&stop))).map(drop)
}

async fn watch_signals(stop: &AtomicBool) -> Result<(), Fault> {
    let mut stopped = stop_signals()?;
    let mut requests = StopRequests::default();
    loop {
        stopped().await;
        match requests.receive(Instant::now()) {
            StopRequest::First => {
                stop.store(true, Ordering::Relaxed);
                print_note("stopping: settling what is in flight; a second signal stops at once");
            }
            StopRequest::Repeated => {}
            StopRequest::Second => std::process::exit(Exit::Failed as i32),
        }
    }
}

/// Who runs this command, for the log: `alice@host`.
pub(super) fn user_at_host() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    format!("{}@{}", user.unwrap_or_else(|| "unknown".to_owned()), host::name())
}
