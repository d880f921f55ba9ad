//! Times and durations as headers, names and pauses need them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;
const SECONDS_SHAPE: &str = "0000-00-00T00:00:00";

pub(crate) fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// As the relay writes it: `2026-01-02T03:04:05.678000Z`.
pub(crate) fn rfc3339(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil_from_days(seconds / DAY_SECONDS);
    let of_day = seconds % DAY_SECONDS;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let micros = since_epoch.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// As programs write it, and no longer than that: `2026-01-02T03:04:05Z`, with up to nine digits of
/// a fraction, and `Z` or an offset.
pub(crate) fn is_rfc3339(text: &str) -> bool {
    let has_shape = |text: &str, shape: &str| {
        let fits = |(byte, wanted): (u8, u8)| match wanted {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        };
        text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits)
    };
    let Some((time, rest)) = text.split_at_checked(SECONDS_SHAPE.len()) else { return false };
    let is_within = |range: std::ops::Range<usize>, bounds: std::ops::RangeInclusive<u32>| {
        time[range].parse().is_ok_and(|number: u32| bounds.contains(&number))
    };
    let zone = rest
        .strip_prefix('.')
        .map_or(rest, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let fraction_digits = (rest.len() - zone.len()).checked_sub(1);
    has_shape(time, SECONDS_SHAPE)
        && [(5..7, 1..=12), (8..10, 1..=31), (11..13, 0..=23), (14..16, 0..=59), (17..19, 0..=60)]
            .into_iter()
            .all(|(range, bounds)| is_within(range, bounds))
        && fraction_digits.is_none_or(|digits| (1..=9).contains(&digits))
        && ["Z", "+00:00", "-00:00"].iter().any(|shape| has_shape(zone, shape))
}

/// <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>, for days after 1970.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// `300ms`, `30s`, `5m`, `2h`: the largest unit that is exact.
pub(crate) fn short(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit_ms, name) in [(3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if millis > 0 && millis.is_multiple_of(unit_ms) {
            return format!("{}{name}", millis / unit_ms);
        }
    }
    format!("{millis}ms")
}

/// Pauses that double from 50 ms to 5 s.
#[derive(Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure. Up to half of it is taken off by chance, so that many
    /// processes do not come back at once.
    pub(crate) fn next(&mut self) -> Duration {
        let full_ms = (50u64 << self.failures.min(7)).min(5_000);
        self.failures += 1;
        let chance = u64::from(unix_now().subsec_micros()) % 1_000;
        Duration::from_millis(full_ms - full_ms * chance / 2_000)
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_relay_writes_them() {
        let at = |micros| rfc3339(Duration::from_micros(micros));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(at(1_795_266_631_227_183), "2026-11-21T13:10:31.227183Z");
        assert_eq!(at(1_709_164_800_000_000), "2024-02-29T00:00:00.000000Z");
    }

    #[test]
    fn a_time_is_told_from_other_texts() {
        let now = rfc3339(unix_now());
        for time in [&*now, "2026-01-02T03:04:05Z", "2026-12-31T23:59:60.123456789+02:00"] {
            assert!(is_rfc3339(time), "{time}");
        }
        for other in [
            "",
            "yesterday",
            "2026-01-02",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:05",
            "2026-13-02T03:04:05Z",
            "2026-01-02T24:04:05Z",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05.1234567890Z",
            "2026-01-02T03:04:05Z and more",
            "2026-01-02T03:04:0\u{e4}Z",
        ] {
            assert!(!is_rfc3339(other), "{other}");
        }
    }

    #[test]
    fn a_duration_has_one_short_name() {
        let name = |millis| short(Duration::from_millis(millis));
        assert_eq!(name(300), "300ms");
        assert_eq!(name(30_000), "30s");
        assert_eq!(name(60_000), "1m");
        assert_eq!(name(90_000), "90s");
        assert_eq!(name(7_200_000), "2h");
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..40).map(|_| backoff.next().as_millis()).collect();
        assert!((25..=50).contains(&pauses[0]), "{pauses:?}");
        assert!((2_500..=5_000).contains(&pauses[39]), "{pauses:?}");
        backoff.reset();
        assert!(backoff.next().as_millis() <= 50);
    }
}
