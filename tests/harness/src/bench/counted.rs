//! Waiting for a count to grow, without making it slow by looking.

use std::time::{Duration, Instant};

use crate::{HarnessError, Result};

/// A count, and when it was looked at.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub at: Instant,
    pub events: u64,
}

impl Counted {
    /// Waits until there are `wanted`, as long as they become more within `limit`. Looks often at both ends and seldom
    /// between, because every look costs what is measured.
    pub fn wait(
        wanted: u64,
        limit: Duration,
        mut look: impl FnMut() -> Result<u64>,
    ) -> Result<Counted> {
        let mut first: Option<Counted> = None;
        let mut moved = Counted { at: Instant::now(), events: 0 };
        loop {
            let now = Counted { events: look()?, at: Instant::now() };
            if now.events >= wanted {
                return Ok(now);
            }
            if now.events != moved.events {
                moved = now;
            }
            if moved.at.elapsed() > limit {
                let what = format!("{wanted} events, {} came", moved.events);
                return Err(HarnessError::Late { what, limit });
            }
            let rate = first.get_or_insert(now).rate_until(&now);
            let left_s = (wanted - now.events) as f64 / rate.max(1.0);
            let nap_s = if rate > 0.0 { (left_s / 2.0).clamp(0.001, 0.1) } else { 0.001 };
            std::thread::sleep(Duration::from_secs_f64(nap_s));
        }
    }

    /// Events per second from this look to a later one; not a number when one look saw both.
    pub fn rate_until(&self, later: &Counted) -> f64 {
        let seconds = (later.at - self.at).as_secs_f64();
        if seconds > 0.0 { (later.events - self.events) as f64 / seconds } else { f64::NAN }
    }
}
