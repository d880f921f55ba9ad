//! Numbers for people: three figures at most, and a unit that no line break parts from them.

use crate::base::figures::grouped;

/// `1234567` as `1,234,567`.
pub(super) fn count(value: u64) -> String {
    grouped(value, ',')
}

/// A value without a unit: `0.35`, `3.4`, `12.3`, `1,234`.
pub(super) fn figure(value: f64) -> String {
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

/// Milliseconds: `0.35 ms`, `12.3 ms`, `1.24 s`.
pub(super) fn ms(value: f64) -> String {
    if value < 999.5 { format!("{}\u{a0}ms", figure(value)) } else { seconds(value / 1000.0) }
}

/// Seconds: `0.4 s`, `1.24 s`, `12.3 s`.
pub(super) fn seconds(value: f64) -> String {
    if !(1.0..9.995).contains(&value) {
        return format!("{}\u{a0}s", figure(value));
    }
    let text = format!("{value:.2}");
    format!("{}\u{a0}s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Bytes: `512 B`, `3.4 MB`.
pub(super) fn bytes(value: f64) -> String {
    let mut value = value;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return format!("{}\u{a0}{unit}", figure(value));
        }
        value /= 1000.0;
    }
    format!("{}\u{a0}TB", figure(value))
}

/// A factor: `1.4 ×`, `180 ×`.
pub(super) fn factor(value: f64) -> String {
    let text = if value < 9.95 { figure(value) } else { count(value.round() as u64) };
    format!("{text}\u{a0}×")
}

/// A share of one: `30 %`, `0.4 %`.
pub(super) fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value < 0.05 {
        "less than 0.1\u{a0}%".to_owned()
    } else if value < 9.95 {
        format!("{}\u{a0}%", figure(value))
    } else {
        format!("{}\u{a0}%", count(value.round() as u64))
    }
}

/// A rate: `1,000 events/s`.
pub(super) fn rate(value: u32) -> String {
    format!("{}\u{a0}events/s", count(value.into()))
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
