//! `walrelay outbox list | retry | handover`: the rows of a polled table.

use std::collections::BTreeSet;
use std::io::BufWriter;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_postgres::Client;

use super::args::{HandoverArgs, ListRows, OutboxAction, OutputFormat, RetryRows, RowState};
use super::check;
use super::output::{ListPrinter, Table, Width, json_line, print_as, print_line, print_note};
use crate::base::error::{Exit, Fault};
use crate::base::figures::counted;
use crate::base::finding::faults;
use crate::base::text::escaped;
use crate::config::Config;
use crate::delivery::settings::OnDeadLetter;
use crate::doctor::{polled_table, source as source_doctor};
use crate::outbox::settings::{OutboxTable, POLLED_KEY, POLLED_TOPIC};
use crate::polling::admin_rows::{AdminRow, AdminRows, RowFilter};
use crate::polling::handover::{self, TableHandover};
use crate::polling::lock_wait;
use crate::polling::settings::PollingSettings;
use crate::polling::statements::Statements;
use crate::polling::table_facts::polled_outbox;
use crate::source::faults::query_fault;
use crate::source::init::{self, InitStep};
use crate::source::settings::SourceSettings;

/// How often it is checked whether polling has published the rows that are left to it.
const CHECK_EVERY: Duration = Duration::from_millis(200);
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

pub(crate) async fn run(config: &Config, action: &OutboxAction) -> Result<Exit, Fault> {
    let polling = config.polling.as_ref().ok_or_else(not_polling)?;
    let client = &check::connect(&config.source).await?;
    let done = Box::pin(async {
        match action {
            OutboxAction::List(args) => list(config, polling, client, args).await,
            OutboxAction::Retry(args) => retry(config, polling, client, args).await,
            OutboxAction::Handover(args) => handover(config, polling, client, args).await,
        }
    });
    lock_wait::with_explanation(&config.source.connection, client, done).await
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
    let known = &polling.status_values;
    let status = match args.state {
        RowState::Pending => &known.pending,
        RowState::InProgress => &known.in_progress,
        RowState::Published => &known.published,
        RowState::Failed => &known.failed,
    };
    let which = RowFilter { ids: args.ids.clone(), key: args.key.clone() };
    let rows = AdminRows::open(client, polled_outbox(&config.source)?, polling).await?;
    let format = args.output.format();
    let is_text = format == OutputFormat::Text;
    let limit = args.limit.or(is_text.then_some(TABLE_ROWS_MAX));
    let out = BufWriter::new(std::io::stdout());
    let mut printer = ListPrinter::new(out, format, TABLE.head());
    let mut is_cut = false;
    // One more than is shown, to know whether there are more.
    let asked = limit.map(|limit| i64::from(limit) + 1);
    let mut show = |row: &AdminRow| {
        if limit.is_some_and(|limit| limit as usize == printer.count) {
            is_cut = true;
            return Ok(false);
        }
        printer.item(|| json_line(row), || table_row(row))
    };
    rows.list(client, status, &which, asked, &mut show).await?;
    if !printer.end()? {
        return Ok(Exit::Done);
    }
    let count = printer.count;
    if count == 0 && is_text {
        print_line(&empty_list(status, &which));
    }
    if is_cut {
        print_note(&format!("only the first {count} rows are listed (--limit)"));
    }
    Ok(Exit::Done)
}

/// The line that stands for a list without rows.
fn empty_list(status: &str, which: &RowFilter) -> String {
    let is_filtered = !which.ids.is_empty() || which.key.is_some();
    let row = if is_filtered { "row with the given ids or key" } else { "row" };
    format!("no {row} is {status}")
}

/// A table is for people.
const TABLE_ROWS_MAX: u32 = 1000;

const TABLE: Table = Table(&[
    ("ID", Width::AtLeast(36)),
    ("KEY", Width::AtLeast(20)),
    ("STATE", Width::AtLeast(12)),
    ("TRIES", Width::AtLeast(5)),
    ("WRITTEN", Width::AtLeast(19)),
    ("REASON", Width::AtLeast(0)),
]);

fn table_row(row: &AdminRow) -> String {
    let written = row.created_at.as_deref().and_then(|text| text.get(..19)).unwrap_or("-");
    TABLE.row([
        row.id.as_deref().unwrap_or("-"),
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
            "retry which rows? No id, no key and no --all was given",
            "walrelay outbox retry",
            "walrelay outbox retry ID, or --key KEY, or --all; walrelay outbox list shows what has failed",
        ));
    }
    let statements = polled_table::prepare(client, &config.source, polling).await?;
    let which = RowFilter { ids: args.ids.clone(), key: args.key.clone() };
    let rows = AdminRows::open(client, polled_outbox(&config.source)?, polling).await?;
    let dry_run = args.dry_run.dry_run;
    let absent = rows.absent_ids(client, &which).await?;
    let count = if dry_run {
        refuse_handed_over(client, &config.source, &statements).await?;
        rows.count_failed(client, &which).await?
    } else {
        put_back(config, client, &statements, &rows, &which).await?
    };
    let told = RetryText::of(count, dry_run, config.delivery.on_dead_letter);
    print_as(
        args.output.format(),
        || json!({ "dry_run": dry_run, "rows": count }),
        || told.line + "\n",
    )?;
    told.notes.iter().for_each(|note| print_note(note));
    if !absent.is_empty() {
        print_note(&format!("no failed row has one of these ids: {}", absent.join(", ")));
    }
    let wanted = args.ids.iter().collect::<BTreeSet<_>>().len() as u64;
    Ok(if count < wanted { Exit::Failed } else { Exit::Done })
}

/// The line that a retry prints, and its notes.
struct RetryText {
    line: String,
    notes: Vec<&'static str>,
}

impl RetryText {
    fn of(count: u64, dry_run: bool, on_dead_letter: OnDeadLetter) -> RetryText {
        let rows = counted(usize::try_from(count).unwrap_or(usize::MAX), "row");
        let mut line = match dry_run {
            true => format!("dry run, nothing was changed: {rows} would be published again"),
            false => format!("{rows} will be published again"),
        };
        let mut notes = Vec::new();
        if count > 0 && !dry_run {
            notes.push(STAY_OPEN);
        }
        if count > 0 && on_dead_letter == OnDeadLetter::ParkKey {
            line += ", unless the key is parked";
            notes.push(PARKED_AGAIN);
        }
        RetryText { line, notes }
    }
}

const STAY_OPEN: &str = "dead letters of theirs that are open stay open, and could be replayed, too: walrelay dlq discard ID";
/// A row that is put back comes behind the dead letter that has parked its key.
const PARKED_AGAIN: &str = "a row whose key is parked becomes a dead letter again (class parked); the order is: \
    walrelay dlq discard ID, for the dead letters of the rows; walrelay dlq release --key KEY; walrelay outbox retry";

/// Puts failed rows back in the turn of a claim: a handover would leave rows that are put back behind it to
/// nobody.
async fn put_back(
    config: &Config,
    client: &Client,
    statements: &Statements,
    rows: &AdminRows<'_>,
    which: &RowFilter,
) -> Result<u64, Fault> {
    let refused = |error| query_fault(&error, "putting rows back");
    // No relay claims a row meanwhile, so a row that somebody has locked is not waited for without end, and
    // Postgres does not wait for a program that has lost its network.
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '10s'; \
         SET LOCAL lock_timeout = '10s'; {}; SET LOCAL lock_timeout = '1s'",
        statements.turn
    );
    client.batch_execute(&begin).await.map_err(refused)?;
    refuse_handed_over(client, &config.source, statements).await?;
    let count = rows.put_back(client, which).await?;
    client.batch_execute("COMMIT").await.map_err(refused)?;
    Ok(count)
}

async fn refuse_handed_over(
    client: &Client,
    source: &SourceSettings,
    statements: &Statements,
) -> Result<(), Fault> {
    if !is_handed_over(client, source, statements).await? {
        return Ok(());
    }
    Err(Fault::new(
        Exit::Slot,
        "slot.exists",
        format!("slot {} carries this table now: it is no longer polled", source.slot),
        "source.slot",
        "failed rows have dead letters: walrelay dlq list, then walrelay dlq replay ID",
    ))
}

async fn handover(
    config: &Config,
    polling: &PollingSettings,
    client: &Client,
    args: &HandoverArgs,
) -> Result<Exit, Fault> {
    let statements = polled_table::prepare(client, &config.source, polling).await?;
    let slot = &config.source.slot;
    let format = args.output.format();
    let exists = is_handed_over(client, &config.source, &statements).await?;
    let handover = TableHandover { source: &config.source, polling, statements: &statements };
    if !exists {
        polled_table::refuse_other_default(client, &config.source, polling).await?;
        handover.check(client).await?;
    }
    let say = |text: String| {
        if format == OutputFormat::Text {
            print_line(&text);
        }
    };
    if args.dry_run.dry_run {
        return would_hand_over(config, polling, client, &statements, exists, format).await;
    }
    let mut marked = 0;
    if exists {
        say(format!("slot {slot} exists already"));
    } else {
        make_publication(config, polling, client, format).await?;
        say("dividing the rows; this waits for open transactions to end".to_owned());
        marked = handover.run(client).await?;
        say(format!("+ created slot {slot}: it delivers what commits from now on"));
        let verb = if marked == 1 { "is" } else { "are" };
        say(format!("{} {verb} left to polling", counted(marked as usize, "pending row")));
    }
    if args.no_wait {
        say("when the relays that poll have stopped:".to_owned());
    } else {
        wait(&statements, client).await?;
        say("nothing is left to polling".to_owned());
    }
    let outbox = polled_outbox(&config.source)?;
    let value = || json!({ "dry_run": false, "slot": slot, "created": !exists, "left_to_polling": marked, "waited": !args.no_wait });
    print_as(format, value, || next_steps(outbox, polling))
}

/// The change of the configuration that follows a handover.
fn next_steps(outbox: &OutboxTable, polling: &PollingSettings) -> String {
    let order = &polling.columns.order;
    let mut text = format!(
        "now, in the configuration: source.mode = \"cdc\"; remove the sections [source.polling...]\n\
         source.polling.columns.order becomes columns.order of the table: columns.order = {order:?}\n"
    );
    let defaults = [
        (outbox.columns.key == POLLED_KEY, format!("columns.key = {POLLED_KEY:?}")),
        (outbox.route.topic.to_string() == POLLED_TOPIC, format!("route.topic = {POLLED_TOPIC:?}")),
    ];
    let set: Vec<_> = defaults.into_iter().filter_map(|(is, set)| is.then_some(set)).collect();
    if !set.is_empty() {
        text += &format!("write {}: cdc has other defaults\n", set.join(" and "));
    }
    text + "then start the relay again\n"
}

/// Prints what a handover would make, and how many rows would be left to polling.
async fn would_hand_over(
    config: &Config,
    polling: &PollingSettings,
    client: &Client,
    statements: &Statements,
    exists: bool,
    format: OutputFormat,
) -> Result<Exit, Fault> {
    let slot = &config.source.slot;
    let mut steps: Vec<String> = Vec::new();
    if !exists {
        let needed = publication_steps(config, polling, client).await?;
        steps.extend(needed.into_iter().map(|step| step.what));
        steps.push(format!("make slot {slot} (waits for open transactions to end)"));
    }
    let left = backlog(statements, client).await?;
    let value =
        || json!({ "dry_run": true, "slot": slot, "steps": steps, "left_to_polling": left });
    print_as(format, value, || {
        let lines: String = steps.iter().map(|step| format!("+ {}\n", escaped(step))).collect();
        format!(
            "{lines}dry run, nothing was changed: {} would be left to polling\n",
            counted(left as usize, "pending row")
        )
    })
}

/// Creates what `init` would, except for the slot.
async fn make_publication(
    config: &Config,
    polling: &PollingSettings,
    client: &Client,
    format: OutputFormat,
) -> Result<(), Fault> {
    let source = &config.source;
    let steps = publication_steps(config, polling, client).await?;
    let print = |step: &InitStep| {
        if format == OutputFormat::Text {
            super::init::print_step(step);
        }
    };
    init::run(client, &steps, print, "then run walrelay outbox handover again").await?;
    let left = source_doctor::report(client, source).await?.findings;
    match faults(&left).find(|fault| fault.code != "slot.missing") {
        Some(fault) => Err(fault.clone()),
        None => Ok(()),
    }
}

async fn publication_steps(
    config: &Config,
    polling: &PollingSettings,
    client: &Client,
) -> Result<Vec<InitStep>, Fault> {
    let source = with_order(&config.source, polling);
    let facts = source_doctor::report(client, &source).await?.facts;
    let mut steps = init::plan(&facts, &source, &facts.role, None)?;
    steps.retain(|step| !step.makes_slot());
    Ok(steps)
}

/// The settings as they will be after the handover: the table has an order already, and needs no column for it.
fn with_order(source: &SourceSettings, polling: &PollingSettings) -> SourceSettings {
    let mut source = source.clone();
    for outbox in &mut source.outboxes {
        outbox.order = Some(polling.columns.order.clone());
    }
    source
}

/// How many rows are pending, up to a million.
async fn backlog(statements: &Statements, client: &Client) -> Result<i64, Fault> {
    let row = client.query_one(&statements.backlog, &[&1_000_000_i64]).await;
    Ok(row.map_err(|error| query_fault(&error, "counting rows"))?.get(0))
}

async fn wait(statements: &Statements, client: &Client) -> Result<(), Fault> {
    let mut printed_at = Instant::now();
    while handover::state(client, statements).await?.left {
        if printed_at.elapsed() > PROGRESS_EVERY {
            printed_at = Instant::now();
            let waiting = backlog(statements, client).await?;
            print_note(&format!(
                "waiting for polling to publish the rows that are left to it ({waiting} rows are pending, newer ones among them); this needs a running relay with source.mode = \"polling\""
            ));
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
    Ok(())
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
