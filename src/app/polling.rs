//! The same for polling: the loop on the data thread, workers and keeper on the control runtime.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::{Outside, Reading, Signals, control_runtime, host_name, panicked, parts, start, stop};
use crate::base::backoff::Backoff;
use crate::base::error::Fault;
use crate::config::Config;
use crate::dead_letter::tail_event;
use crate::doctor::polled_table;
use crate::polling::batch::Batch;
use crate::polling::claim_schedule::Pace;
use crate::polling::handover::{Standing, standing};
use crate::polling::maintenance::{self, Keeper, Late};
use crate::polling::prepare::Prepared;
use crate::polling::settings::PollingSettings;
use crate::polling::statements::Statements;
use crate::polling::worker::{self, Shared};
use crate::relay::control::StopFlags;
use crate::relay::{ClaimFeed, ClaimParts, Relay};
use crate::source::connect::ConnectErrorKind;
use crate::source::sql::{self, Sql};

/// A process that has just started gives up on an unreachable database after this long.
const STARTUP_GRACE: Duration = Duration::from_secs(10);
/// Verdicts on their way to the keeper.
const LATE_MAX: usize = 1024;
/// How long workers and keeper may take to write down the last verdicts.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);

/// Polls until stopped.
pub(super) fn run(config: &Config, polling: &PollingSettings) -> Result<(), Fault> {
    let outside = Outside::open(config)?;
    let runtime = control_runtime()?;
    // Once for the whole run: what comes between looking at the table and polling it is kept.
    let mut signals = runtime.block_on(async { Signals::listen() })?;
    let prepared = runtime.block_on(async {
        tokio::select! {
            prepared = prepare(config, polling) => prepared.map(Some),
            // Before there is anything to stop.
            _ = signals.next() => Ok(None),
        }
    });
    let Some(prepared) = prepared? else { return Ok(()) };
    let Outside { origin, metrics, recorder, facts, flags, admin } = outside;
    let (news, tail_events) = tail_event::channel();
    let reading = Reading::begin(config, news, &metrics, &facts)?;
    let lines = Lines::of(polling.workers);
    let shared = lines.shared(config, polling, prepared.statements);
    let claims = ClaimParts {
        source: config.source.clone(),
        delivery: config.delivery.clone(),
        relation: prepared.relation,
        rows_at_once: polling.workers * polling.batch_max,
        batches: lines.batches,
        late: lines.late_sender,
        open: lines.open,
        connected: lines.connected,
    };
    let parts = parts(config, tail_events, &flags, &metrics, recorder, origin);
    let (data, ended) = start(move || Relay::new(parts, ClaimFeed::new(claims)?)?.run())?;
    let handed_over: Arc<OnceLock<Standing>> = Arc::default();
    let keeper = Keeper {
        shared: Arc::clone(&shared),
        late: lines.late,
        metrics,
        handed_over: Box::new({
            let (handed_over, flags) = (Arc::clone(&handed_over), Arc::clone(&flags));
            move |standing| {
                handed_over.get_or_init(|| standing);
                flags.stop.store(true, Ordering::Relaxed);
            }
        }),
    };
    let crew = Crew { flags: &flags, signals, stop_workers: lines.stop_workers, ended };
    let outcome = runtime.block_on(crew.supervise(shared, keeper));
    runtime.shutdown_background();
    let joined = data.join();
    admin.stop();
    reading.end();
    joined.map_err(|_| panicked()).and(outcome)?;
    match handed_over.get() {
        Some(standing) if !standing.published => Err(standing.fault(&config.source)),
        Some(_) => {
            let slot = &config.source.slot;
            tracing::info!(slot, "nothing is left for polling: the slot carries this table now");
            Ok(())
        }
        None => Ok(()),
    }
}

/// What runs between the data thread, the workers and the keeper.
struct Lines {
    batch_sender: SyncSender<Batch>,
    batches: Receiver<Batch>,
    late_sender: mpsc::Sender<Late>,
    late: mpsc::Receiver<Late>,
    stop_workers: watch::Sender<bool>,
    open: Arc<AtomicBool>,
    connected: Arc<AtomicBool>,
}

impl Lines {
    fn of(workers: usize) -> Lines {
        let (batch_sender, batches) = sync_channel(workers);
        let (late_sender, late) = mpsc::channel(LATE_MAX);
        let (stop_workers, _) = watch::channel(false);
        let (open, connected) = (Arc::default(), Arc::default());
        Lines { batch_sender, batches, late_sender, late, stop_workers, open, connected }
    }

    fn shared(
        &self,
        config: &Config,
        polling: &PollingSettings,
        statements: Statements,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            source: config.source.clone(),
            polling: polling.clone(),
            statements,
            // Twice in memory: here, and in the sink.
            bytes_max: (config.delivery.window_bytes_max / (2 * polling.workers)).max(1),
            process: process_name(),
            batches: self.batch_sender.clone(),
            pace: tokio::sync::Mutex::new(Pace::new(polling.interval, polling.batch_max)),
            open: Arc::clone(&self.open),
            connected: Arc::clone(&self.connected),
            live: Mutex::new(BTreeSet::new()),
            claims: AtomicU64::new(0),
            settled: Notify::new(),
            stop: self.stop_workers.subscribe(),
        })
    }
}

/// Who keeps the threads together.
struct Crew<'a> {
    flags: &'a StopFlags,
    signals: Signals,
    stop_workers: watch::Sender<bool>,
    ended: oneshot::Receiver<Result<(), Fault>>,
}

impl Crew<'_> {
    /// Until the loop has ended and its verdicts are written down.
    async fn supervise(mut self, shared: Arc<Shared>, keeper: Keeper) -> Result<(), Fault> {
        let mut tasks = JoinSet::new();
        for _ in 0..shared.polling.workers {
            tasks.spawn(worker::work(Arc::clone(&shared)));
        }
        tasks.spawn(keeper.keep());
        // Until everything is settled: it ends when it is dropped.
        let mut renewing = JoinSet::new();
        renewing.spawn(maintenance::renew(Arc::clone(&shared)));
        drop(shared);
        let mut found = None;
        let outcome = loop {
            tokio::select! {
                outcome = &mut self.ended => break outcome.unwrap_or(Ok(())),
                Some(ended) = renewing.join_next() => found = found.or(fault_of(ended)),
                Some(ended) = tasks.join_next() => found = found.or(fault_of(ended)),
                signal = self.signals.next() => stop(self.flags, signal),
            }
            if found.is_some() {
                self.flags.stop.store(true, Ordering::Relaxed);
            }
        };
        self.stop_workers.send_replace(true);
        let settled = tokio::time::timeout(SETTLE_WITHIN, async {
            while let Some(ended) = tasks.join_next().await {
                found = found.take().or(fault_of(ended));
            }
        });
        if settled.await.is_err() {
            tracing::warn!(
                "the database did not take the last verdicts: rows of this process are free when their lease runs out, and some may be published again"
            );
        }
        found.map_or(outcome, Err)
    }
}

fn fault_of(ended: Result<Result<(), Fault>, tokio::task::JoinError>) -> Option<Fault> {
    match ended {
        Ok(outcome) => outcome.err(),
        Err(_) => Some(panicked()),
    }
}

async fn prepare(config: &Config, polling: &PollingSettings) -> Result<Prepared, Fault> {
    let sql = connect(config).await?;
    let prepared = polled_table::prepare(&sql.client, &config.source, polling).await?;
    let standing = standing(&sql.client, &prepared).await?;
    if standing.handed_over && !standing.left {
        return Err(standing.fault(&config.source));
    }
    Ok(prepared)
}

async fn connect(config: &Config) -> Result<Sql, Fault> {
    let source = &config.source;
    let deadline = Instant::now() + STARTUP_GRACE;
    let mut backoff = Backoff::new(source.reconnect_base, source.reconnect_cap);
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

/// Names this process in the table.
fn process_name() -> String {
    let began = crate::base::clock::unix_now_us() / 1000;
    format!("{}:{}:{began:x}", host_name(), std::process::id())
}
