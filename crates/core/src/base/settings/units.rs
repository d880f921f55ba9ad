//! Reads and writes sizes and durations, and masks URLs.

use std::time::Duration;

const SIZES: &[(&str, i64)] = &[
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("KB", 1000),
    ("B", 1),
];

/// Longer names first: `ms` must not be read as `m`.
const SPANS: &[(&str, u64)] =
    &[("ms", 1), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];

/// `64MiB`, `64MB` or plain bytes.
pub fn parse_bytes(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let factor = match unit {
        "" => 1,
        _ => SIZES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)?,
    };
    number.parse::<i64>().ok()?.checked_mul(factor)
}

/// A size in the largest binary unit that divides it.
pub fn show_bytes(bytes: i64) -> String {
    let exact = SIZES[..3].iter().find(|(_, factor)| bytes >= *factor && bytes % factor == 0);
    match exact {
        Some((unit, factor)) => format!("{}{unit}", bytes / factor),
        None => format!("{bytes}B"),
    }
}

/// `200ms`, `30s`, `1m30s`, `7d`. A number without a unit is refused, because its meaning is ambiguous.
pub fn parse_duration_ms(text: &str) -> Option<u64> {
    let mut total_ms: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let (unit, factor) = SPANS.iter().find(|(unit, _)| after.starts_with(unit))?;
        total_ms = total_ms.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
        rest = &after[unit.len()..];
    }
    if text.is_empty() { None } else { Some(total_ms) }
}

/// A duration in the largest unit that divides it.
pub fn show_duration(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    for (unit, factor) in &SPANS[1..] {
        if ms >= *factor && ms.is_multiple_of(*factor) {
            return format!("{}{unit}", ms / factor);
        }
    }
    format!("{ms}ms")
}

/// A URL with its password hidden. A URL that cannot be parsed with certainty is hidden as a whole.
pub fn mask_url(url: &str) -> String {
    const HIDDEN: &str = "***";
    let Some((scheme, rest)) = url.split_once("://") else { return HIDDEN.to_owned() };
    if !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+') {
        return HIDDEN.to_owned();
    }
    // The last `@`, because the password may contain one that is not escaped.
    let (user, after) = match rest.rsplit_once('@') {
        Some((login, _)) if login.contains(['/', '?', '#']) => return HIDDEN.to_owned(),
        Some((login, after)) => match login.split_once(':') {
            Some((user, _)) => (format!("{user}:{HIDDEN}@"), after),
            None => (format!("{login}@"), after),
        },
        None => (String::new(), rest),
    };
    let is_http = scheme.starts_with("http");
    let shown = |place: &str| match place.split_once('/') {
        // Services over HTTP have keys in the path.
        Some((server, path)) if is_http && !path.is_empty() => format!("{server}/{HIDDEN}"),
        _ => place.to_owned(),
    };
    let masked = match after.split_once('?') {
        Some((place, query)) => format!("{}?{}", shown(place), mask_query(query)),
        None => shown(after),
    };
    format!("{scheme}://{user}{masked}")
}

/// Hides the first parameter that may be a secret and all after it: its value may contain `&`.
fn mask_query(query: &str) -> String {
    let mut shown = Vec::new();
    for parameter in query.split('&') {
        let name = parameter.split('=').next().unwrap_or_default().to_lowercase();
        let suspect = ["pass", "secret", "token", "%"].iter().any(|part| name.contains(part));
        if suspect {
            shown.push(format!("{name}=***"));
            break;
        }
        shown.push(parameter.to_owned());
    }
    shown.join("&")
}

#[cfg(test)]
#[path = "units_tests.rs"]
mod tests;
