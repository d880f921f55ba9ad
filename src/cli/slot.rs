//! `walrelay slot create | drop | show`.

use std::collections::BTreeMap;

use serde_json::json;

use super::args::SlotAction;
use super::check::connect;
use super::output::{print, print_json, print_line};
use super::slow;
use crate::base::error::{Exit, Fault};
use crate::config::Config;
use crate::source::faults::{slot_missing, slot_refused};
use crate::source::oldest_transaction::oldest_transaction;
use crate::source::slot;
use crate::source::slot_state::{field_lines, slot_state};

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
            let making = slot::create(&client, &config.source, *failover);
            let lsn = slow::without_limit(&config.source, &client, making).await?;
            print_line(&format!("slot {name} made; it delivers what commits after {lsn}"));
        }
        SlotAction::Drop { .. } => {
            let lowers_wal_level = slot::drop(&client, name).await?;
            print_line(&format!("slot {name} dropped"));
            if lowers_wal_level {
                print_line(
                    "it was the last logical slot, so Postgres lowers effective_wal_level to replica: WAL from now on cannot be decoded, until a slot is made again, which raises it",
                );
            }
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
