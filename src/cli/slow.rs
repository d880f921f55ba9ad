//! Messages of a command while Postgres takes its time to make a slot.

use std::convert::Infallible;
use std::time::Duration;

use tokio_postgres::Client;

use super::check::connect;
use super::output::print_note;
use crate::base::error::Fault;
use crate::source::faults::query_fault;
use crate::source::settings::SourceSettings;
use crate::source::slot_wait::{ANY_TRANSACTION, NO_TIMEOUTS_SQL, session_pid, waits_for};

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
    tokio::select! {
        made = making => made,
        never = explain(settings, pid) => match never {},
    }
}

async fn explain(settings: &SourceSettings, pid: i32) -> Infallible {
    let mut pause = EXPLAIN_AFTER;
    loop {
        tokio::time::sleep(pause).await;
        let look = async { waits_for(&connect(settings).await.ok()?, pid).await.ok() };
        let seen = tokio::time::timeout(LOOK_WITHIN, look).await.ok().flatten();
        print_note(seen.as_deref().unwrap_or(ANY_TRANSACTION));
        pause = AGAIN_AFTER;
    }
}
