//! Numbers for people: at most three digits, and a no-break space before the unit.

use crate::base::figures::grouped;

/// `1234567` as `1,234,567`.
pub(crate) fn count(value: u64) -> String {
    grouped(value, ',')
}

/// Without a unit: `0.35`, `3.4`, `12.3`, `1,234`.
pub(crate) fn figure(value: f64) -> String {
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
    without_zeros(format!("{value:.decimals$}"))
}

/// `1203.5` as `1,203.50`.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    let value = if value.is_finite() { value.max(0.0) } else { 0.0 };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    format!("{whole}.{fraction}")
}

/// `0.35 ms`, `12.3 ms`, `1.24 s`.
pub(crate) fn ms(value: f64) -> String {
    if value < 999.5 { format!("{}\u{a0}ms", figure(value)) } else { seconds(value / 1000.0) }
}

/// `0.4 s`, `1.24 s`, `12.3 s`.
pub(crate) fn seconds(value: f64) -> String {
    if !(1.0..9.995).contains(&value) {
        return format!("{}\u{a0}s", figure(value));
    }
    format!("{}\u{a0}s", without_zeros(format!("{value:.2}")))
}

/// `512 B`, `3.4 MB`.
pub(crate) fn bytes(value: f64) -> String {
    let mut value = value;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return format!("{}\u{a0}{unit}", figure(value));
        }
        value /= 1000.0;
    }
    format!("{}\u{a0}TB", figure(value))
}

/// `1.4 ×`, `180 ×`.
pub(crate) fn factor(value: f64) -> String {
    let text = if value < 9.95 { figure(value) } else { count(value.round() as u64) };
    format!("{text}\u{a0}×")
}

/// `0.3` as `30 %`.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        value if value < 0.05 => "less than 0.1\u{a0}%".to_owned(),
        value if value < 9.95 => format!("{}\u{a0}%", figure(value)),
        value => format!("{}\u{a0}%", count(value.round() as u64)),
    }
}

/// `1,000 events/s`.
pub(crate) fn rate(value: u32) -> String {
    format!("{}\u{a0}events/s", count(value.into()))
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// With a capital first letter.
pub(crate) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.collect::<String>() + chars.as_str()
}

fn without_zeros(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
#[path = "numbers_tests.rs"]
mod tests;
