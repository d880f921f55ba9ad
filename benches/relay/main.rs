//! The relay between a real PostgreSQL and a real broker: what it carries, what it costs, how late.
//!
//! Every figure that depends on the machine stands beside one that nobody can beat, taken in the
//! same run: a reader that discards what it reads, `pg_recvlogical`, a reader and a producer with
//! nothing between them, a producer without a source.
//! Ratios travel between machines, absolute figures do not. What each row means is told in
//! docs/benchmarks.md.

#![allow(clippy::print_stdout, reason = "its product is a table on the terminal")]

mod amqp;
mod bare;
mod bed;
mod broker;
mod drain;
mod growth;
mod kafka_ffi;
mod latency;
mod options;
mod pipeline;
mod publisher;
mod reader;
mod recvlogical;
mod report;
mod targets;
mod watchers;

use std::process::ExitCode;

use bed::Bed;
use options::{Options, Part};
use report::Report;
use walrelay_harness::Result;
use walrelay_harness::bench::{self, Progress};

fn main() -> ExitCode {
    let options = Options::read();
    bench::exit(match &options.bare_pipeline[..] {
        [] => run(&options),
        arguments => pipeline::run(arguments),
    })
}

fn run(options: &Options) -> Result<()> {
    let progress = Progress::start();
    progress.say(&options.announcement());
    let mut report = Report::new(options);
    progress.step("starting PostgreSQL and the broker");
    let bed = Bed::start(options)?;
    report.server_version = bed.server_version()?;
    report.broker_version = bed.broker_version()?;
    progress.say(&format!("PostgreSQL and {} are up", report.broker_version));
    if options.runs_part(Part::Drain) {
        report.drain = drain::measure(&bed, options, &progress)?;
    }
    if options.runs_part(Part::Latency) {
        report.latency = latency::measure(&bed, options, &progress)?;
    }
    if options.runs_part(Part::Growth) {
        report.growth = growth::measure(&bed, options, &progress)?;
    }
    drop(bed);
    report.finish(progress.elapsed());
    println!("\n{}", report.terminal());
    let files = report.write(&options.out)?;
    progress.say(&format!("written: {files}"));
    Ok(())
}
