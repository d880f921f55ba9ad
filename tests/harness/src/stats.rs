//! Numbers for people: percentiles, units and aligned tables, one look for demo and benchmarks.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Latencies above this are recorded as this: a bench that waits longer has failed anyway.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// A latency histogram in microseconds, exact to three digits, from 1 µs to an hour.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    pub fn new() -> Latencies {
        // The three constants are valid bounds, so only a broken library could refuse them.
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3);
        Latencies(histogram.unwrap_or_else(|error| panic!("latency bounds: {error}")))
    }

    /// Records one latency; negative ones (clock steps) count as 1 µs, never vanish.
    pub fn record_us(&mut self, latency_us: i64) {
        self.0.saturating_record(u64::try_from(latency_us).unwrap_or(0).max(1));
    }

    pub fn merge(&mut self, other: &Latencies) {
        // Equal bounds by construction: the addition cannot fail.
        self.0.add(&other.0).ok();
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// A quantile in milliseconds, `0.0..=1.0`; 0 when empty.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1_000.0
    }

    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            count: self.count(),
            mean_ms: self.0.mean() / 1_000.0,
            p50_ms: self.quantile_ms(0.50),
            p95_ms: self.quantile_ms(0.95),
            p99_ms: self.quantile_ms(0.99),
            max_ms: self.0.max() as f64 / 1_000.0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    pub count: u64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {} · p95 {} · p99 {} · max {} ms ({} samples)",
            human_ms(self.p50_ms),
            human_ms(self.p95_ms),
            human_ms(self.p99_ms),
            human_ms(self.max_ms),
            human_count(self.count)
        )
    }
}

/// Milliseconds with as many digits as mean something: `0.31`, `6.4`, `153`.
pub fn human_ms(value_ms: f64) -> String {
    match value_ms {
        v if v < 1.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// A count with thousands separators: `1,000,000`.
pub fn human_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A byte count: `512 B`, `14.2 MB` (decimal units).
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A rate: `950/s`, `163k/s`, `1.2M/s`.
pub fn human_rate(per_second: f64) -> String {
    match per_second {
        v if v < 999.5 => format!("{v:.0}/s"),
        v if v < 9_950.0 => format!("{:.1}k/s", v / 1e3),
        v if v < 999_500.0 => format!("{:.0}k/s", v / 1e3),
        v => format!("{:.1}M/s", v / 1e6),
    }
}

/// A duration: `0.35 ms`, `850 ms`, `4.2 s`, `3 min 05 s`.
pub fn human_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 0.9995 {
        return format!("{} ms", human_ms(seconds * 1_000.0));
    }
    if seconds < 99.95 {
        return format!("{seconds:.1} s");
    }
    let whole = duration.as_secs();
    format!("{} min {:02} s", whole / 60, whole % 60)
}

/// A text table with aligned columns: words to the left, numbers to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<I: IntoIterator<Item: Into<String>>>(title: impl Into<String>, header: I) -> Table {
        let header = header.into_iter().map(Into::into).collect();
        Table { title: title.into(), header, rows: Vec::new() }
    }

    /// Adds a row; missing cells are blank.
    pub fn row<I: IntoIterator<Item: Into<String>>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace('\n', " "));
        let rule = vec!["---".to_owned(); self.header.len()];
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("### {}\n\n{}{}{rows}", self.title, line(&self.header), line(&rule))
    }

    fn cell(row: &[String], column: usize) -> &str {
        row.get(column).map_or("", String::as_str)
    }

    fn columns(&self) -> usize {
        self.rows.iter().map(Vec::len).chain([self.header.len()]).max().unwrap_or(0)
    }

    /// A column is numeric when every filled cell begins with a digit or a sign.
    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().map(|row| Table::cell(row, column)).peekable();
        cells.peek().is_some()
            && cells.all(|cell| {
                matches!(cell, "" | "-" | "–")
                    || cell
                        .trim_start_matches(['+', '-', '<', '>', '×', '≤', '≥', ' '])
                        .starts_with(|first: char| first.is_ascii_digit())
            })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.columns();
        let widths: Vec<usize> = (0..columns)
            .map(|at| {
                let cells = self.rows.iter().map(|row| Table::cell(row, at));
                cells.chain([Table::cell(&self.header, at)]).map(|c| c.chars().count()).max()
            })
            .map(Option::unwrap_or_default)
            .collect();
        let right: Vec<bool> = (0..columns).map(|at| self.is_numeric(at)).collect();
        let line = |row: &[String]| {
            let cells = (0..columns).map(|at| {
                let (cell, width) = (Table::cell(row, at), widths[at]);
                if right[at] { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        if !self.title.is_empty() {
            writeln!(f, "{}", self.title)?;
        }
        writeln!(f, "{}", line(&self.header))?;
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        writeln!(f, "{}", rule.join("  "))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", line(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_samples() {
        // GIVEN latencies of 1..=1000 ms
        let mut latencies = Latencies::new();
        (1..=1_000).for_each(|ms| latencies.record_us(ms * 1_000));
        // WHEN summed up
        let points = latencies.percentiles();
        // THEN they are right within the histogram's three digits
        let close = |got: f64, want: f64| (got - want).abs() <= want / 500.0;
        assert!(close(points.p50_ms, 500.0), "{points}");
        assert!(close(points.p99_ms, 990.0), "{points}");
        assert!(close(points.max_ms, 1_000.0), "{points}");
        assert!(close(points.mean_ms, 500.5), "{points}");
        assert_eq!(points.count, 1_000);
    }

    #[test]
    fn clock_steps_and_hours_are_kept() {
        let mut latencies = Latencies::new();
        latencies.record_us(-5);
        latencies.record_us(i64::MAX);
        let mut sum = Latencies::new();
        sum.merge(&latencies);
        assert_eq!(sum.count(), 2);
    }

    #[test]
    fn units_read_well() {
        assert_eq!(human_count(0), "0");
        assert_eq!(human_count(999), "999");
        assert_eq!(human_count(1_000_000), "1,000,000");
        assert_eq!(human_bytes(512), "512 B");
        assert_eq!(human_bytes(14_200_000), "14.2 MB");
        assert_eq!(human_rate(950.0), "950/s");
        assert_eq!(human_rate(4_763.0), "4.8k/s");
        assert_eq!(human_rate(163_200.0), "163k/s");
        assert_eq!(human_rate(1_230_000.0), "1.2M/s");
        assert_eq!(human_ms(0.314), "0.31");
        assert_eq!(human_ms(6.44), "6.4");
        assert_eq!(human_ms(152.7), "153");
        assert_eq!(human_duration(Duration::from_micros(350)), "0.35 ms");
        assert_eq!(human_duration(Duration::from_millis(850)), "850 ms");
        assert_eq!(human_duration(Duration::from_millis(4_200)), "4.2 s");
        assert_eq!(human_duration(Duration::from_secs(185)), "3 min 05 s");
    }

    #[test]
    fn a_table_is_aligned() {
        let mut table = Table::new("Drain", ["relay", "events/s", "CPU"]);
        table.row(["walrelay", "250k/s", "1.9"]);
        table.row(["Ünlü", "47k/s"]);
        let want = "Drain\nrelay     events/s  CPU\n────────  ────────  ───\n\
                    walrelay    250k/s  1.9\nÜnlü         47k/s\n";
        assert_eq!(table.to_string(), want);
    }
}
