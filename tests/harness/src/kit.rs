//! Parts that the whole harness uses: wall-clock microseconds, a seeded random generator, a payload
//! hash, and a bridge from blocking callers to async clients.
//!
//! The kit is blocking on purpose: tests, demo and benchmarks kill and freeze processes, and a
//! thread that waits is easier to reason about than a task that is starved by a frozen peer.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::{HarnessError, Result, other};

/// How much a test repeats: `usual` in every run, `soak` with `WALRELAY_SOAK=1` (`make soak`).
pub fn volume<T>(usual: T, soak: T) -> T {
    if std::env::var_os("WALRELAY_SOAK").is_some_and(|value| value == "1") { soak } else { usual }
}

/// CLOCK_REALTIME in microseconds, comparable with Postgres and the broker on the same machine.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The first 128 bits of SHA-256: what truth and delivery are compared by.
pub fn payload_hash(bytes: &[u8]) -> u128 {
    let digest = Sha256::digest(bytes);
    digest.iter().take(16).fold(0, |sum, byte| (sum << 8) | u128::from(*byte))
}

/// SplitMix64: tiny, seeded, the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// An independent generator for one of several actors of a run.
    pub fn fork(seed: u64, actor: u64) -> Rng {
        let mut mixed = Rng(seed ^ actor.wrapping_mul(0xD1B5_4A32_D192_ED03));
        Rng(mixed.next_u64())
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Log-uniform in `1..=max`: small and huge values are equally common per order of magnitude.
    pub fn log_uniform(&mut self, max: u64) -> u64 {
        let top = (max.max(1) as f64) + 1.0;
        let drawn = (self.unit() * top.ln()).exp();
        (drawn as u64).clamp(1, max.max(1))
    }

    /// A version-4 UUID in text form.
    pub fn uuid(&mut self) -> String {
        let high = (self.next_u64() & !0xF000) | 0x4000;
        let low = (self.next_u64() & !(0b11 << 62)) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xFFFF,
            high & 0xFFFF,
            low >> 48,
            low & 0xFFFF_FFFF_FFFF
        )
    }
}

/// Runs a future to its end from any thread, inside a runtime or not.
///
/// A thread of its own makes it safe to call from async tests, where nesting runtimes panics.
pub fn block_on<T: Send>(future: impl Future<Output = Result<T>> + Send) -> Result<T> {
    run_on_thread(|| runtime()?.block_on(future))
}

/// Runs this on a thread of its own, whose CPU time can be told from that of the rest.
pub fn run_on_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let gone = |_| Err(other("a kit thread panicked"));
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(gone))
}

/// Looks every `pause` until there is what is waited for; an error after `limit`.
pub fn wait_for<T>(
    what: impl Into<String>,
    limit: Duration,
    pause: Duration,
    look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let found = wait_at_most(limit, pause, look)?;
    found.ok_or_else(|| HarnessError::Late { what: what.into(), limit })
}

/// The same, for a caller that says itself what was not there after `limit`.
pub fn wait_at_most<T>(
    limit: Duration,
    pause: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let began = Instant::now();
    loop {
        let found = look()?;
        if found.is_some() || began.elapsed() > limit {
            return Ok(found);
        }
        std::thread::sleep(pause);
    }
}

/// Locks a mutex, also after a thread has panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(HarnessError::io("start a runtime"))
}

/// A Postgres session whose connection task ends with it.
pub(crate) struct Session {
    pub(crate) client: Client,
    task: JoinHandle<()>,
}

impl Session {
    /// Connects without TLS: the kit only talks to loopback.
    pub(crate) async fn open(url: &str) -> Result<Session> {
        let connecting = tokio_postgres::connect(url, NoTls);
        let (client, connection) = tokio::time::timeout(Duration::from_secs(10), connecting)
            .await
            .map_err(|_| HarnessError::Late {
                what: "connect to postgres".into(),
                limit: Duration::from_secs(10),
            })??;
        // Its error reaches the caller through the client, whose requests then fail.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Session { client, task })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_repeats_itself_and_actors_differ() {
        let draw = |mut rng: Rng| (0..4).map(|_| rng.next_u64()).collect::<Vec<_>>();
        assert_eq!(draw(Rng::new(7)), draw(Rng::new(7)));
        assert_eq!(draw(Rng::fork(7, 1)), draw(Rng::fork(7, 1)));
        assert_ne!(draw(Rng::fork(7, 1)), draw(Rng::fork(7, 2)));
    }
}
