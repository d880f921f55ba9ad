//! `walrelay compare`: measures the slot and polling on the configured database and broker.

use std::fs::OpenOptions;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use walrelay_compare::plan::{ComparisonPlan, ComparisonRequest};
use walrelay_compare::relay_process::RelayOrder;
use walrelay_compare::{ComparisonOutcome, ComparisonWatcher, RunProgress, page, terminal};

use super::args::CompareArgs;
use super::logging::{LogOptions, prepare};
use super::measured_relay;
use super::output::print_as;
use super::progress::StatusLine;
use crate::app;
use crate::base::error::{Exit, Fault};
use crate::config::{Config, Request};

const WRITTEN_EVERY: Duration = Duration::from_secs(10);

pub(super) fn plan(args: &CompareArgs) -> Result<ComparisonPlan, Vec<Fault>> {
    ComparisonPlan::read(&args.rates, &args.intervals, &args.duration, args.backlog)
}

pub(super) fn run(
    config: &Config,
    origin: &Request,
    plan: &ComparisonPlan,
    args: &CompareArgs,
) -> Result<Exit, Vec<Fault>> {
    let page_file = args.html.as_deref().map(PageFile::open).transpose()?;
    let mut lines = StatusLine::new(WRITTEN_EVERY);
    let origin = measured_relay::to_order(origin)?;
    let request = ComparisonRequest {
        source: &config.source,
        sink: &config.sink,
        backoff_cap: config.delivery.backoff_cap,
        origin: &origin,
        plan,
    };
    let ComparisonOutcome { report, mut faults } = walrelay_compare::run(request, &mut lines);
    lines.erase();
    let mut missing = 0;
    if let Some(report) = report {
        missing = report.losses().missing;
        let text = || terminal::to_text(&report, std::io::stdout().is_terminal());
        faults.extend(print_as(args.output.format(), || report.to_json(), text).err());
        faults.extend(page_file.and_then(|file| file.write(&page::render(&report)).err()));
    }
    match (faults.is_empty(), missing) {
        (false, _) => Err(faults),
        (true, 0) => Ok(Exit::Done),
        (true, _) => Ok(Exit::Failed),
    }
}

/// The relay under test; its orders come on standard input.
pub(super) fn relay(log: LogOptions<'_>, request: &Request) -> Result<Exit, Vec<Fault>> {
    let order = RelayOrder::receive()?;
    let config = prepare(log, &measured_relay::request(&order, request)?)?;
    app::run(&measured_relay::adapt(&order, &config)?, &|| {})?;
    Ok(Exit::Done)
}

/// The file of the page, opened before an hour is spent on measuring what goes into it.
struct PageFile<'a> {
    path: &'a Path,
    /// Created here and not written yet; then it is removed in the end.
    new: bool,
}

impl PageFile<'_> {
    fn open(path: &Path) -> Result<PageFile<'_>, Fault> {
        let new = !path.exists();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        opened.map_err(|error| unwritable(path, &error))?;
        Ok(PageFile { path, new })
    }

    fn write(mut self, text: &str) -> Result<(), Fault> {
        self.new = false;
        std::fs::write(self.path, text).map_err(|error| unwritable(self.path, &error))
    }
}

impl Drop for PageFile<'_> {
    fn drop(&mut self) {
        if self.new {
            std::fs::remove_file(self.path).ok();
        }
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Fault {
    let what = format!("cannot write {}: {error}", path.display());
    let mend = "name a file in a folder that you may write to";
    Fault::new(Exit::Usage, "output.unwritable", what, "--html", mend)
}

impl ComparisonWatcher for StatusLine {
    fn announce(&mut self, text: &str) {
        self.keep("·", text);
    }

    fn progress(&mut self, now: &RunProgress) {
        if self.is_due() {
            self.show(" ", &line(now));
        }
    }
}

fn line(now: &RunProgress) -> String {
    let RunProgress { what, left, delivered, events, p50_ms } = now;
    let p50 = p50_ms.map_or_else(String::new, |p50_ms| format!(", p50 {p50_ms:.1} ms"));
    let left = match left.as_secs_f64().ceil() as u64 {
        0 => String::new(),
        seconds => format!(", {seconds} s left"),
    };
    format!("{what}: {delivered} of {events} delivered{p50}{left}")
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
