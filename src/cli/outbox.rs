//! `walrelay outbox list | retry | handover`: the rows of a polled table.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::args::{ListRows, OutboxAction, RetryRows, RowStatus};
use super::check;
use super::output::{Table, Width, json_line, print, print_line, print_note};
use crate::base::error::{Exit, Fault};
use crate::base::finding::faults;
use crate::config::Config;
use crate::doctor::{polled_table, source as source_doctor};
use crate::polling::admin_rows::{AdminRow, AdminRows, RowFilter};
use crate::polling::handover::{self, TableHandover};
use crate::polling::settings::PollingSettings;
use crate::polling::statements::Statements;
use crate::polling::table_facts::polled_outbox;
use crate::source::faults::query_fault;
use crate::source::init;
use crate::source::settings::SourceSettings;

/// How often it is checked whether polling has published the rows that are left to it.
const CHECK_EVERY: Duration = Duration::from_millis(200);
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

pub(crate) async fn run(config: &Config, action: &OutboxAction) -> Result<Exit, Fault> {
    let polling = config.polling.as_ref().ok_or_else(not_polling)?;
    let client = check::connect(&config.source).await?;
    match action {
        OutboxAction::List(args) => list(config, polling, &client, args).await,
        OutboxAction::Retry(args) => retry(config, polling, &client, args).await,
        OutboxAction::Handover { no_wait } => handover(config, polling, &client, *no_wait).await,
    }
}

fn not_polling() -> Fault {
    Fault::new(
        Exit::Usage,
        "config.conflict",
        "walrelay outbox works on polled tables only",
        "source.mode",
        "source.mode = \"polling\"; where the slot is read, failed events are dead letters: walrelay dlq list",
    )
}

async fn list(
    config: &Config,
    polling: &PollingSettings,
    client: &Client,
    args: &ListRows,
) -> Result<Exit, Fault> {
    let known = &polling.words;
    let status = match args.status {
        RowStatus::Pending => &known.pending,
        RowStatus::InProgress => &known.in_progress,
        RowStatus::Published => &known.published,
        RowStatus::Failed => &known.failed,
    };
    let which = RowFilter { ids: Vec::new(), key: args.key.clone() };
    let rows = AdminRows::new(polled_outbox(&config.source)?, polling);
    let limit = args.limit.or((!args.json).then_some(TABLE_ROWS_MAX));
    let (mut count, mut is_cut) = (0, false);
    // One more than is shown, to know whether there are more.
    let asked = limit.map(|limit| i64::from(limit) + 1);
    let mut show = |row: &AdminRow| {
        if limit == Some(count) {
            is_cut = true;
            return Ok(());
        }
        let head = if count == 0 && !args.json { TABLE.head() + "\n" } else { String::new() };
        count += 1;
        let line = if args.json { json_line(row)? } else { table_row(row) };
        print(&(head + &line + "\n")).map(drop)
    };
    rows.list(client, status, &which, asked, &mut show).await?;
    if count == 0 && !args.json {
        print_line(&format!("no row is {status}"));
    }
    if is_cut {
        print_note(&format!(
            "only the first {count} rows are listed; for more: --limit N, or --json"
        ));
    }
    Ok(Exit::Done)
}

/// A table is for people.
const TABLE_ROWS_MAX: u32 = 1000;

const TABLE: Table = Table(&[
    ("ID", Width::AtLeast(36)),
    ("KEY", Width::AtLeast(20)),
    ("STATUS", Width::AtLeast(12)),
    ("TRIES", Width::AtLeast(5)),
    ("WRITTEN", Width::AtLeast(19)),
    ("REASON", Width::AtLeast(0)),
]);

fn table_row(row: &AdminRow) -> String {
    let written = row.created_at.as_deref().and_then(|text| text.get(..19)).unwrap_or("-");
    TABLE.row([
        row.id.as_str(),
        row.key.as_deref().unwrap_or("-"),
        &row.status,
        &row.attempts.to_string(),
        &written.replace('T', " "),
        row.reason.as_deref().unwrap_or("-"),
    ])
}

/// Does the slot carry the table? A slot that carries another table is a fault.
async fn is_handed_over(
    client: &Client,
    source: &SourceSettings,
    statements: &Statements,
) -> Result<bool, Fault> {
    let state = handover::state(client, statements).await?;
    if state.handed_over && !state.published {
        return Err(state.fault(source));
    }
    Ok(state.handed_over)
}

async fn retry(
    config: &Config,
    polling: &PollingSettings,
    client: &Client,
    args: &RetryRows,
) -> Result<Exit, Fault> {
    if args.ids.is_empty() && args.key.is_none() && !args.all {
        return Err(Fault::new(
            Exit::Usage,
            "outbox.unselected",
            "which rows?",
            "walrelay outbox retry",
            "name ids, --key KEY or --all; walrelay outbox list shows what has failed",
        ));
    }
    let statements = polled_table::prepare(client, &config.source, polling).await?;
    if is_handed_over(client, &config.source, &statements).await? {
        return Err(Fault::new(
            Exit::Slot,
            "slot.exists",
            format!("slot {} carries this table now: it is no longer polled", config.source.slot),
            "source.slot",
            "failed rows have dead letters: walrelay dlq list, walrelay dlq replay",
        ));
    }
    let which = RowFilter { ids: args.ids.clone(), key: args.key.clone() };
    let rows = AdminRows::new(polled_outbox(&config.source)?, polling);
    let count = rows.put_back(client, &which).await?;
    print_line(&format!("{count} rows are to be published again"));
    if count > 0 {
        print_line(
            "their dead letters stay open and could be replayed, too: walrelay dlq discard --id ID",
        );
    }
    let wanted = args.ids.len() as u64;
    Ok(if count < wanted { Exit::Failed } else { Exit::Done })
}

async fn handover(
    config: &Config,
    polling: &PollingSettings,
    client: &Client,
    no_wait: bool,
) -> Result<Exit, Fault> {
    let statements = polled_table::prepare(client, &config.source, polling).await?;
    let slot = &config.source.slot;
    if is_handed_over(client, &config.source, &statements).await? {
        print_line(&format!("slot {slot} exists already"));
    } else {
        make_publication(config, client).await?;
        print_line("dividing the rows; this waits for open transactions to end");
        let handover = TableHandover { source: &config.source, statements: &statements };
        let marked = handover.run(client).await?;
        print_line(&format!("+ made slot {slot}: it carries what is written from now on"));
        print_line(&format!("{marked} pending rows are left to polling"));
    }
    if no_wait {
        print_line("once the relays that poll have ended:");
    } else {
        wait(&statements, client).await?;
        print_line("nothing is left to polling");
    }
    print_line("now: source.mode = \"cdc\" in the configuration, and start the relay again");
    let key = &polled_outbox(&config.source)?.columns.key;
    print_line(&format!(
        "set columns.key = {key:?} and route.topic if they are not set: cdc has other defaults"
    ));
    Ok(Exit::Done)
}

/// Creates what `init` would, except for the slot.
async fn make_publication(config: &Config, client: &Client) -> Result<(), Fault> {
    let source = &config.source;
    let facts = source_doctor::report(client, source).await?.facts;
    let mut steps = init::plan(&facts, source, &facts.role, None)?;
    steps.retain(|step| !step.makes_slot());
    init::run(client, &steps, super::init::print_step).await?;
    let left = source_doctor::report(client, source).await?.findings;
    match faults(&left).find(|fault| fault.code != "slot.missing") {
        Some(fault) => Err(fault.clone()),
        None => Ok(()),
    }
}

async fn wait(statements: &Statements, client: &Client) -> Result<(), Fault> {
    let mut printed_at = Instant::now();
    while handover::state(client, statements).await?.left {
        if printed_at.elapsed() > PROGRESS_EVERY {
            printed_at = Instant::now();
            let backlog = &statements.backlog;
            let row = client.query_one(backlog, &[&1_000_000_i64]).await;
            let row = row.map_err(|error| query_fault(&error, "counting rows"))?;
            let waiting: i64 = row.get(0);
            print_note(&format!(
                "waiting for polling to publish the rows that are left to it ({waiting} rows are pending, newer ones among them); this needs a running relay with source.mode = \"polling\""
            ));
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
    Ok(())
}
