//! `walrelay slot create | drop | show`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::args::SlotAction;
use super::check::connect;
use super::output::{print, print_json, print_line, print_note};
use crate::base::error::{Exit, Fault};
use crate::config::Config;
use crate::source::faults::{slot_missing, slot_refused};
use crate::source::oldest_transaction::oldest_transaction;
use crate::source::slot;
use crate::source::slot_state::{field_lines, slot_state};

/// How long the creation of a slot may take before the reason is printed.
const EXPLAIN_AFTER: Duration = Duration::from_secs(2);

pub(crate) async fn run(config: &Config, action: &SlotAction) -> Result<Exit, Fault> {
    let name = &config.source.slot;
    if let SlotAction::Drop { yes, name: typed } = action {
        confirm(name, *yes, typed.as_deref())?;
    }
    if config.polling.is_some() && matches!(action, SlotAction::Create { .. }) {
        return Err(Fault::new(
            Exit::Usage,
            "config.conflict",
            "with a slot alone, nobody would publish the rows that are pending",
            "source.mode = \"polling\"",
            "walrelay outbox handover makes the slot and divides the rows",
        ));
    }
    let client = connect(&config.source).await?;
    match action {
        SlotAction::Create { failover } => {
            let making = std::pin::pin!(slot::create(&client, &config.source, *failover));
            let lsn = explain_when_slow(making).await?;
            print_line(&format!("slot {name} made; it delivers what commits after {lsn}"));
        }
        SlotAction::Drop { .. } => {
            slot::drop(&client, name).await?;
            print_line(&format!("slot {name} dropped"));
        }
        SlotAction::Show { json } => {
            let state = slot_state(&client, name).await;
            let state = state.map_err(|error| slot_refused(&error, name, &[]))?;
            let mut fields = state.fields().ok_or_else(|| slot_missing(name))?;
            let oldest = oldest_transaction(&client).await;
            let oldest = oldest.map_err(|error| slot_refused(&error, name, &[]))?;
            fields.push(("oldest_transaction", json!(oldest.map(|oldest| oldest.summary()))));
            return match json {
                true => print_json(&fields.into_iter().collect::<BTreeMap<_, _>>()),
                false => print(&field_lines(fields)),
            };
        }
    }
    Ok(Exit::Done)
}

/// Postgres creates a slot only once every transaction that is open now has ended.
async fn explain_when_slow<T>(making: impl Future<Output = T> + Unpin) -> T {
    let mut making = making;
    tokio::select! {
        made = &mut making => made,
        () = tokio::time::sleep(EXPLAIN_AFTER) => {
            print_note(
                "waiting for open transactions to end; the oldest: SELECT pid, xact_start, query \
                 FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start LIMIT 1;",
            );
            making.await
        }
    }
}

/// A dropped slot takes undelivered events with it, so a mistyped command must not be enough.
fn confirm(slot: &str, yes: bool, typed: Option<&str>) -> Result<(), Fault> {
    let mend = format!("walrelay slot drop {slot} (or --yes)");
    match typed {
        Some(typed) if typed != slot => Err(Fault::new(
            Exit::Usage,
            "slot.drop-name",
            format!("the configured slot is {slot}, not {typed}"),
            "source.slot",
            mend,
        )),
        None if !yes => Err(Fault::new(
            Exit::Usage,
            "slot.drop-unconfirmed",
            format!("dropping slot {slot} loses every event it has not delivered"),
            "",
            mend,
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
