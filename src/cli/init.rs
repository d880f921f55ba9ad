//! `walrelay init`: makes what is missing in Postgres and at the broker, or prints the SQL for
//! Postgres. What only a superuser may do it prints instead.

use serde_json::{Value, json};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::args::{InitArgs, OutputFormat};
use super::check;
use super::confirm::{confirm, is_on_terminal};
use super::output::{is_coloured, print, print_as, print_line, print_note};
use super::slow;
use crate::app::sink_requirements;
use crate::base::error::{Exit, Fault};
use crate::base::figures::counted;
use crate::base::finding::{Finding, Level, faults};
use crate::base::runtime;
use crate::config::Config;
use crate::doctor::polled_columns::not_shipped;
use crate::doctor::{polled_table, source as source_doctor};
use crate::outbox::settings::OutboxTable;
use crate::polling::settings::{PollingSettings, StatusValues};
use crate::polling::table_facts::polled_outbox;
use crate::source::doctor::publication::refused_filter;
use crate::source::emit;
use crate::source::facts::{self, RoleFacts, SourceFacts};
use crate::source::faults::{message_of, query_fault, slot_missing, table_problem};
use crate::source::init::{self, InitStep};
use crate::source::quote::quote_ident;
use crate::source::settings::SourceSettings;

/// The help beside that of one step.
const REST: &str = "walrelay init --sql prints all that is missing";

/// The shipped table.
const POLLING_SQL: &str = include_str!("../../sql/polling.sql");

/// The steps that were done, and those that were not.
#[derive(Default)]
struct InitReport {
    /// The objects that were made, or would be in a dry run.
    made: Vec<String>,
    /// The steps that only another role may do.
    left: Vec<InitStep>,
    /// The problems, and the objects that are still missing.
    failed: Vec<Finding>,
}

impl InitReport {
    fn of(steps: &[InitStep]) -> InitReport {
        let mut report = InitReport::default();
        for step in steps {
            match step.hint {
                true => report.left.push(step.clone()),
                false => report.made.push(step.what.clone()),
            }
        }
        report
    }

    fn to_json(&self, dry_run: bool, faults: &[Fault]) -> Value {
        let left = self
            .left
            .iter()
            .map(|step| json!({ "what": step.what, "who": step.left_to(), "sql": step.sql }));
        let faults = faults.iter().cloned().map(Finding::fail);
        let failed = self.failed.iter().cloned().chain(faults);
        json!({
            "dry_run": dry_run,
            "made": self.made,
            "left": left.collect::<Vec<_>>(),
            "failed": failed.map(|finding| finding.to_json()).collect::<Vec<_>>(),
        })
    }
}

/// The things that `init` is to make in Postgres.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    /// The role that `walrelay run` will log in as, if that is not the one of `source.url`.
    role: Option<&'a str>,
    /// Also the function `outbox.emit`, whatever the table.
    emit: bool,
    /// Also the slot. A slot that existed before must not be replaced unseen: the new one lacks the events in between.
    slot: bool,
}

/// How the command was asked to go about it.
#[derive(Clone, Copy)]
struct Mode {
    dry_run: bool,
    /// Each step is printed when it is taken.
    prints: bool,
    /// A connection that is not safe is reported.
    warns: bool,
}

impl Mode {
    fn step(self, step: &InitStep) {
        if self.prints {
            print_step(step);
        }
    }
}

/// Makes what is missing in Postgres, then at the broker, with a line for each thing, and says in the
/// end whether anything is still missing. On a terminal it shows that first, and asks.
pub(crate) fn run(config: &Config, args: &InitArgs) -> Result<Exit, Vec<Fault>> {
    if args.emit && config.polling.is_some() {
        return Err(emit::unfit("a polled table has other columns").into());
    }
    if let (Some(role), Some(_)) = (&args.role, &config.polling) {
        return Err(unfit_role(role).into());
    }
    if args.no_slot && config.polling.is_some() {
        return Err(unfit_no_slot().into());
    }
    let wanted = Wanted { role: args.role.as_deref(), emit: args.emit, slot: !args.no_slot };
    if args.sql {
        return Ok(runtime::try_block_on(script(config, wanted))?);
    }
    let (format, dry_run) = (args.output.format(), args.dry_run.dry_run);
    let mut prints = format == OutputFormat::Text;
    let asks = prints && !dry_run && !args.yes && is_on_terminal();
    if asks {
        let mode = Mode { dry_run: true, prints, warns: true };
        let (report, faults) = make(config, wanted, mode)?;
        if !faults.is_empty() {
            return Err(faults);
        }
        // The steps for somebody else have been printed.
        prints = !report.made.is_empty();
        if prints {
            confirm(&format!("Make {}?", counted(report.made.len(), "thing")), false)?;
        }
    }
    let (report, faults) = make(config, wanted, Mode { dry_run, prints, warns: !asks })?;
    print_as(
        format,
        || report.to_json(dry_run, &faults),
        || {
            let lines = check::lines(&report.failed, is_coloured(&std::io::stdout()));
            lines + &summary(&report, faults.len(), dry_run)
        },
    )?;
    match (faults.is_empty(), report.failed.is_empty()) {
        (false, _) => Err(faults),
        (true, false) => Ok(Exit::Failed),
        (true, true) => Ok(Exit::Done),
    }
}

/// Makes what is missing. Returns the faults that have kept something from being made.
fn make(
    config: &Config,
    wanted: Wanted<'_>,
    mode: Mode,
) -> Result<(InitReport, Vec<Fault>), Fault> {
    let (mut report, mut faults) = match runtime::try_block_on(source(config, wanted, mode)) {
        Ok(report) => (report, Vec::new()),
        // A dry run changes nothing, so that it can go on and show both sides.
        Err(fault) if mode.dry_run => (InitReport::default(), vec![fault]),
        Err(fault) => return Err(fault),
    };
    let made = config.sink.prepare(&sink_requirements(config), mode.dry_run);
    for thing in made.iter().flatten() {
        let what = format!("make {thing}");
        if mode.prints {
            print_line(&format!("+ {what}"));
        }
        report.made.push(what);
    }
    faults.extend(made.err().unwrap_or_default());
    Ok((report, faults))
}

fn summary(report: &InitReport, faults: usize, dry_run: bool) -> String {
    let failed = report.failed.len() + faults;
    if failed > 0 {
        return check::summary(failed, 0);
    }
    // Without an optional one nothing is missing.
    let left = report.left.iter().filter(|step| !step.is_optional()).count();
    let made = match (report.made.len(), dry_run) {
        (0, _) => String::new(),
        (made, true) => {
            let verb = if made == 1 { "is" } else { "are" };
            format!("dry run, nothing was made; {} {verb} missing", counted(made, "thing"))
        }
        (made, false) => {
            let verb = if made == 1 { "was" } else { "were" };
            format!("{} {verb} made", counted(made, "thing"))
        }
    };
    match (left, report.made.len(), dry_run) {
        (0, 0, _) => "nothing is missing\n".to_owned(),
        (0, _, true) => made + "\n",
        (0, _, false) => made + "; now nothing is missing\n",
        (_, 0, _) => format!("{left} left to a superuser (!)\n"),
        _ => format!("{made}; {left} left to a superuser (!)\n"),
    }
}

/// Connects, and says on standard error what `check` would say of the connection: the password is that of a
/// superuser.
async fn connect(settings: &SourceSettings, warns: bool) -> Result<Client, Fault> {
    let sql = check::connect_sql(settings).await?;
    if let Some(finding) = check::unsafe_link(sql.link, &sql.server).filter(|_| warns) {
        print_note(&format!("! {}", finding.text));
    }
    Ok(sql.into_client())
}

/// Prints the SQL that [`source`] would run.
async fn script(config: &Config, wanted: Wanted<'_>) -> Result<Exit, Fault> {
    let settings = &config.source;
    let client = connect(settings, true).await?;
    let text = match &config.polling {
        Some(polling) if lacks_polled_table(&client, settings, polling).await? => {
            POLLING_SQL.to_owned()
        }
        Some(_) => String::new(),
        None => init::script(&planned(&client, settings, wanted).await?, settings),
    };
    print(&text)
}

/// Makes what is missing in Postgres.
async fn source(config: &Config, wanted: Wanted<'_>, mode: Mode) -> Result<InitReport, Fault> {
    let settings = &config.source;
    let client = connect(settings, mode.warns).await?;
    if let Some(polling) = &config.polling {
        return make_polled_table(&client, settings, polling, mode).await;
    }
    let mut steps = planned(&client, settings, wanted).await?;
    let lacks_slot = steps.iter().any(InitStep::makes_slot);
    steps.retain(|step| wanted.slot || !step.makes_slot());
    let mut report = InitReport::of(&steps);
    // Where nothing is to be made, what is wrong is reported as without the option.
    if mode.dry_run && !steps.is_empty() {
        steps.iter().for_each(|step| mode.step(step));
        if lacks_slot && !wanted.slot {
            report.failed.push(Finding::fail(slot_missing(&settings.slot)));
        }
        return Ok(report);
    }
    // The slot is last. It alone may take longer than the time limits of the role.
    let slot_at = steps.iter().position(InitStep::makes_slot).unwrap_or(steps.len());
    let (others, slot) = steps.split_at(slot_at);
    init::run(&client, others, |step| mode.step(step), REST).await?;
    if !slot.is_empty() {
        let made = init::run(&client, slot, |step| mode.step(step), REST);
        slow::without_limit(settings, &client, made).await?;
    }
    report.failed = source_doctor::report(&client, settings).await?.findings;
    // A step has judged the role of the relay; that of this login need not replicate.
    let is_of_login = |finding: &Finding| wanted.role.is_some() && finding.topic == "source.role";
    report.failed.retain(|finding| finding.level == Level::Fail && !is_of_login(finding));
    Ok(report)
}

/// Faults with which every step would fail or be of no use.
const HOPELESS: [&str; 3] = ["source.standby", "source.wal-level", "source.output-plugins"];

async fn planned(
    client: &Client,
    settings: &SourceSettings,
    wanted: Wanted<'_>,
) -> Result<Vec<InitStep>, Fault> {
    let report = source_doctor::report(client, settings).await?;
    let hopeless = faults(&report.findings).find(|fault| HOPELESS.contains(&fault.code)).cloned();
    let refused = || report.facts.published.tables.iter().find_map(refused_filter);
    if let Some(fault) = hopeless.or_else(refused) {
        return Err(fault);
    }
    let relay = relay_role(client, &report.facts, wanted.role).await?;
    let emit = emit::missing(client, settings, wanted.emit).await?;
    init::plan(&report.facts, settings, &relay, emit.as_ref())
}

/// Prints a step that is taken, or that somebody else must take.
pub(super) fn print_step(step: &InitStep) {
    match step.left_to() {
        Some(who) => print_line(&format!("! {}: run this as {who}: {}", step.what, step.sql)),
        None => print_line(&format!("+ {}", step.what)),
    }
}

/// Only the shipped table is made; a table of another name is not ours to design.
async fn lacks_polled_table(
    client: &Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
) -> Result<bool, Fault> {
    let outbox = polled_outbox(settings)?;
    let report = polled_table::inspect(client, outbox, polling).await?;
    match faults(&report.findings).next() {
        None => Ok(false),
        Some(fault) if fault.code == "table.missing" && outbox.is_shipped() => {
            unfit_shipped_table(outbox, polling).map_or(Ok(true), Err)
        }
        Some(fault) => Err(fault.clone()),
    }
}

/// A table that could not be polled is not made.
fn unfit_shipped_table(outbox: &OutboxTable, polling: &PollingSettings) -> Option<Fault> {
    let absent = not_shipped(outbox, polling);
    let (names, keys) = if !absent.is_empty() {
        (format!("columns that the shipped table has not: {}", absent.join(", ")), "these columns")
    } else if polling.status_values != StatusValues::default() {
        ("status values that the shipped table does not take".to_owned(), "other status values")
    } else {
        return None;
    };
    let what = format!("outbox table {outbox} does not exist, and the configuration names {names}");
    let mend = format!(
        "make a table that fits, starting from sql/polling.sql, or leave out the keys that name {keys}; then: walrelay init"
    );
    Some(table_problem("table.missing", what, mend))
}

/// Why the shipped table could not be made.
fn not_made(error: &Error, outbox: &OutboxTable) -> Fault {
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return query_fault(error, "making the outbox table");
    }
    let schema = &outbox.schema;
    Fault::new(
        Exit::Source,
        "init.permission",
        format!("this role may not make outbox table {outbox}: {}", message_of(error)),
        "source.url",
        format!(
            "run walrelay init with a role that may CREATE in schema {schema} (GRANT CREATE ON SCHEMA {} TO …;), or as that \
             role: psql -f sql/polling.sql; walrelay init --sql prints that file",
            quote_ident(schema)
        ),
    )
}

async fn make_polled_table(
    client: &Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
    mode: Mode,
) -> Result<InitReport, Fault> {
    if !lacks_polled_table(client, settings, polling).await? {
        return Ok(InitReport::default());
    }
    let outbox = polled_outbox(settings)?;
    let what = "make outbox table public.outbox, to be polled";
    if mode.prints {
        print_line(&format!("+ {what}"));
    }
    let report = InitReport { made: vec![what.to_owned()], ..InitReport::default() };
    if mode.dry_run {
        return Ok(report);
    }
    let made = client.batch_execute(POLLING_SQL).await;
    made.map_err(|error| not_made(&error, outbox))?;
    let table = polled_table::inspect(client, outbox, polling).await?;
    match faults(&table.findings).next() {
        None => Ok(report),
        Some(fault) => Err(fault.clone()),
    }
}

/// Which rights the role needs follows from the columns of the table, and the doctor names them.
fn unfit_role(role: &str) -> Fault {
    Fault::new(
        Exit::Usage,
        "init.role-unfit",
        format!("rights on a table that is polled are not granted to {role}"),
        "--role",
        "leave --role out; then walrelay check, with the login of that role, names the GRANT that is missing",
    )
}

fn unfit_no_slot() -> Fault {
    Fault::new(
        Exit::Usage,
        "init.no-slot-unfit",
        "a table that is polled has no slot that could be left out".to_owned(),
        "--no-slot",
        "leave --no-slot out; with source.mode = \"polling\" walrelay init creates no slot",
    )
}

async fn relay_role(
    client: &Client,
    facts: &SourceFacts,
    role: Option<&str>,
) -> Result<RoleFacts, Fault> {
    let Some(name) = role else { return Ok(facts.role.clone()) };
    let found = facts::role(client, name).await;
    found.map_err(|error| query_fault(&error, "looking for the role"))?.ok_or_else(|| {
        Fault::new(
            Exit::Source,
            "source.role-missing",
            format!("role {name} does not exist"),
            "--role",
            format!(
                "as a superuser: CREATE ROLE {} LOGIN REPLICATION NOINHERIT; (see sql/roles.sql)",
                quote_ident(name)
            ),
        )
    })
}

#[cfg(test)]
#[path = "init_tests.rs"]
mod tests;
