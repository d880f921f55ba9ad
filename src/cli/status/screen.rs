//! Draws what relays have said, one block each.
//!
//! An answer is drawn as far as it goes: a field that a relay of another version does not have is left
//! out. Its texts come over the network, so they are escaped.

use serde_json::Value;

use super::ask::AskedRelay;
use super::sparkline::{ASCII, BLOCKS, greatest, last, sparkline};
use crate::base::error::Fault;
use crate::base::figures::{binary_size, duration, grouped};
use crate::base::text::escaped;
use crate::cli::output::cut;

const LABEL_CHARS: usize = 13;
/// A value with a plot behind it.
const VALUE_CHARS: usize = 22;
/// The characters of a row besides its plot: indent, label, value, and what the greatest value was.
const BESIDES_PLOT_CHARS: usize = 2 + LABEL_CHARS + VALUE_CHARS + 1 + 16;
/// A plot has whole minutes of samples that are taken every 5 s.
const MARKS_STEP: usize = 12;
const MARKS_MAX: usize = 120;

/// How a screen is drawn.
#[derive(Clone, Copy)]
pub(super) struct ScreenStyle {
    pub(super) columns: usize,
    /// ASCII, and no line is wrapped or cut: for a file, or another program.
    pub(super) is_plain: bool,
    pub(super) is_coloured: bool,
}

#[derive(Clone, Copy)]
enum Tint {
    Good,
    Waits,
    Bad,
    Plot,
    Dim,
}

impl ScreenStyle {
    pub(super) fn dim(&self, text: &str) -> String {
        self.tinted(Tint::Dim, text)
    }

    fn tinted(&self, tint: Tint, text: &str) -> String {
        let code = match tint {
            Tint::Good => "1;32",
            Tint::Waits => "1;33",
            Tint::Bad => "1;31",
            Tint::Plot => "36",
            Tint::Dim => "2",
        };
        match self.is_coloured && !text.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// Breaks a text between words; the lines after the first are indented.
    fn wrapped(&self, text: &str, indent: usize) -> Vec<String> {
        if self.is_plain {
            return vec![text.to_owned()];
        }
        let mut lines = vec![String::new()];
        let mut chars = 0;
        for word in text.split_inclusive(' ') {
            let word_chars = word.trim_end().chars().count();
            if chars > indent && chars + word_chars > self.columns {
                lines.push(" ".repeat(indent));
                chars = indent;
            }
            if let Some(line) = lines.last_mut() {
                *line += word;
            }
            chars += word.chars().count();
        }
        lines.iter().map(|line| cut(line.trim_end(), self.columns.max(1))).collect()
    }

    /// How many marks a plot has; none where it would be too short.
    fn marks(&self) -> Option<usize> {
        let room = self.columns.checked_sub(BESIDES_PLOT_CHARS)?;
        Some((room / MARKS_STEP * MARKS_STEP).min(MARKS_MAX)).filter(|marks| *marks > 0)
    }

    fn separator(&self) -> &'static str {
        if self.is_plain { ", " } else { " · " }
    }
}

pub(super) fn draw(relays: &[AskedRelay], style: &ScreenStyle) -> Vec<String> {
    let mut lines = Vec::new();
    for relay in relays {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        match &relay.status {
            Ok(status) => lines.extend(block(relay, status, style)),
            Err(fault) => lines.extend(failed(relay, fault, style)),
        }
    }
    if relays.len() > 1 {
        let ready = relays.iter().filter(|relay| relay.is_ready()).count();
        lines.extend([String::new(), format!("ready: {ready} of {} relays", relays.len())]);
    }
    lines.extend(plots_are_of(relays, style).map(|text| style.dim(&text)));
    lines
}

/// The caption of the plots, where there are any.
fn plots_are_of(relays: &[AskedRelay], style: &ScreenStyle) -> Option<String> {
    let seconds = relays.iter().find_map(|relay| relay.history["interval_seconds"].as_u64())?;
    let of = duration(seconds.saturating_mul(style.marks()? as u64));
    Some(format!("plots: the last {of}, a mark for each {seconds} s"))
}

fn failed(relay: &AskedRelay, fault: &Fault, style: &ScreenStyle) -> Vec<String> {
    let name = address(relay);
    let head = if style.is_plain { "no answer" } else { "✗ no answer" };
    let mut lines = vec![format!("{}{}{name}", style.tinted(Tint::Bad, head), style.separator())];
    let told = fault.to_string();
    // Below the text of the fault, or behind `where:` and `help:`.
    let indent = |line: &str| if line.starts_with(' ') { 11 } else { 4 };
    let told = told.lines();
    lines.extend(told.flat_map(|line| style.wrapped(&format!("  {line}"), indent(line))));
    lines
}

fn address(relay: &AskedRelay) -> String {
    relay.url.to_string().trim_start_matches("http://").to_owned()
}

fn block(relay: &AskedRelay, status: &Value, style: &ScreenStyle) -> Vec<String> {
    let mut lines = heading(relay, status, style);
    lines.extend(reasons(status).flat_map(|reason| {
        let wrapped = style.wrapped(&format!("  ! {reason}"), 4);
        wrapped.into_iter().map(|line| style.tinted(Tint::Bad, &line))
    }));
    if let Some(note) = text(&status["note"]) {
        lines.extend(style.wrapped(&format!("  note: {note}"), 4));
    }
    let samples = relay.history["samples"].as_array().map_or(&[][..], Vec::as_slice);
    let values =
        |field: &str| samples.iter().map(|sample| number(&sample[field])).collect::<Vec<_>>();
    let (lag, lags, size): (_, _, fn(f64) -> String) = match status["slot"].is_object() {
        true => (slot_lag(&status["slot"]), values("lag_bytes"), |it| binary_size(it as u64)),
        false => (backlog(&status["polling"]), values("lag_seconds"), age),
    };
    let rates = values("published_per_second");
    let rows = [
        row(style, "lag", lag, Some((&lags, size))),
        row(style, "published", published(status), Some((&rates, per_second))),
        row(style, "latency", latency(status), None),
        row(style, "in flight", in_flight(&status["in_flight"]), None),
        row(style, "retries", retries(status), None),
        row(style, "dead letters", Some(dead_letters(status)), None),
        row(style, "WAL", wal(&status["slot"]), None),
    ];
    lines.extend(rows.into_iter().flatten());
    for (label, field) in [("pinned by", "pinned_by"), ("idle", "idle_timeout")] {
        let sentence = text(&status["slot"][field]["text"]);
        let line = sentence.map(|it| format!("  {label:<LABEL_CHARS$}{it}"));
        lines.extend(line.into_iter().flat_map(|line| style.wrapped(&line, 2 + LABEL_CHARS)));
    }
    lines
}

/// State and address on the first line, what relay it is on the second.
fn heading(relay: &AskedRelay, status: &Value, style: &ScreenStyle) -> Vec<String> {
    let state = text(&status["state"]).unwrap_or_default();
    let tint = match state.as_str() {
        _ if relay.is_ready() => Tint::Good,
        "starting" | "connecting" | "standby" | "draining" => Tint::Waits,
        _ => Tint::Bad,
    };
    let mark = if style.is_plain { "" } else { "● " };
    let head = format!("{mark}{state}");
    let lasts = number(&status["since_seconds"]).map(|it| format!(" for {}", duration(it as u64)));
    let not_ready = if relay.is_ready() { "" } else { ", not ready" };
    let mut parts = vec![format!("{head}{}{not_ready}", lasts.unwrap_or_default())];
    parts.extend(text(&status["since"]).map(|since| format!("since {since}")));
    parts.push(address(relay));
    let mut lines = style.wrapped(&parts.join(style.separator()), 2);
    if let Some(line) = lines.first_mut()
        && let Some(rest) = line.strip_prefix(&head)
    {
        *line = format!("{}{rest}", style.tinted(tint, &head));
    }
    let source = match text(&status["slot"]["name"]) {
        Some(slot) => format!("slot {slot}"),
        None => "polls its table".to_owned(),
    };
    let mut parts = vec![source];
    parts.extend(text(&status["sink"]).map(|sink| format!("to {sink}")));
    parts.extend(number(&status["uptime_seconds"]).map(|it| format!("up {}", duration(it as u64))));
    parts.extend(text(&status["version"]).map(|version| format!("walrelay {version}")));
    let about = style.wrapped(&format!("  {}", parts.join(style.separator())), 4);
    lines.extend(about.iter().map(|line| style.dim(line)));
    lines
}

/// The leading reason first.
fn reasons(status: &Value) -> impl Iterator<Item = String> {
    let told = |reason: &Value| {
        let (code, sentence) = (text(&reason["code"])?, text(&reason["text"])?);
        Some(format!("{code}: {sentence}"))
    };
    let leading = told(&status["reason"]);
    let all = status["reasons"].as_array().into_iter().flatten().filter_map(told);
    let others: Vec<String> = all.filter(|reason| leading.as_ref() != Some(reason)).collect();
    leading.into_iter().chain(others)
}

/// Values, oldest first, and how one is written.
type Plot<'a> = (&'a [Option<f64>], fn(f64) -> String);

/// A labelled value, and how it went if there is room; none without a value.
fn row(
    style: &ScreenStyle,
    label: &str,
    value: Option<String>,
    plot: Option<Plot<'_>>,
) -> Option<String> {
    let value = value?;
    let label = style.dim(&format!("  {label:<LABEL_CHARS$}"));
    let room = style.columns.saturating_sub(2 + LABEL_CHARS).max(1);
    if let Some((plot, ends)) = plot.and_then(|plot| drawn(style, plot))
        && value.chars().count().max(VALUE_CHARS) + 1 + (plot.chars().count() + ends.len()) <= room
    {
        let (plot, ends) = (style.tinted(Tint::Plot, &plot), style.dim(&ends));
        return Some(format!("{label}{value:<VALUE_CHARS$} {plot}{ends}").trim_end().to_owned());
    }
    let value = if style.is_plain { value } else { cut(&value, room) };
    Some(format!("{label}{value}"))
}

/// The marks, and the greatest value among them.
fn drawn(style: &ScreenStyle, (values, show): Plot<'_>) -> Option<(String, String)> {
    let marks = style.marks().filter(|_| !values.is_empty())?;
    let levels = if style.is_plain { ASCII } else { BLOCKS };
    let greatest = show(greatest(last(values, marks)));
    Some((sparkline(values, marks, levels), format!("  max {greatest}")))
}

/// The text of a field that is there without a value.
const UNKNOWN: &str = "unknown";

fn slot_lag(slot: &Value) -> Option<String> {
    let bytes = slot.pointer("/lag_bytes/confirmed")?;
    let Some(bytes) = number(bytes) else { return Some(UNKNOWN.to_owned()) };
    let seconds = number(&slot["lag_seconds"]).map(|seconds| format!(", {}", age(seconds)));
    Some(binary_size(bytes.max(0.0) as u64) + &seconds.unwrap_or_default())
}

fn backlog(polling: &Value) -> Option<String> {
    let rows = number(&polling["backlog"])? as u64;
    let noun = if rows == 1 { "row" } else { "rows" };
    let seconds = number(&polling["backlog_age_seconds"]).filter(|age| *age > 0.0);
    let seconds = seconds.map(|it| format!(", oldest {}", age(it)));
    Some(format!("{} {noun}{}", grouped(rows, ','), seconds.unwrap_or_default()))
}

/// The rate, or, of a relay that tells none, how many there were in all.
fn published(status: &Value) -> Option<String> {
    let rate = number(&status["rates"]["published_per_second"]).map(per_second);
    rate.or_else(|| Some(total(&status["events"]["published"])? + " in all"))
}

fn latency(status: &Value) -> Option<String> {
    let latency = &status["latency_ms"];
    match (number(&latency["p50"]), number(&latency["p99"])) {
        (Some(p50), Some(p99)) => {
            Some(format!("p50 {}, p99 {}", milliseconds(p50), milliseconds(p99)))
        }
        _ if latency.is_null() && status.get("latency_ms").is_some() => {
            let seconds = number(&status["rates"]["over_seconds"])?;
            Some(format!("nothing published within {seconds} s"))
        }
        _ => None,
    }
}

fn in_flight(in_flight: &Value) -> Option<String> {
    let (events, bytes) = (total(&in_flight["events"])?, number(&in_flight["bytes"])?);
    let limit = total(&in_flight["limit"]).map(|limit| format!(" of {limit}")).unwrap_or_default();
    Some(format!("{events}{limit} events, {}", binary_size(bytes as u64)))
}

fn retries(status: &Value) -> Option<String> {
    let retries = total(&status["events"]["retries"])?;
    let rate = number(&status["rates"]["retries_per_second"]).filter(|rate| *rate > 0.0);
    Some(retries + &rate.map(|rate| format!(", {}", per_second(rate))).unwrap_or_default())
}

fn dead_letters(status: &Value) -> String {
    let letters = &status["dead_letters"];
    let mut text = match total(&letters["open"]) {
        None => "open ones are not known".to_owned(),
        Some(open) => format!("{open} open"),
    };
    let oldest = number(&letters["oldest_age_seconds"]).filter(|age| *age > 0.0);
    text += &oldest.map(|oldest| format!(", oldest {}", age(oldest))).unwrap_or_default();
    let rate = number(&status["rates"]["dead_lettered_per_second"]).filter(|rate| *rate > 0.0);
    text += &rate.map(|rate| format!(", {}", per_second(rate))).unwrap_or_default();
    let keys = total(&letters["parked_keys"]).filter(|keys| keys != "0");
    text += &keys.map(|keys| format!(", {keys} keys parked")).unwrap_or_default();
    text + if letters["breaker_open"] == true { ", breaker open" } else { "" }
}

fn wal(slot: &Value) -> Option<String> {
    let retained = slot.get("retained_wal_bytes")?;
    let (Some(status), Some(retained)) = (text(&slot["wal_status"]), number(retained)) else {
        return Some(UNKNOWN.to_owned());
    };
    let retained = binary_size(retained.max(0.0) as u64);
    let safe = match number(&slot["safe_wal_bytes"]) {
        // Postgres tells no limit of a slot that is lost.
        _ if status == "lost" => String::new(),
        None => ", without limit".to_owned(),
        Some(safe) if safe < 0.0 => ", beyond the limit".to_owned(),
        Some(safe) => format!(", {} more are safe", binary_size(safe as u64)),
    };
    let status =
        if status == "reserved" { String::new() } else { format!(", wal_status {status}") };
    Some(format!("{retained} retained{safe}{status}"))
}

/// A text of the answer, escaped; none where it is missing or empty.
fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(escaped)
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

fn total(value: &Value) -> Option<String> {
    number(value).map(|count| grouped(count.max(0.0) as u64, ','))
}

fn per_second(rate: f64) -> String {
    match rate {
        0.0 => "0/s".to_owned(),
        ..9.95 => format!("{rate:.1}/s"),
        _ => format!("{}/s", grouped(rate.round() as u64, ',')),
    }
}

fn milliseconds(ms: f64) -> String {
    match ms {
        ..9.95 => format!("{ms:.1} ms"),
        ..999.5 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1e3),
    }
}

fn age(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        ..9.95 => format!("{seconds:.1} s"),
        _ => duration(seconds.round() as u64),
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
