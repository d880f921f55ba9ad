//! Messages of a command while Postgres takes its time to make a slot.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::check::connect;
use super::output::print_note;
use super::stop_signal::stop_signals;
use crate::base::error::{Exit, Fault};
use crate::source::faults::query_fault;
use crate::source::settings::SourceSettings;
use crate::source::slot_wait::{ANY_TRANSACTION, NO_TIMEOUTS_SQL, describe_wait, session_pid};

/// How long it may take before the reason is printed.
const EXPLAIN_AFTER: Duration = Duration::from_secs(2);
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Limit for finding out what it waits for.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// Waits for what is being made on `client` as long as it takes, and says what Postgres waits for.
pub(super) async fn without_limit<T>(
    settings: &SourceSettings,
    client: &Client,
    making: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let unlimited = async {
        client.batch_execute(NO_TIMEOUTS_SQL).await?;
        session_pid(client).await
    };
    let pid = unlimited.await;
    let pid = pid.map_err(|error| query_fault(&error, "lifting time limits"))?;
    let mut stopped = stop_signals()?;
    let mut making = pin!(making);
    tokio::select! {
        made = &mut making => return made,
        never = explain(settings, pid) => match never {},
        () = stopped() => {}
    }
    let cancelled = async {
        cancel(settings, pid).await?;
        let made = making.await;
        // Postgres drops the slot after it has sent the error, and before it answers again.
        session_pid(client).await.ok()?;
        Some(made)
    };
    let cancelled = tokio::time::timeout(LOOK_WITHIN, cancelled).await;
    cancelled.ok().flatten().unwrap_or_else(|| {
        Err(Fault::new(
            Exit::Slot,
            "slot.being-made",
            format!(
                "Postgres does not say that pid {pid} has given up: it may still make the slot"
            ),
            "",
            format!("SELECT pg_catalog.pg_cancel_backend({pid});"),
        ))
    })
}

/// Cancels the statement: its process would not notice that this one is gone, and make the slot later.
async fn cancel(settings: &SourceSettings, pid: i32) -> Option<()> {
    let client = connect(settings).await.ok()?;
    let sql = "SELECT pg_catalog.pg_cancel_backend($1)";
    client.query_typed_one(sql, &[(&pid, Type::INT4)]).await.ok().map(|_| ())
}

async fn explain(settings: &SourceSettings, pid: i32) -> Infallible {
    let mut pause = EXPLAIN_AFTER;
    loop {
        tokio::time::sleep(pause).await;
        let look = async { describe_wait(&connect(settings).await.ok()?, pid).await.ok() };
        let seen = tokio::time::timeout(LOOK_WITHIN, look).await.ok().flatten();
        print_note(seen.as_deref().unwrap_or(ANY_TRANSACTION));
        pause = AGAIN_AFTER;
    }
}
