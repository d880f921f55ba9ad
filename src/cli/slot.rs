//! `walrelay slot create | drop | show`.

use std::collections::BTreeMap;

use serde_json::json;

use super::args::{OutputFormat, SlotAction, YesArg};
use super::check::connect;
use super::confirm::confirm;
use super::output::{print, print_as, print_json};
use super::slow;
use crate::base::error::{Exit, Fault};
use crate::base::text::escaped;
use crate::config::Config;
use crate::source::faults::{slot_missing, slot_refused};
use crate::source::oldest_transaction::oldest_transaction;
use crate::source::slot;
use crate::source::slot_state::{field_lines, slot_state};

pub(crate) async fn run(config: &Config, action: &SlotAction) -> Result<Exit, Fault> {
    if config.polling.is_some() && matches!(action, SlotAction::Create { .. }) {
        return Err(Fault::new(
            Exit::Usage,
            "config.conflict",
            "with a slot alone, nobody would publish the rows that are pending",
            "source.mode = \"polling\"",
            "walrelay outbox handover makes the slot and divides the rows",
        ));
    }
    let outcome = match action {
        SlotAction::Create { failover, dry_run, output, .. } => {
            create(config, *failover, dry_run.dry_run, output.format()).await
        }
        SlotAction::Drop { yes, dry_run, output, .. } => {
            drop(config, *yes, dry_run.dry_run, output.format()).await
        }
        SlotAction::Show { output, .. } => show(config, output.format()).await,
    };
    outcome.map_err(|fault| if action.name().is_some() { of_argument(fault) } else { fault })
}

/// The fault of a slot that was named as an argument: `init` and `create` would make that of the configuration.
fn of_argument(fault: Fault) -> Fault {
    const MEND: &str = "to list the slots: SELECT slot_name FROM pg_catalog.pg_replication_slots;";
    match fault.code {
        "slot.missing" if fault.place == "source.slot" => {
            Fault { place: "NAME".to_owned(), mend: MEND.to_owned(), ..fault }
        }
        _ => fault,
    }
}

async fn create(
    config: &Config,
    failover: bool,
    dry_run: bool,
    format: OutputFormat,
) -> Result<Exit, Fault> {
    let source = &config.source;
    let client = connect(source).await?;
    let lsn = match dry_run {
        true => slot::check_create(&client, source, failover).await.map(|()| None)?,
        false => {
            let making = slot::create(&client, source, failover);
            Some(slow::without_limit(source, &client, making).await?)
        }
    };
    let name = &source.slot;
    let value = || json!({ "dry_run": dry_run, "slot": name, "created": !dry_run, "lsn": lsn.map(|lsn| lsn.to_string()) });
    print_as(format, value, || match lsn {
        Some(lsn) => {
            format!("slot {} created; it delivers what commits after {lsn}\n", escaped(name))
        }
        None => format!("dry run, nothing was changed: slot {} would be created\n", escaped(name)),
    })
}

async fn drop(
    config: &Config,
    yes: YesArg,
    dry_run: bool,
    format: OutputFormat,
) -> Result<Exit, Fault> {
    let name = &config.source.slot;
    if !dry_run {
        let question = format!("Drop slot {name}? Events that it has not delivered are lost.");
        confirm(&question, yes.yes)?;
    }
    let client = connect(&config.source).await?;
    let lowers_wal_level = match dry_run {
        true => slot::check_drop(&client, name).await.map(|()| false)?,
        false => slot::drop(&client, name).await?,
    };
    let value = || json!({ "dry_run": dry_run, "slot": name, "dropped": !dry_run, "lowers_wal_level": lowers_wal_level });
    print_as(format, value, || {
        let name = escaped(name);
        if dry_run {
            return format!("dry run, nothing was changed: slot {name} would be dropped\n");
        }
        let lowers = "it was the last logical slot, so Postgres lowers effective_wal_level to replica: WAL from now on cannot be decoded, until a slot is made again, which raises it\n";
        let more = if lowers_wal_level { lowers } else { "" };
        format!("slot {name} dropped\n{more}")
    })
}

async fn show(config: &Config, format: OutputFormat) -> Result<Exit, Fault> {
    let name = &config.source.slot;
    let client = &connect(&config.source).await?;
    let refused = |error| slot_refused(&error, name, &[]);
    let state = slot_state(client, name).await.map_err(refused)?;
    let mut fields = state.fields().ok_or_else(|| match config.polling {
        Some(_) => not_handed_over(name),
        None => slot_missing(name),
    })?;
    let oldest = oldest_transaction(client).await.map_err(refused)?;
    fields.push(("oldest_transaction", json!(oldest.map(|oldest| oldest.summary()))));
    match format {
        OutputFormat::Text => print(&field_lines(fields)),
        _ => print_json(&fields.into_iter().collect::<BTreeMap<_, _>>()),
    }
}

/// A table that is polled has no slot before its handover.
fn not_handed_over(name: &str) -> Fault {
    Fault::new(
        Exit::Slot,
        "slot.missing",
        format!("there is no slot {name}: polling needs none"),
        "source.mode = \"polling\"",
        "walrelay outbox handover makes it, and moves the table to it",
    )
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
