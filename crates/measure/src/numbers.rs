//! Numbers for people, with about three digits.

use std::time::Duration;

/// A count with thousands separators: `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number without a unit: `0.35`, `3.4`, `12.3`, `1,234`.
pub fn figure(value: f64) -> String {
    let value = if value.is_finite() { value.max(0.0) } else { 0.0 };
    if value >= 99.95 {
        return count(value.round() as u64);
    }
    let decimals = match value {
        _ if value >= 0.995 => 1,
        _ if value >= 0.0995 => 2,
        _ if value >= 0.00995 => 3,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number with fixed decimals: `1203.5` as `1,203.50`.
pub fn fixed(value: f64, decimals: usize) -> String {
    let value = if value.is_finite() { value.max(0.0) } else { 0.0 };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    format!("{whole}.{fraction}")
}

/// Milliseconds, or seconds if there are many: `0.35 ms`, `12.3 ms`, `1.2 s`.
pub fn ms(value: f64) -> String {
    if value < 999.5 { format!("{} ms", figure(value)) } else { seconds(value / 1000.0) }
}

/// Seconds, or minutes if there are many: `0.4 s`, `12.3 s`, `3 min 05 s`.
pub fn seconds(value: f64) -> String {
    if value < 99.95 {
        return format!("{} s", figure(value));
    }
    let whole = value as u64;
    format!("{} min {:02} s", whole / 60, whole % 60)
}

/// A duration in the unit that fits: `0.35 ms`, `4.2 s`, `3 min 05 s`.
pub fn duration(duration: Duration) -> String {
    ms(duration.as_secs_f64() * 1000.0)
}

/// A size in decimal units: `512 B`, `14.2 MB`.
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return format!("{} {unit}", figure(value));
        }
        value /= 1000.0;
    }
    format!("{} TB", figure(value))
}

/// A rate: `950/s`, `4.8k/s`, `163k/s`, `1.2M/s`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        value if value < 999.5 => format!("{value:.0}/s"),
        value if value < 9_950.0 => format!("{:.1}k/s", value / 1e3),
        value if value < 999_500.0 => format!("{:.0}k/s", value / 1e3),
        value => format!("{:.1}M/s", value / 1e6),
    }
}

/// The median; the lower one of an even count, so that it is a figure that was measured. Values that are not finite
/// are left out.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_no_idle_zeros() {
        let shown = [0.0, 0.0314, 0.3, 0.346, 1.0, 6.44, 14.96, 152.7, 1_234_567.0].map(figure);
        assert_eq!(shown, ["0", "0.031", "0.3", "0.35", "1", "6.4", "15", "153", "1,234,567"]);
        assert_eq!([f64::NAN, f64::INFINITY, -1.0].map(figure), ["0", "0", "0"]);
        assert_eq!([count(0), count(999), count(1_000_000)], ["0", "999", "1,000,000"]);
        assert_eq!([fixed(1203.5, 2), fixed(0.0, 1)], ["1,203.50", "0.0"]);
    }

    #[test]
    fn units_follow_the_size() {
        assert_eq!([0.35, 850.0, 999.6, 4_200.0].map(ms), ["0.35 ms", "850 ms", "1 s", "4.2 s"]);
        assert_eq!([0.06, 12.34, 185.0].map(seconds), ["0.06 s", "12.3 s", "3 min 05 s"]);
        assert_eq!(duration(Duration::from_micros(350)), "0.35 ms");
        assert_eq!([512, 14_200_000, 999_700].map(bytes), ["512 B", "14.2 MB", "1 MB"]);
        let rates = [950.0, 4_763.0, 163_200.0, 1_230_000.0].map(rate);
        assert_eq!(rates, ["950/s", "4.8k/s", "163k/s", "1.2M/s"]);
    }

    #[test]
    fn a_median_is_a_figure_that_was_measured() {
        assert_eq!(median(vec![4.0, 1.0, f64::NAN, 3.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![f64::NAN]), None);
    }
}
