//! `walrelay slot create | drop | show`: the slot's life, explicit.

use std::time::Duration;

use super::args::SlotAction;
use super::check::connect;
use super::output::{print, say, tell};
use crate::base::error::{Exit, Fault};
use crate::base::text::json_shown;
use crate::config::Config;
use crate::source::faults::{slot_missing, slot_refused};
use crate::source::slot;
use crate::source::slot_state::{field_lines, slot_state};

/// How long a creation may take before it is said why.
const EXPLAIN_AFTER: Duration = Duration::from_secs(2);

/// Carries out `action` on the configured slot.
pub(crate) async fn run(config: &Config, action: &SlotAction) -> Result<Exit, Fault> {
    let name = &config.source.slot;
    if let SlotAction::Drop { yes, name: typed } = action {
        confirm(name, *yes, typed.as_deref())?;
    }
    if config.polling.is_some() && matches!(action, SlotAction::Create { .. }) {
        return Err(Fault::new(
            Exit::Usage,
            "config.conflict",
            "a slot alone would leave the rows that wait to nobody",
            "source.mode = \"polling\"",
            "walrelay outbox handover makes the slot and divides the rows",
        ));
    }
    let client = connect(&config.source).await?;
    match action {
        SlotAction::Create { failover } => {
            let making = std::pin::pin!(slot::create(&client, &config.source, *failover));
            let lsn = explain_when_slow(making).await?;
            say(&format!("slot {name} made; it delivers what commits after {lsn}"));
        }
        SlotAction::Drop { .. } => {
            slot::drop(&client, name).await?;
            say(&format!("slot {name} dropped"));
        }
        SlotAction::Show { json } => {
            let state = slot_state(&client, name).await;
            let state = state.map_err(|error| slot_refused(&error, name, &[]))?;
            let fields = state.fields().ok_or_else(|| slot_missing(name))?;
            return print(&match *json {
                true => {
                    let object: serde_json::Map<_, _> =
                        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                    format!("{}\n", json_shown(&serde_json::Value::from(object).to_string()))
                }
                false => field_lines(fields),
            });
        }
    }
    Ok(Exit::Done)
}

/// Postgres makes a slot only once every transaction that is open has ended.
async fn explain_when_slow<T>(making: impl Future<Output = T> + Unpin) -> T {
    let mut making = making;
    tokio::select! {
        made = &mut making => made,
        () = tokio::time::sleep(EXPLAIN_AFTER) => {
            tell(
                "waiting for open transactions to end; the oldest: SELECT pid, xact_start, query \
                 FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start LIMIT 1;",
            );
            making.await
        }
    }
}

/// A dropped slot takes undelivered events with it, so a slip of the hand must not be enough.
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
