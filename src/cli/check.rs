//! `walrelay check`: finds everything that could keep the relay from working, without changing
//! anything. It prints a line for each finding, with what mends it below, and exits 1 when
//! something must be mended.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_postgres::Client;

use super::args::OutputFormat;
use super::output::{is_coloured, print, print_json, print_values};
use crate::app::{self, reads_dead_letters, sink_requirements, stops_config};
use crate::base::error::{Exit, Fault};
use crate::base::figures::counted;
use crate::base::finding::{Finding, Level, faults, is_sound};
use crate::base::runtime;
use crate::base::text::{escaped, escaped_lines};
use crate::config::Config;
use crate::dead_letter::others;
use crate::dead_letter::owner::LetterOwner;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::tail;
use crate::dead_letter::writer::SystemId;
use crate::delivery::settings::OnDeadLetter;
use crate::doctor::polled_table::{self, PolledTableReport};
use crate::doctor::publication_age;
use crate::doctor::source::{self as source_doctor, SourceReport};
use crate::polling::handover;
use crate::polling::lock_wait;
use crate::polling::settings::PollingSettings;
use crate::polling::statements::Statements;
use crate::polling::table_facts::polled_outbox;
use crate::relay;
use crate::relay::stops::{Stops, StopsConfig};
use crate::source::connect;
use crate::source::facts::{SourceFacts, system_id};
use crate::source::sampled_topics::{self, SampledTopics};
use crate::source::settings::{PostgresHost, SourceSettings};
use crate::source::sql::{self, LinkSafety, Sql};

/// How long the dead-letter topic is read for dead letters of others.
const OTHERS_WITHIN: Duration = Duration::from_secs(2);
/// SQLSTATE of a server all of whose WAL senders are in use.
const TOO_MANY_CONNECTIONS: &str = "53300";

pub(crate) async fn connect(settings: &SourceSettings) -> Result<Client, Fault> {
    connect_sql(settings).await.map(Sql::into_client)
}

pub(super) async fn connect_sql(settings: &SourceSettings) -> Result<Sql, Fault> {
    let SourceSettings { connection, slot, publication, .. } = settings;
    let connected = sql::connect(connection).await;
    connected.map_err(|error| error.fault(connection, slot, publication))
}

/// Inspects the source, the broker and this machine. A server that cannot be reached is a finding,
/// too, so that the findings of the others are still printed.
pub(crate) fn run(config: &Config, format: OutputFormat) -> Result<Exit, Fault> {
    // What a relay remembers is read first: one that runs goes on meanwhile.
    let known = SystemId::default();
    let stops = Stops::look(StopsConfig { system: known.clone(), ..stops_config(config) });
    let checked = runtime::try_block_on(async { Ok(source(config).await) })?;
    let SourceCheck { mut findings, topics, system, seen } = checked;
    let sink = inspect_sink(config, &topics, is_sound(&findings));
    let reads_topic = is_sound(&sink);
    findings.extend(sink);
    if is_sound(&findings) && reads_dead_letters(config) {
        findings.extend(others_in_dead_letter_topic(config, system.as_deref()));
    }
    findings.extend(app::inspect(config));
    system.iter().for_each(|system| known.learn(system));
    // A state file that cannot be used is a finding already.
    if let Ok(stops) = stops {
        findings.extend(stops.inspect(seen.as_ref(), reads_topic));
    }
    match format {
        OutputFormat::Text => print(&to_text(&findings, is_coloured(&std::io::stdout())))?,
        OutputFormat::Json => print_json(&to_json(&findings))?,
        OutputFormat::Jsonl => {
            let values: Vec<Value> = findings.iter().map(Finding::to_json).collect();
            print_values(format, &values)?
        }
    };
    Ok(if is_sound(&findings) { Exit::Done } else { Exit::Failed })
}

/// Whose dead letters stand in the topic beside those of this relay.
fn others_in_dead_letter_topic(config: &Config, system: Option<&str>) -> Option<Finding> {
    let address = &config.dead_letter.address;
    let stop = AtomicBool::new(false);
    let topic = DeadLetterTopic::of_relay(&*config.sink, address, &stop);
    let owner = LetterOwner::new(&config.source.slot, system);
    // Whoever may not read it is told so elsewhere, where that matters.
    let until = Instant::now() + OTHERS_WITHIN;
    let others = others::others(&topic, &owner, &|| Instant::now() < until).ok()?;
    if others.is_empty() {
        return None;
    }
    let counts = others.iter().map(|(whose, count)| format!("{count} of {whose}"));
    let counts: Vec<String> = counts.collect();
    Some(Finding::warn(
        "dead-letter.shared",
        format!(
            "the dead-letter topic {} also has dead letters of others: {}; their keys and bursts do not count here, but walrelay dlq and the gauges see all: give each service a dead_letter.topic and a slot of its own",
            address.topic,
            counts.join(", ")
        ),
    ))
}

/// Inspects the broker; `rows` names the topics that sampled rows lead to. Rows are only looked at if the source
/// is sound.
fn inspect_sink(config: &Config, rows: &[SampledTopics], is_source_sound: bool) -> Vec<Finding> {
    let from_rows: BTreeSet<String> = rows.iter().flat_map(|it| it.topics.clone()).collect();
    let mut required = sink_requirements(config);
    required.from_rows = from_rows.into_iter().collect();
    required.rows_unread = !is_source_sound || rows.iter().any(|rows| rows.unread.is_some());
    let unread = rows.iter().filter_map(|rows| rows.unread.as_deref());
    let mut found: Vec<Finding> = unread.map(|text| Finding::warn("sink.topics", text)).collect();
    found.extend(config.sink.inspect(&required));
    // If the broker has a fault, reading the dead-letter topic would only report it again.
    if is_sound(&found) && config.delivery.on_dead_letter == OnDeadLetter::ParkKey {
        let unreadable = tail::inspect(&*config.sink, &config.dead_letter).err();
        found.extend(unreadable.map(|fault| match fault.may_pass {
            true => {
                let (what, mend) = (&fault.what, fault.mend.replace('\n', "; "));
                let unknown = "whether the dead-letter topic can be read is not known";
                Finding::warn("sink", format!("{unknown}: {what}; {mend}"))
            }
            false => Finding::fail(fault),
        }));
    }
    found.sort_by_key(|finding| finding.level);
    found
}

/// The facts that are known of the source.
#[derive(Default)]
pub(super) struct SourceCheck {
    pub(super) findings: Vec<Finding>,
    /// For each table, the topics that sampled rows lead to.
    pub(super) topics: Vec<SampledTopics>,
    /// The system identifier.
    system: Option<String>,
    /// The facts that a relay compares with those that it remembers, if all is well otherwise.
    seen: Option<SourceFacts>,
}

pub(super) async fn source(config: &Config) -> SourceCheck {
    let settings = &config.source;
    let inspected = async {
        let sql = connect_sql(settings).await?;
        let client = &sql.client;
        let mut seen = None;
        let mut findings = match &config.polling {
            Some(polling) => {
                let inspecting = Box::pin(inspect_polled(client, settings, polling));
                lock_wait::with_explanation(&settings.connection, client, inspecting).await?
            }
            None => inspect(client, settings, &mut seen).await?,
        };
        findings.extend(unsafe_link(sql.link, &sql.server));
        let mut topics = Vec::new();
        if is_sound(&findings) {
            for outbox in &settings.outboxes {
                topics.extend(sampled_topics::topics(client, outbox).await);
            }
        }
        let system = system_id(client).await;
        Ok(SourceCheck { findings, topics, system, seen })
    };
    inspected.await.unwrap_or_else(|fault| SourceCheck {
        findings: vec![Finding::fail(fault)],
        ..SourceCheck::default()
    })
}

pub(super) fn unsafe_link(link: LinkSafety, server: &PostgresHost) -> Option<Finding> {
    Some(match link {
        LinkSafety::Safe => return None,
        LinkSafety::Exposed => Finding::warn(
            "source.no-tls",
            format!(
                "the connection to {server} is not encrypted, so events can be read on the way; in Postgres install a certificate and its key (ssl_cert_file, ssl_key_file), then set ssl = on; and write sslmode=verify-full in source.url"
            ),
        ),
        LinkSafety::Unverified => Finding::warn(
            "source.tls-unverified",
            format!(
                "TLS to {server} verifies nothing, so whoever is on the way can pose as Postgres; write sslmode=verify-full in source.url, with sslrootcert=FILE if its authority is not one of the system's"
            ),
        ),
    })
}

async fn inspect(
    client: &Client,
    settings: &SourceSettings,
    seen: &mut Option<SourceFacts>,
) -> Result<Vec<Finding>, Fault> {
    let SourceReport { facts, mut findings } = source_doctor::report(client, settings).await?;
    if is_sound(&findings) {
        let unfit = relay::unfit_routes(settings, &facts.published.tables);
        findings.extend(unfit.into_iter().map(Finding::fail));
        findings.extend(unable_to_stream(settings).await.map(Finding::fail));
        findings.extend(publication_age::inspect(settings, &facts).await);
        *seen = Some(facts);
    }
    Ok(findings)
}

/// Why the server lets the relay log in but not replicate, for example
/// because of a connection pooler. Whether too few WAL senders are
/// left is for the doctor to judge: a relay of ours may use one.
async fn unable_to_stream(settings: &SourceSettings) -> Option<Fault> {
    let error = connect::open(&settings.connection).await.err()?;
    let fault = || error.fault(&settings.connection, &settings.slot, &settings.publication);
    (error.sqlstate() != Some(TOO_MANY_CONNECTIONS)).then(fault)
}

async fn inspect_polled(
    client: &Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
) -> Result<Vec<Finding>, Fault> {
    let outbox = polled_outbox(settings)?;
    let PolledTableReport { facts, mut findings } =
        polled_table::inspect(client, outbox, polling).await?;
    if let Some(facts) = facts.filter(|_| is_sound(&findings)) {
        let statements = Statements::of(&facts, settings, outbox, polling);
        let unfit = relay::unfit_route(outbox, &statements.event);
        findings.extend(unfit.map(Finding::fail));
        let state = handover::state(client, &statements).await?;
        if state.handed_over {
            let fault = state.fault(settings);
            // As long as rows are left to polling, `run` still has work.
            findings.push(match state.left {
                false => Finding::fail(fault),
                true => Finding::warn(
                    "slot.exists",
                    format!(
                        "{}; polling publishes the rows that are left to it, and ends",
                        fault.what
                    ),
                ),
            });
        }
    }
    Ok(findings)
}

fn to_json(findings: &[Finding]) -> Value {
    let shown: Vec<_> = findings.iter().map(Finding::to_json).collect();
    json!({ "ok": is_sound(findings), "findings": shown })
}

fn to_text(findings: &[Finding], colours: bool) -> String {
    let warned = findings.iter().filter(|finding| finding.is_warning()).count();
    lines(findings, colours) + &summary(faults(findings).count(), warned)
}

/// A line for each finding, with what mends it below.
pub(super) fn lines(findings: &[Finding], colours: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let (mark, colour) = match finding.level {
            Level::Ok => ("✓", "32"),
            Level::Warn => ("!", "33"),
            Level::Fail => ("✗", "31"),
        };
        let mark = if colours { format!("\x1b[{colour}m{mark}\x1b[0m") } else { mark.to_owned() };
        // Writing to a string does not fail.
        writeln!(text, "{mark} {}", escaped(&finding.text)).ok();
        if let Some(fault) = &finding.fault {
            let mend = escaped_lines(&fault.mend).replace('\n', "\n          ");
            let help = if mend.is_empty() { mend } else { format!("help: {mend}  ") };
            writeln!(text, "    {help}[{}]", fault.code).ok();
        }
    }
    text
}

/// The last line.
pub(super) fn summary(failed: usize, warned: usize) -> String {
    match (failed, warned) {
        (0, 0) => "all is well\n".to_owned(),
        (0, _) => format!("ready; {} (!)\n", counted(warned, "warning")),
        (_, 0) => format!("not ready: {} (✗)\n", counted(failed, "problem")),
        _ => format!(
            "not ready: {} (✗), {} (!)\n",
            counted(failed, "problem"),
            counted(warned, "warning")
        ),
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
