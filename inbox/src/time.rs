//! Times and durations as headers, names and pauses need them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use walrelay_dead_letter::backoff::Backoff;
use walrelay_dead_letter::time;

const TELL_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// As the relay writes it: `2026-01-02T03:04:05.678000Z`.
pub(crate) fn rfc3339(since_epoch: Duration) -> String {
    time::rfc3339(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
}

/// Whether the relay can read it.
pub(crate) fn is_rfc3339(text: &str) -> bool {
    time::parse_rfc3339(text).is_some()
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

/// Lets the log say once a minute what lasts.
#[derive(Default)]
pub(crate) struct Reminder {
    told_at: Option<Instant>,
}

impl Reminder {
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.told_at.is_none_or(|at| now.duration_since(at) >= TELL_INTERVAL);
        if is_due {
            self.told_at = Some(now);
        }
        is_due
    }
}

/// Pauses of 5 s at most. Many processes do not come back at once.
pub(crate) fn backoff() -> Backoff {
    Backoff::seeded(Duration::from_millis(50), Duration::from_secs(5), seed())
}

/// The first pause of a backoff is drawn from all times below its base.
pub(crate) fn random_below(most: Duration) -> Duration {
    Backoff::seeded(most, most, seed()).next_delay()
}

fn seed() -> u64 {
    u64::from(unix_now().subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_process_is_one_of_the_relay() {
        let at = Duration::from_micros(1_795_266_631_227_183);
        assert_eq!(rfc3339(at), "2026-11-21T13:10:31.227183Z");
        assert!(is_rfc3339(&rfc3339(unix_now())) && !is_rfc3339("yesterday"));
    }

    #[test]
    fn what_lasts_is_told_once_a_minute() {
        let (start, mut reminder) = (Instant::now(), Reminder::default());
        let told = [0, 1, 59, 60, 119, 180].map(|at| {
            let now = start + Duration::from_secs(at);
            reminder.is_due(now)
        });
        assert_eq!(told, [true, false, false, true, false, true]);
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
}
