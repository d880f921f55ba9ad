//! `walrelay compare`: the slot and polling, measured on one's own database and broker.

use std::fs::OpenOptions;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use super::args::CompareArgs;
use crate::base::error::{Exit, Fault};
use crate::base::text::escaped;
use crate::compare::plan::Plan;
use crate::compare::relay::{Order, adapt};
use crate::compare::report::Report;
use crate::compare::{self, Asked, Live, Outcome, Watcher, json, page, table};
use crate::config::{Config, Request};

const REDRAWN_EVERY: Duration = Duration::from_millis(200);
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Reads the words before anything else is done.
pub(super) fn plan(args: &CompareArgs) -> Result<Plan, Vec<Fault>> {
    Plan::read(&args.rates, &args.intervals, &args.duration, args.backlog)
}

pub(super) fn run(
    config: &Config,
    request: &Request,
    plan: &Plan,
    args: &CompareArgs,
) -> Result<Exit, Vec<Fault>> {
    let file = args.html.as_deref().map(Page::begin).transpose();
    let file = file.map_err(|fault| vec![fault])?;
    let mut voice = Voice::new();
    let Outcome { report, mut faults } = compare::run(Asked { config, request, plan }, &mut voice);
    voice.wipe();
    let mut missing = 0;
    if let Some(report) = report {
        missing = report.missing();
        faults.extend(show(&report, args.json).err());
        faults.extend(file.and_then(|file| file.write(&page::render(&report)).err()));
    }
    match (faults.is_empty(), missing) {
        (false, _) => Err(faults),
        (true, 0) => Ok(Exit::Done),
        (true, _) => Ok(Exit::Failed),
    }
}

fn show(report: &Report, as_json: bool) -> Result<Exit, Fault> {
    super::print(&match as_json {
        true => format!("{}\n", json::to_json(report)),
        false => table::to_text(report, std::io::stdout().is_terminal()),
    })
}

/// The relay under test: told over standard input what it is to do.
pub(super) fn relay(log: super::Log<'_>, request: &Request) -> Result<Exit, Vec<Fault>> {
    let order = Order::receive().map_err(|fault| vec![fault])?;
    let config = super::prepare(log, &order.request(request.variables.clone()))?;
    let adapted = adapt(&config, &order).map_err(|fault| vec![fault])?;
    super::run::run(adapted).map_err(|fault| vec![fault])
}

/// A file that is known to be writable before an hour is spent on what goes into it.
struct Page<'a> {
    path: &'a Path,
    /// Made by us, and empty until it is written.
    new: bool,
}

impl Page<'_> {
    fn begin(path: &Path) -> Result<Page<'_>, Fault> {
        let new = !path.exists();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        opened.map_err(|error| unwritable(path, &error))?;
        Ok(Page { path, new })
    }

    fn write(mut self, text: &str) -> Result<(), Fault> {
        self.new = false;
        std::fs::write(self.path, text).map_err(|error| unwritable(self.path, &error))
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if self.new {
            // Nothing was written to it.
            std::fs::remove_file(self.path).ok();
        }
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(
        Exit::Usage,
        "output.unwritable",
        format!("cannot write {}: {error}", path.display()),
        "--html",
        "name a file in a folder that you may write to",
    )
}

/// Tells on standard error: one line that is redrawn on a terminal, a line now and then elsewhere.
struct Voice {
    terminal: bool,
    coloured: bool,
    told: Instant,
    drawn: bool,
}

impl Voice {
    fn new() -> Voice {
        let terminal = std::io::stderr().is_terminal();
        let coloured = terminal && super::no_color_is_unset();
        Voice { terminal, coloured, told: Instant::now(), drawn: false }
    }

    fn wipe(&mut self) {
        if std::mem::take(&mut self.drawn) {
            self.put("\r\x1b[K");
        }
    }

    /// Whoever has gone is told nothing more.
    fn put(&self, text: &str) {
        let mut errors = std::io::stderr();
        errors.write_all(text.as_bytes()).and_then(|()| errors.flush()).ok();
    }
}

impl Watcher for Voice {
    fn say(&mut self, text: &str) {
        self.wipe();
        self.told = Instant::now();
        let text = escaped(text);
        match self.coloured {
            true => self.put(&format!("\x1b[36m·\x1b[0m {text}\n")),
            false => self.put(&format!("· {text}\n")),
        }
    }

    fn live(&mut self, now: &Live) {
        let every = if self.terminal { REDRAWN_EVERY } else { TOLD_EVERY };
        if self.told.elapsed() < every {
            return;
        }
        self.told = Instant::now();
        let text = escaped(&line(now));
        if self.terminal {
            self.drawn = true;
            self.put(&format!("\r  {text}\x1b[K"));
        } else {
            self.put(&format!("  {text}\n"));
        }
    }
}

fn line(now: &Live) -> String {
    let Live { what, left, delivered, events, p50_ms } = now;
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
