//! Cost of the inbox for a consumer: the same handler with it and without it, in one run.
//!
//! Both consumers read the same messages into the same number of lanes, a lane a connection, and write one
//! row for each message in a transaction of its own. The bare one stops there; the inbox claims the
//! message in the same transaction, so that a repetition would be recognised. They take turns, and the
//! ratio is that of each pair: absolute figures do not travel between machines.

#![allow(clippy::print_stdout, reason = "its product is a table on the terminal")]

mod bare;
mod handler;
mod inboxed;
mod topic;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use walrelay_harness::bench::{self, Progress};
use walrelay_harness::{Broker, BrokerKind, HarnessError, Postgres, PostgresOptions, Result, proc};
use walrelay_measure::numbers;
use walrelay_measure::table::Table;

const DATABASE: &str = "app";

/// Measures walrelay-inbox beside a consumer that does not use it.
#[derive(Clone, Debug, Parser)]
#[command(name = "inbox")]
struct Options {
    /// Which broker: kafka or rabbitmq
    #[arg(long, default_value = "kafka")]
    sink: BrokerKind,
    #[arg(long, default_value_t = 60_000)]
    messages: u64,
    #[arg(long, default_value_t = 1_000)]
    keys: u64,
    #[arg(long, default_value_t = 8)]
    lanes: usize,
    /// Rounds; each consumer runs once in each
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// 10,000 messages, one round
    #[arg(long)]
    quick: bool,
    /// As `cargo bench` passes it
    #[arg(long, hide = true)]
    bench: bool,
}

/// The cost of one consumer of all messages.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    rate: f64,
    postgres_cpu_us: f64,
    own_cpu_us: f64,
    wal_bytes: f64,
    table_bytes: f64,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.quick {
        (options.messages, options.runs) = (10_000, 1);
    }
    bench::exit(run(&options))
}

fn run(options: &Options) -> Result<()> {
    let progress = Progress::start();
    progress.step(&format!("starting PostgreSQL and {}", options.sink.name()));
    let postgres = Postgres::start(PostgresOptions::default())?;
    postgres.create_database(DATABASE)?;
    postgres.sql(DATABASE, handler::TABLE)?;
    let broker = Broker::start(options.sink)?;
    let names = |name: &str| (0..options.runs).map(|round| format!("{name}{round}")).collect();
    let (of_bare, of_inbox): (Vec<String>, Vec<String>) = (names("bare"), names("inbox"));
    if let Broker::RabbitMq(rabbitmq) = &broker {
        // Each consumer has a queue of its own, which must be there before the messages.
        topic::declare(rabbitmq, &of_bare)?;
        for service in &of_inbox {
            inboxed::init(&broker, &postgres.url(DATABASE), service, options)?;
        }
    }
    topic::fill(&broker, options.messages, options.keys)?;
    let (mut bare, mut inboxed) = (Vec::new(), Vec::new());
    for (round, (queue, service)) in of_bare.iter().zip(&of_inbox).enumerate() {
        progress.step(&format!("round {} of {}", round + 1, options.runs));
        bare.push(measure(&postgres, options, None, |url| {
            bare::consume(&broker, url, queue, options)
        })?);
        inboxed.push(measure(&postgres, options, Some("processed_messages"), |url| {
            inboxed::consume(&broker, url, service, options)
        })?);
    }
    println!("{}", table(options, &bare, &inboxed));
    println!("commit {} · load {:.1}", bench::commit(), walrelay_measure::process::load_average());
    Ok(())
}

/// Lets a consumer handle everything, in an empty table, after a checkpoint.
fn measure(
    postgres: &Postgres,
    options: &Options,
    table: Option<&str>,
    consume: impl FnOnce(&str) -> Result<Duration>,
) -> Result<Measured> {
    postgres.sql(DATABASE, "truncate effects")?;
    if table.is_some() {
        postgres.sql(DATABASE, "drop table if exists processed_messages, deferred_messages")?;
    }
    postgres.sql(DATABASE, "checkpoint")?;
    let number = |sql: &str| {
        let text = postgres.sql(DATABASE, sql)?;
        text.parse::<f64>().map_err(|_| HarnessError::Other(format!("{sql}: {text}")))
    };
    let wal = || number("select pg_current_wal_insert_lsn() - '0/0'");
    let own = || proc::cpu_seconds(std::process::id());
    let before = (wal()?, proc::tree_cpu_seconds(postgres.pid())?, own()?);
    let took = consume(&postgres.url(DATABASE))?;
    let after = (wal()?, proc::tree_cpu_seconds(postgres.pid())?, own()?);
    let messages = options.messages as f64;
    let written = number("select count(*) from effects")?;
    if written != messages {
        return Err(HarnessError::Other(format!("{written} effects of {messages} messages")));
    }
    let size = table.map(|name| number(&format!("select pg_total_relation_size('{name}')")));
    Ok(Measured {
        rate: messages / took.as_secs_f64(),
        wal_bytes: (after.0 - before.0) / messages,
        postgres_cpu_us: (after.1 - before.1) / messages * 1e6,
        own_cpu_us: (after.2 - before.2) / messages * 1e6,
        table_bytes: size.transpose()?.unwrap_or_default() / messages,
    })
}

fn table(options: &Options, bare: &[Measured], inboxed: &[Measured]) -> Table {
    let title = format!(
        "{}: {} messages of {} keys, {} lanes, median of {}",
        options.sink.name(),
        numbers::count(options.messages),
        numbers::count(options.keys),
        options.lanes,
        options.runs
    );
    let header = [
        "consumer",
        "rate",
        "of bare",
        "Postgres CPU µs/msg",
        "own CPU µs/msg",
        "WAL B/msg",
        "table and indexes B/msg",
    ];
    let mut table = Table::new(title, header);
    let median = |all: &[Measured], of: fn(&Measured) -> f64| {
        numbers::median(all.iter().map(of).collect()).unwrap_or(f64::NAN)
    };
    let ratios = bare.iter().zip(inboxed).map(|(bare, inboxed)| inboxed.rate / bare.rate);
    let ratio = numbers::median(ratios.collect()).unwrap_or(f64::NAN);
    for (name, all, ratio) in [("bare", bare, 1.0), ("with the inbox", inboxed, ratio)] {
        table.row([
            name.to_owned(),
            numbers::rate(median(all, |one| one.rate)),
            format!("{ratio:.2}"),
            format!("{:.0}", median(all, |one| one.postgres_cpu_us)),
            format!("{:.0}", median(all, |one| one.own_cpu_us)),
            format!("{:.0}", median(all, |one| one.wal_bytes)),
            format!("{:.0}", median(all, |one| one.table_bytes)),
        ]);
    }
    table
}
