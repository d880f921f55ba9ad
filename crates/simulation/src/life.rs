//! The life of a process: its clock, and the effects that it may still have.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use walrelay_core::base::clock::Moment;
use walrelay_core::relay::ports::Clock;

/// When every simulation begins, by the clocks of the processes.
const BEGINS_UNIX_US: i64 = 1_800_000_000_000_000;
const NO_FUSE: u32 = u32::MAX;
/// A step that waits more often does not end.
const WAITS_MAX: u32 = 100_000;

/// The time of the world, in microseconds since its beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorldClock(Arc<AtomicU64>);

impl WorldClock {
    pub(crate) fn us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn unix_us(&self) -> i64 {
        BEGINS_UNIX_US + self.us() as i64
    }

    pub(crate) fn advance(&self, us: u64) {
        self.0.fetch_add(us, Ordering::Relaxed);
    }
}

/// The instant of the world's beginning. Only differences to it are ever used.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) world: WorldClock,
    origin: Instant,
    /// How far the process has waited within its present step.
    waited_us: AtomicU64,
    /// And how often.
    waits: AtomicU32,
    /// The clock of its system is ahead by this much, and was so at the end of its last step.
    ahead_us: AtomicI64,
    ahead_before_us: AtomicI64,
    /// The clock of its machine stood while that was suspended, so long in all.
    behind_us: AtomicU64,
    /// Its machine was suspended since its last step.
    was_suspended: AtomicBool,
    /// How often its clock was read: each time is a nanosecond later than the last.
    readings: AtomicU64,
    is_dead: AtomicBool,
    /// So many more effects, and the process is dead.
    fuse: AtomicU32,
}

impl Life {
    pub(crate) fn new(world: &WorldClock, ahead_us: i64) -> Arc<Life> {
        Arc::new(Life {
            world: world.clone(),
            origin: origin(),
            waited_us: AtomicU64::new(0),
            waits: AtomicU32::new(0),
            ahead_us: AtomicI64::new(ahead_us),
            ahead_before_us: AtomicI64::new(ahead_us),
            behind_us: AtomicU64::new(0),
            was_suspended: AtomicBool::new(false),
            readings: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            fuse: AtomicU32::new(NO_FUSE),
        })
    }

    /// Whether the process can still do something that others see. Each call is one such effect.
    pub(crate) fn has_effect(&self) -> bool {
        if self.is_dead() {
            return false;
        }
        match self.fuse.load(Ordering::Relaxed) {
            NO_FUSE => true,
            0 => {
                self.die();
                false
            }
            left => {
                self.fuse.store(left - 1, Ordering::Relaxed);
                true
            }
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    pub(crate) fn die(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    /// The process dies before it has one more effect than these.
    pub(crate) fn die_after(&self, effects: u32) {
        self.fuse.store(effects, Ordering::Relaxed);
    }

    pub(crate) fn set_clock_ahead(&self, us: i64) {
        self.ahead_us.store(us, Ordering::Relaxed);
    }

    /// The clock of a system is not set back while its machine is suspended: then nothing would show how
    /// long that was.
    fn ahead_us(&self) -> i64 {
        let ahead_us = self.ahead_us.load(Ordering::Relaxed);
        match self.was_suspended.load(Ordering::Relaxed) {
            true => ahead_us.max(self.ahead_before_us.load(Ordering::Relaxed)),
            false => ahead_us,
        }
    }

    /// The machine was suspended for so long.
    pub(crate) fn suspended_for(&self, us: u64) {
        self.behind_us.fetch_add(us, Ordering::Relaxed);
        self.was_suspended.store(true, Ordering::Relaxed);
    }

    /// Lets the time pass, so that a caller that waits for a time finds that it has come.
    pub(crate) fn wait(&self, length: Duration) {
        let us = length.as_nanos().div_ceil(1_000) as u64;
        self.waited_us.fetch_add(us, Ordering::Relaxed);
        let waits = self.waits.fetch_add(1, Ordering::Relaxed);
        assert!(waits < WAITS_MAX, "a step of a relay does not end");
    }

    /// A step has ended.
    pub(crate) fn end_step(&self) {
        self.ahead_before_us.store(self.ahead_us(), Ordering::Relaxed);
        self.was_suspended.store(false, Ordering::Relaxed);
        self.waited_us.store(0, Ordering::Relaxed);
        self.waits.store(0, Ordering::Relaxed);
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.world.us() + self.waited_us.load(Ordering::Relaxed)
    }
}

impl Clock for Life {
    fn now(&self) -> Moment {
        let unix_us = BEGINS_UNIX_US + self.now_us() as i64 + self.ahead_us();
        Moment { instant: self.instant(), unix_us }
    }

    fn instant(&self) -> Instant {
        let by_clock = self.now_us() - self.behind_us.load(Ordering::Relaxed);
        // One thread reads the clock of a relay.
        let readings = self.readings.load(Ordering::Relaxed);
        self.readings.store(readings + 1, Ordering::Relaxed);
        self.origin + Duration::from_nanos(by_clock * 1_000 + readings)
    }

    fn sleep(&self, length: Duration) {
        self.wait(length);
    }
}
