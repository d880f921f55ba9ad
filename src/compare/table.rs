//! The report for people: a block for each rate, the drains, and what follows from them in a
//! sentence.

use std::fmt::Write as _;
use std::time::Duration;

use super::plan;
use super::report::{Drain, Mode, PostgresCost, RelayCost, Report, Run};
use crate::base::figures;
use crate::base::text::escaped;
use crate::config::units::show_duration;

const BAR_CHARS: f64 = 32.0;

/// The whole report. `bars` draws the latencies, for a terminal.
#[must_use]
pub fn to_text(report: &Report, bars: bool) -> String {
    let mut text = String::new();
    let machine = &report.machine;
    line(
        &mut text,
        format_args!(
            "PostgreSQL {} · {} at {} · {} cores, {} of memory, load average {:.1} before it began",
            escaped(&report.postgres_version),
            report.sink,
            escaped(&report.broker),
            machine.cores,
            bytes(machine.memory_bytes),
            machine.load_average,
        ),
    );
    for rate in &report.settings.rates {
        let runs: Vec<&Run> = report.runs.iter().filter(|run| run.rate == *rate).collect();
        if runs.is_empty() {
            continue;
        }
        line(&mut text, format_args!("\n{} events/s", grouped(u64::from(*rate))));
        push(&mut text, &latencies(&runs, bars));
        push(&mut text, &costs(&runs));
        for run in runs {
            push(&mut text, &lateness(run));
        }
    }
    if !report.drains.is_empty() {
        let events = grouped(report.settings.backlog_events);
        line(&mut text, format_args!("\na backlog of {events} events"));
        push(&mut text, &drains(&report.drains));
    }
    line(
        &mut text,
        format_args!(
            "\nLatency: from before the INSERT was sent, which commits by itself, to the consumer; one clock.\n\
         Cost: what Postgres did besides the load's own INSERTs; docs/compare.md says what is in it."
        ),
    );
    if !machine.database_is_local {
        push(&mut text, "PG CPU is unknown: the database's processes are not on this machine.\n");
    }
    for sentence in verdict(report) {
        line(&mut text, format_args!("\n{sentence}"));
    }
    text
}

fn latencies(runs: &[&Run], bars: bool) -> String {
    let head = [
        "ms", "p50", "p90", "p95", "p99", "p99.9", "max", "events/s", "missing", "twice",
        "disorder",
    ];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    for run in runs {
        let mut row = vec![plan::name(run.mode)];
        let at = |share| match run.latencies_us.is_empty() {
            true => "–".to_owned(),
            false => ms(run.quantile_ms(share)),
        };
        row.extend([0.5, 0.9, 0.95, 0.99, 0.999, 1.0].map(at));
        row.push(format!("{:.0}", run.delivered_per_second()));
        row.extend([run.missing, run.duplicated, run.out_of_order].map(grouped));
        rows.push(row);
    }
    let lines = aligned(&rows);
    if !bars {
        return lines.concat();
    }
    let longest = runs.iter().map(|run| run.quantile_ms(0.99)).fold(0.0, f64::max);
    let drawn =
        |run: &&Run| format!("  {}", bar(run.quantile_ms(0.5), run.quantile_ms(0.99), longest));
    let legend = "  █ p50  ░ p99".to_owned();
    let beside = std::iter::once(legend).chain(runs.iter().map(drawn));
    lines.iter().zip(beside).map(|(line, bar)| format!("{}{bar}\n", line.trim_end())).collect()
}

/// To scale: full up to the median, shaded up to the 99th percentile.
fn bar(p50: f64, p99: f64, longest: f64) -> String {
    let chars = |value: f64| match longest > 0.0 {
        true => ((value / longest * BAR_CHARS).round() as usize).clamp(1, BAR_CHARS as usize),
        false => 0,
    };
    let full = chars(p50);
    format!("{}{}", "█".repeat(full), "░".repeat(chars(p99).saturating_sub(full)))
}

fn costs(runs: &[&Run]) -> String {
    let mut rows = vec![cost_head("cost")];
    for run in runs {
        rows.push(cost_row(plan::name(run.mode), &run.postgres, &run.relay));
    }
    aligned(&rows).concat()
}

fn cost_head(first: &str) -> Vec<String> {
    let names =
        ["PG transactions", "rows read", "written", "dead", "WAL", "PG CPU", "relay CPU", "memory"];
    [first].into_iter().chain(names).map(str::to_owned).collect()
}

fn cost_row(name: String, postgres: &PostgresCost, relay: &RelayCost) -> Vec<String> {
    vec![
        name,
        grouped(postgres.transactions),
        grouped(postgres.tuples_read),
        grouped(postgres.tuples_written),
        grouped(postgres.dead_tuples),
        bytes(postgres.wal_bytes),
        postgres.cpu_s.map_or_else(|| "unknown".to_owned(), |cpu_s| format!("{cpu_s:.2} s")),
        format!("{:.2} s", relay.cpu_s),
        bytes(relay.rss_peak_bytes),
    ]
}

fn drains(drains: &[Drain]) -> String {
    let head = ["", "events/s", "first after", "all after", "missing", "twice", "disorder"];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    let mut costs = vec![cost_head("cost")];
    for drain in drains {
        // Its rate hardly depends on the interval: while claims come back full, none is waited for.
        let name = plan::name(drain.mode);
        let mut row = vec![name.clone(), grouped(drain.per_second().round() as u64)];
        row.push(format!("{:.2} s", drain.first_s));
        row.push(format!("{:.2} s", drain.first_s + drain.seconds));
        row.extend([drain.missing, drain.duplicated, drain.out_of_order].map(grouped));
        rows.push(row);
        costs.push(cost_row(name, &drain.postgres, &drain.relay));
    }
    aligned(&rows).concat() + &aligned(&costs).concat()
}

/// A load that is late itself says little of anybody else.
fn lateness(run: &Run) -> String {
    let slow = run.written_per_second < 0.95 * f64::from(run.rate);
    if !slow && run.load_late_p99_ms < 50.0 {
        return String::new();
    }
    format!(
        "  ! {}: the load itself was late (p99 {} ms, {:.0} of {} events/s written): the machine is too small for this rate\n",
        plan::name(run.mode),
        ms(run.load_late_p99_ms),
        run.written_per_second,
        run.rate,
    )
}

/// What follows: whether it is all, for each rate the slot beside the soonest polling, then what was
/// lost.
#[must_use]
pub fn verdict(report: &Report) -> Vec<String> {
    let incomplete = report.incomplete.iter().map(|why| format!("INCOMPLETE: {why}."));
    let rates = report.settings.rates.iter().filter_map(|rate| beside(report, *rate));
    let mut sentences: Vec<String> = incomplete.chain(rates).collect();
    let sum = |of: fn(&Run) -> u64, too: fn(&Drain) -> u64| {
        report.runs.iter().map(of).sum::<u64>() + report.drains.iter().map(too).sum::<u64>()
    };
    let missing = report.missing();
    let twice = sum(|run| run.duplicated, |drain| drain.duplicated);
    let disorder = sum(|run| run.out_of_order, |drain| drain.out_of_order);
    sentences.push(match (missing, twice, disorder) {
        (0, 0, 0) => "Nothing is missing, nothing came twice, nothing came out of order.".to_owned(),
        _ => format!("{missing} events are missing, {twice} came twice, {disorder} came out of order: see the lines above."),
    });
    sentences
}

fn beside(report: &Report, rate: u32) -> Option<String> {
    let of_rate = || report.runs.iter().filter(|run| run.rate == rate);
    let cdc = of_rate().find(|run| run.mode == Mode::Cdc)?;
    let polling = of_rate()
        .filter(|run| run.mode != Mode::Cdc)
        .min_by(|a, b| a.quantile_ms(0.5).total_cmp(&b.quantile_ms(0.5)))?;
    let Mode::Polling { interval_ms } = polling.mode else { return None };
    let every = show_duration(Duration::from_millis(interval_ms));
    let times = |share: f64| {
        let (slow, soon) = (polling.quantile_ms(share), cdc.quantile_ms(share));
        (soon > 0.0 && slow > 0.0).then(|| slow / soon)
    };
    let (p50, p99) = (times(0.5)?, times(0.99)?);
    let mut text = if p50 >= 1.0 {
        format!(
            "At {} events/s the slot delivers {} × sooner than polling every {every} (p99 {} ×)",
            grouped(u64::from(rate)),
            factor(p50),
            factor(p99)
        )
    } else {
        format!(
            "At {} events/s polling every {every} delivers {} × sooner than the slot (p99 {} ×)",
            grouped(u64::from(rate)),
            factor(1.0 / p50),
            factor(1.0 / p99)
        )
    };
    if let (Some(own), Some(other)) = (cdc.postgres.cpu_s, polling.postgres.cpu_s)
        && other > 0.0
    {
        put(
            &mut text,
            format_args!(" and takes {:.0} % of its Postgres CPU", percent(own, other, p50)),
        );
    }
    text.push('.');
    Some(text)
}

/// The part of whoever is the subject of the sentence.
fn percent(cdc: f64, polling: f64, p50: f64) -> f64 {
    let (subject, other) = if p50 >= 1.0 { (cdc, polling) } else { (polling, cdc) };
    if other > 0.0 { 100.0 * subject / other } else { 100.0 }
}

fn factor(times: f64) -> String {
    if times < 10.0 { format!("{times:.1}") } else { format!("{times:.0}") }
}

/// Three digits that matter.
fn ms(value: f64) -> String {
    match value {
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1000.0 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    if unit == "B" || value >= 100.0 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

fn grouped(count: u64) -> String {
    figures::grouped(count, ',')
}

/// The first column to the left, the others to the right.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|it| it.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| widest(at).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let mut text = String::from("  ");
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match at {
                0 => put(&mut text, format_args!("{cell:<width$}")),
                _ => put(&mut text, format_args!("  {cell:>width$}")),
            }
        }
        text.push('\n');
        text
    };
    rows.iter().map(line).collect()
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    put(text, words);
    text.push('\n');
}

fn push(text: &mut String, more: &str) {
    text.push_str(more);
}

fn put(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    text.write_fmt(words).ok();
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
