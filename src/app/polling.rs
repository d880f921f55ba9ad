//! Runs a relay that polls a table: workers and maintenance run on the control runtime.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::threads::{ReceivedSignals, RunContext, Running, outcome_of, panicked};
use crate::admin;
use crate::base::error::Fault;
use crate::base::lock::locked;
use crate::base::random;
use crate::base::runtime;
use crate::config::Config;
use crate::dead_letter::writer::SystemId;
use crate::doctor::polled_table;
use crate::health::Phase;
use crate::polling::batch::Verdicts;
use crate::polling::claim_lease::ClaimLease;
use crate::polling::claim_schedule::ClaimSchedule;
use crate::polling::handover::{self, HandoverState};
use crate::polling::live_claims::LiveClaims;
use crate::polling::lock_wait::{LOOK_EVERY, LockWait};
use crate::polling::locked_verdicts::LockedVerdicts;
use crate::polling::maintenance::{self, Maintenance};
use crate::polling::renewal;
use crate::polling::settings::PollingSettings;
use crate::polling::statements::Statements;
use crate::polling::worker::{self, PollingShared};
use crate::relay::control::StopFlags;
use crate::relay::{Relay, Workers};
use crate::source::connect::ConnectErrorKind;
use crate::source::facts::system_id;
use crate::source::sql::{self, Sql};

/// A process that has just started gives up on an unreachable database after this long.
const STARTUP_GRACE: Duration = Duration::from_secs(10);
/// Capacity of the channel of verdicts to maintenance.
const LATE_MAX: usize = 1024;
/// Limit for writing the last verdicts.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);

type Prepared<'a> = (Runtime, ReceivedSignals<'a>, Statements);

/// Checks the table; none if a stop is requested meanwhile.
fn prepare_to_poll<'a>(
    config: &Config,
    polling: &PollingSettings,
    context: &'a RunContext,
    on_hangup: &'a dyn Fn(),
) -> Result<Option<Prepared<'a>>, Fault> {
    let runtime = runtime::current_thread()?;
    // One listener, so that no signal between checking the table and polling it is lost.
    let mut signals = runtime.block_on(async { ReceivedSignals::listen(context, on_hangup) })?;
    let prepared = runtime.block_on(async {
        tokio::select! {
            prepared = prepare(config, polling, context) => prepared.map(Some),
            _ = signals.next_stop() => Ok(None),
        }
    });
    if let Ok(Some(statements)) = prepared {
        return Ok(Some((runtime, signals, statements)));
    }
    // Not dropped: that would wait for a name that is being resolved.
    runtime.shutdown_background();
    prepared.map(|_| None)
}

pub(super) fn run(
    config: &Config,
    polling: &PollingSettings,
    context: &RunContext,
    on_hangup: &dyn Fn(),
) -> Result<(), Fault> {
    let Some((runtime, signals, statements)) =
        prepare_to_poll(config, polling, context, on_hangup)?
    else {
        return Ok(());
    };
    let (batch_sender, batches) = sync_channel(polling.workers);
    let (late_sender, late) = mpsc::channel(LATE_MAX);
    let (locked, locked_verdicts) = LockedVerdicts::new();
    let (stop_workers, stopped) = watch::channel(false);
    let shared = Arc::new(PollingShared {
        source: config.source.clone(),
        polling: polling.clone(),
        statements,
        // Rows are in memory twice: here, and in the sink.
        bytes_max: (config.delivery.window_bytes_max / (2 * polling.workers)).max(1),
        process: worker::process_name(),
        batches: batch_sender,
        schedule: ClaimSchedule::new(polling.interval, polling.batch_max).into(),
        open: AtomicBool::default(),
        connected: AtomicBool::default(),
        login_refused: AtomicBool::default(),
        lease: ClaimLease::new(polling.lease, Instant::now()).into(),
        live: LiveClaims::default(),
        claims: AtomicU64::default(),
        settled: Notify::new(),
        locked,
        lock_wait: lock_wait(config, polling, context),
        stop: stopped,
    });
    let workers = Workers::new(Arc::clone(&shared), batches, late_sender);
    let delivery = config.delivery.clone();
    let handed_over: Arc<OnceLock<HandoverState>> = Arc::default();
    let flags = Arc::clone(&context.flags);
    let maintenance = Maintenance {
        shared,
        late,
        metrics: Arc::clone(&context.metrics),
        handed_over: Box::new({
            let (handed_over, flags) = (Arc::clone(&handed_over), Arc::clone(&flags));
            move |state| {
                handed_over.get_or_init(|| state);
                flags.stop.store(true, Ordering::Relaxed);
            }
        }),
    };
    let run_loop = |parts| Relay::new(parts, workers.feed(delivery)?)?.run();
    let mut running = context.start_threads(config, run_loop)?;
    let supervising =
        supervise(&flags, signals, stop_workers, &mut running, maintenance, locked_verdicts);
    let outcome = runtime.block_on(supervising);
    running.finish(runtime, outcome)?;
    let Some(state) = handed_over.get() else { return Ok(()) };
    if !state.published {
        return Err(state.fault(&config.source));
    }
    let slot = &config.source.slot;
    tracing::info!(slot, "nothing is left for polling: the slot delivers this table now");
    Ok(())
}

/// Waits of the workers for the table, which `/status` shows.
fn lock_wait(config: &Config, polling: &PollingSettings, context: &RunContext) -> LockWait {
    let facts = Arc::clone(&context.facts);
    // No statement waits for as long as the lease.
    let look_every = LOOK_EVERY.min(polling.lease / 3);
    let report = move |sentence: &str| facts.set_lock_wait(sentence);
    LockWait::new(&config.source.connection, look_every, report)
}

/// Waits until the loop has ended and its verdicts are written.
async fn supervise(
    flags: &StopFlags,
    mut signals: ReceivedSignals<'_>,
    stop_workers: watch::Sender<bool>,
    running: &mut Running,
    maintenance: Maintenance,
    locked_verdicts: mpsc::Receiver<Verdicts>,
) -> Result<(), Fault> {
    let shared = Arc::clone(&maintenance.shared);
    let mut tasks = JoinSet::new();
    for _ in 0..shared.polling.workers {
        tasks.spawn(worker::work(Arc::clone(&shared)));
    }
    tasks.spawn(maintenance.run());
    tasks.spawn(maintenance::write_locked(Arc::clone(&shared), locked_verdicts));
    // Dropped, and so ended, when everything is settled.
    let mut renewing = JoinSet::new();
    renewing.spawn(renewal::renew(shared));
    let mut found = None;
    let outcome = loop {
        tokio::select! {
            outcome = &mut running.ended => break outcome.unwrap_or(Ok(())),
            Some(ended) = renewing.join_next() => found = found.or(fault_of(ended)),
            Some(ended) = tasks.join_next() => found = found.or(fault_of(ended)),
            signal = signals.next_stop() => signals.stop(flags, signal),
        }
        if found.is_some() {
            flags.stop.store(true, Ordering::Relaxed);
        }
    };
    stop_workers.send_replace(true);
    let settled = tokio::time::timeout(SETTLE_WITHIN, async {
        loop {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    Some(ended) => found = found.take().or(fault_of(ended)),
                    None => break,
                },
                signal = signals.next_stop() => signals.stop(flags, signal),
            }
        }
    });
    if settled.await.is_err() {
        tracing::warn!(
            code = "polling.verdicts-lost",
            "the database did not take the last verdicts: rows of this process are free when their lease runs out, and some may be published again"
        );
    }
    outcome_of(found, outcome)
}

fn fault_of(ended: Result<Result<(), Fault>, tokio::task::JoinError>) -> Option<Fault> {
    ended.unwrap_or_else(|_| Err(panicked())).err()
}

async fn prepare(
    config: &Config,
    polling: &PollingSettings,
    context: &RunContext,
) -> Result<Statements, Fault> {
    let sql = connect(config).await?;
    let (facts, clock) = (Arc::clone(&context.facts), admin::clock_since(context.origin));
    let recorder = Mutex::new(facts.recorder(clock()));
    let report = move |sentence: &str| {
        facts.set_lock_wait(sentence);
        // A process that waits for a lock is no process that hangs.
        locked(&recorder).phase(Phase::Starting, clock());
    };
    let lock_wait = LockWait::new(&config.source.connection, LOOK_EVERY, report);
    let inspecting = inspect(&sql, config, polling, &context.system);
    let prepared = lock_wait.explain_on(&sql.client, inspecting).await;
    lock_wait.end();
    prepared
}

async fn inspect(
    sql: &Sql,
    config: &Config,
    polling: &PollingSettings,
    system: &SystemId,
) -> Result<Statements, Fault> {
    // Only the dead letters say it: without it they are told apart by the name of the slot alone.
    if let Some(system_id) = system_id(&sql.client).await {
        system.learn(&system_id);
    }
    let statements = polled_table::prepare(&sql.client, &config.source, polling).await?;
    let state = handover::state(&sql.client, &statements).await?;
    if state.handed_over && !state.left {
        return Err(state.fault(&config.source));
    }
    Ok(statements)
}

async fn connect(config: &Config) -> Result<Sql, Fault> {
    let source = &config.source;
    let deadline = Instant::now() + STARTUP_GRACE;
    let mut backoff = random::backoff(source.reconnect_base, source.reconnect_cap);
    loop {
        match sql::connect(&source.connection).await {
            Ok(sql) => return Ok(sql),
            Err(error) if error.kind() == ConnectErrorKind::Fatal || Instant::now() > deadline => {
                return Err(error.fault(&source.connection, &source.slot, &source.publication));
            }
            Err(_) => tokio::time::sleep(backoff.next_delay()).await,
        }
    }
}
