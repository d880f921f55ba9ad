//! The kills: one lane for each service, at once, and a supervisor that starts a dead relay again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use walrelay_harness::faults::{Fault, Lane};
use walrelay_harness::kit::{Rng, wait_at_most};
use walrelay_harness::program::Program;
use walrelay_harness::{Kafka, Postgres, Result};

/// Between a relay's own death and its next start; after a kill it is started at once.
const RESTART_AFTER: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);
const FREEZE_MS: std::ops::Range<u64> = 1_000..8_000;
/// The longest wait for a walsender, which must be there before it can be terminated.
const WALSENDER_LIMIT: Duration = Duration::from_secs(10);

/// The faults of the relay, and its own acts.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Relay {
    pub(crate) kills: u64,
    pub(crate) freezes: u64,
    /// Deaths that were not kills.
    pub(crate) deaths: u64,
}

/// Kills and freezes the relay, then only keeps it running until `over`.
pub(crate) fn on_relay(
    program: &mut Program,
    lane: &Lane,
    seed: u64,
    over: &AtomicBool,
) -> Result<Relay> {
    let (began, mut rng) = (Instant::now(), Rng::fork(seed, 2_000));
    let mut done = Relay::default();
    let mut died: Option<Instant> = None;
    let mut faults = lane.iter().peekable();
    while !over.load(Ordering::Relaxed) {
        if let Some((_, fault)) = faults.next_if(|(due, _)| began.elapsed() >= *due) {
            match fault {
                Fault::Freeze => {
                    let for_ms = FREEZE_MS.start + rng.below(FREEZE_MS.end - FREEZE_MS.start);
                    // One that has just died cannot be frozen.
                    if program.freeze().is_ok() {
                        done.freezes += 1;
                        std::thread::sleep(Duration::from_millis(for_ms));
                        program.thaw()?;
                    }
                }
                _ => {
                    program.restart()?;
                    (done.kills, died) = (done.kills + 1, None);
                }
            }
        }
        supervise(program, &mut died, &mut done)?;
        std::thread::sleep(POLL);
    }
    Ok(done)
}

fn supervise(program: &mut Program, died: &mut Option<Instant>, done: &mut Relay) -> Result<()> {
    match *died {
        None if !program.is_running() => {
            done.deaths += 1;
            *died = Some(Instant::now());
        }
        Some(at) if at.elapsed() >= RESTART_AFTER => {
            program.restart()?;
            *died = None;
        }
        _ => {}
    }
    Ok(())
}

/// Terminates the slot's walsender and crashes the server; tells how often each.
pub(crate) fn on_postgres(postgres: &mut Postgres, lane: &Lane, slot: &str) -> Result<(u64, u64)> {
    let began = Instant::now();
    let (mut terminations, mut crashes) = (0, 0);
    for (due, fault) in lane {
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        match fault {
            Fault::Crash => {
                postgres.crash()?;
                postgres.start_again()?;
                crashes += 1;
            }
            _ => terminations += u64::from(terminate(postgres, slot)?),
        }
    }
    Ok((terminations, crashes))
}

fn terminate(postgres: &Postgres, slot: &str) -> Result<bool> {
    let sql = format!(
        "select pg_terminate_backend(active_pid) from pg_replication_slots
         where slot_name = '{slot}' and active_pid is not null"
    );
    let terminated = wait_at_most(WALSENDER_LIMIT, POLL, || {
        Ok((postgres.sql("postgres", &sql)?.trim() == "t").then_some(()))
    })?;
    Ok(terminated.is_some())
}

/// Kills the broker and starts it again; tells how often.
pub(crate) fn on_kafka(kafka: &mut Kafka, lane: &Lane) -> Result<u64> {
    let began = Instant::now();
    for (due, _) in lane {
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        kafka.kill9()?;
        kafka.start_again()?;
    }
    Ok(lane.len() as u64)
}
