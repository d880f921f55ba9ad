//! `walrelay outbox list | retry | handover`: the rows of a polled table.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::args::{ListRows, OutboxAction, RetryRows, RowStatus};
use super::check;
use super::output::{print, say, tell};
use super::table::{Table, Width};
use crate::base::error::{Exit, Fault};
use crate::base::finding::faults;
use crate::base::text::{escaped, json_shown};
use crate::config::Config;
use crate::doctor::{polled_table, source as source_doctor};
use crate::polling::admin_rows::{AdminRow, AdminRows, RowFilter};
use crate::polling::handover::{self, TableHandover};
use crate::polling::prepare::{self, PreparedTable};
use crate::polling::settings::PollingSettings;
use crate::source::faults::query_fault;
use crate::source::init;
use crate::source::settings::SourceSettings;

/// How often it is looked whether polling has published what is left to it.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often that is told.
const TELL_EVERY: Duration = Duration::from_secs(5);

pub(crate) async fn run(config: &Config, action: &OutboxAction) -> Result<Exit, Fault> {
    let polling = config.polling.as_ref().ok_or_else(not_polling)?;
    let client = check::connect(&config.source).await?;
    match action {
        OutboxAction::List(words) => list(config, polling, &client, words).await,
        OutboxAction::Retry(words) => retry(config, polling, &client, words).await,
        OutboxAction::Handover { no_wait } => handover(config, polling, &client, *no_wait).await,
    }
}

fn not_polling() -> Fault {
    Fault::new(
        Exit::Usage,
        "config.conflict",
        "rows are only looked at where the table is polled",
        "source.mode",
        "source.mode = \"polling\"; where the slot is read, failed events are dead letters: walrelay dlq list",
    )
}

async fn list(
    config: &Config,
    polling: &PollingSettings,
    client: &Client,
    words: &ListRows,
) -> Result<Exit, Fault> {
    let known = &polling.words;
    let status = match words.status {
        RowStatus::Pending => &known.pending,
        RowStatus::InProgress => &known.in_progress,
        RowStatus::Published => &known.published,
        RowStatus::Failed => &known.failed,
    };
    let which = RowFilter { ids: Vec::new(), key: words.key.clone() };
    let rows = AdminRows::new(prepare::table(&config.source)?, polling);
    let views = rows.list(client, status, &which, i64::from(words.limit)).await?;
    let lines: Vec<String> = match words.json {
        true => views.iter().map(|view| json_shown(&view.to_json().to_string())).collect(),
        false if views.is_empty() => vec![format!("no row is {}", escaped(status))],
        false => [TABLE.head()].into_iter().chain(views.iter().map(shown)).collect(),
    };
    let text: String = lines.into_iter().map(|line| line + "\n").collect();
    print(&text)
}

const TABLE: Table = Table(&[
    ("ID", Width::AtLeast(36)),
    ("KEY", Width::AtLeast(20)),
    ("STATUS", Width::AtLeast(12)),
    ("TRIES", Width::AtLeast(5)),
    ("WRITTEN", Width::AtLeast(19)),
    ("REASON", Width::AtLeast(0)),
]);

fn shown(view: &AdminRow) -> String {
    let written = view.created_at.as_deref().and_then(|text| text.get(..19)).unwrap_or("-");
    TABLE.row([
        view.id.as_str(),
        view.key.as_deref().unwrap_or("-"),
        &view.status,
        &view.attempts.to_string(),
        &written.replace('T', " "),
        view.reason.as_deref().unwrap_or("-"),
    ])
}

/// Whether the slot carries the table. One that is another table's is a fault.
async fn is_handed_over(
    client: &Client,
    source: &SourceSettings,
    prepared: &PreparedTable,
) -> Result<bool, Fault> {
    let state = handover::state(client, prepared).await?;
    if state.handed_over && !state.published {
        return Err(state.fault(source));
    }
    Ok(state.handed_over)
}

async fn retry(
    config: &Config,
    polling: &PollingSettings,
    client: &Client,
    words: &RetryRows,
) -> Result<Exit, Fault> {
    if words.ids.is_empty() && words.key.is_none() && !words.all {
        return Err(Fault::new(
            Exit::Usage,
            "outbox.unselected",
            "which rows?",
            "walrelay outbox retry",
            "name ids, --key KEY or --all; walrelay outbox list shows what has failed",
        ));
    }
    let prepared = polled_table::prepare(client, &config.source, polling).await?;
    if is_handed_over(client, &config.source, &prepared).await? {
        return Err(Fault::new(
            Exit::Slot,
            "slot.exists",
            format!("slot {} carries this table now: nobody polls it", config.source.slot),
            "source.slot",
            "failed rows have their letters in the dead-letter topic: walrelay dlq list, walrelay dlq replay",
        ));
    }
    let which = RowFilter { ids: words.ids.clone(), key: words.key.clone() };
    let rows = AdminRows::new(prepare::table(&config.source)?, polling);
    let count = rows.put_back(client, &which).await?;
    say(&format!("{count} rows are to be published again"));
    if count > 0 {
        say(
            "their dead letters stay open: walrelay dlq discard --id ID, or they might be replayed, too",
        );
    }
    let wanted = words.ids.len() as u64;
    Ok(if count < wanted { Exit::Failed } else { Exit::Done })
}

async fn handover(
    config: &Config,
    polling: &PollingSettings,
    client: &Client,
    no_wait: bool,
) -> Result<Exit, Fault> {
    let prepared = polled_table::prepare(client, &config.source, polling).await?;
    let slot = &config.source.slot;
    if is_handed_over(client, &config.source, &prepared).await? {
        say(&format!("slot {slot} is there already"));
    } else {
        make_publication(config, client).await?;
        say("dividing the rows; this waits for open transactions to end");
        let (source, outbox) = (&config.source, prepare::table(&config.source)?);
        let handover = TableHandover { source, polling, outbox, prepared: &prepared };
        let marked = handover.run(client).await?;
        say(&format!("+ made slot {slot}: it carries what was written from now on"));
        say(&format!("{marked} rows that waited are left to polling"));
    }
    if no_wait {
        say("once the relays that poll have ended:");
    } else {
        wait(&prepared, client).await?;
        say("nothing is left to polling");
    }
    say("now: source.mode = \"cdc\" in the configuration, and start the relay again");
    let key = &prepare::table(&config.source)?.columns.key;
    say(&format!(
        "write columns.key = {key:?} and route.topic out, if they are not: cdc has other defaults"
    ));
    Ok(Exit::Done)
}

/// What `init` would make, but the slot.
async fn make_publication(config: &Config, client: &Client) -> Result<(), Fault> {
    let source = &config.source;
    let facts = source_doctor::report(client, source).await?.facts;
    let mut steps = init::plan(&facts, source, &facts.role)?;
    steps.retain(|step| !step.makes_slot());
    init::run(client, &steps, super::init::tell).await?;
    let left = source_doctor::report(client, source).await?.findings;
    match faults(&left).find(|fault| fault.code != "slot.missing") {
        Some(fault) => Err(fault.clone()),
        None => Ok(()),
    }
}

async fn wait(prepared: &PreparedTable, client: &Client) -> Result<(), Fault> {
    let mut told = Instant::now();
    while handover::state(client, prepared).await?.left {
        if told.elapsed() > TELL_EVERY {
            told = Instant::now();
            let backlog = &prepared.statements.backlog;
            let row = client.query_one(backlog, &[&1_000_000_i64]).await;
            let row = row.map_err(|error| query_fault(&error, "counting rows"))?;
            let waiting: i64 = row.get(0);
            tell(&format!(
                "waiting for polling to publish what is left to it ({waiting} rows, newer ones among them); it needs a relay with source.mode = \"polling\" that runs"
            ));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}
