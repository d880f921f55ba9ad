//! Times and durations as headers, names and pauses need them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;

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
