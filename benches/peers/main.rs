//! walrelay and its peers under the same load: drain, latency, kills.
//!
//! The same rows in the same table, the same broker and topic, slots at the same byte, one contender
//! at a time. What counts is what the broker holds, read without asking the contender, and each
//! figure stands beside a check of every event. The contenders' settings are the `.args` files and
//! what they name, in this folder; what each part does is told in docs/benchmarks.md.

#![allow(clippy::print_stdout, reason = "its product is a table on the terminal")]

mod chaos;
mod content;
mod drain;
mod fetch;
mod lanes;
mod latency;
mod options;
mod peer;
mod place;
mod report;

use std::process::ExitCode;

use walrelay_harness::Result;
use walrelay_harness::bench::{self, Progress};

use options::{Options, Part};
use peer::Contender;
use place::Place;
use report::Report;

fn main() -> ExitCode {
    bench::exit(run(&Options::read()))
}

fn run(options: &Options) -> Result<()> {
    let progress = Progress::start();
    progress.say(&options.announcement());
    let contenders = fetch::contenders(options, &progress)?;
    let mut report = Report::new(options, &contenders);
    let ready: Vec<&Contender> =
        contenders.iter().filter(|it| it.installed.missing.is_none()).collect();
    let place = Place::start(options)?;
    report.server_version = place.source.server_version()?;
    report.broker_version = format!("Kafka {}", place.kafka.version());
    if options.runs_part(Part::Drain) {
        report.drain = drain::measure(&place, &ready, options, &progress)?;
    }
    if options.runs_part(Part::Latency) {
        report.latency = latency::measure(&place, &ready, options, &progress)?;
    }
    drop(place);
    if options.runs_part(Part::Chaos) {
        report.chaos = chaos::measure(&ready, options, &progress)?;
    }
    report.took_s = progress.elapsed().as_secs_f64();
    println!("\n{}", report.terminal());
    let files = report.write(&options.out)?;
    progress.say(&format!("written: {files}"));
    Ok(())
}
