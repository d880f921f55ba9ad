//! Judges the server and the role.

use std::time::Duration;

use crate::facts::{ServerFacts, SourceFacts};
use crate::faults::{SET_WAL_LEVEL, no_free_slot, raise_wal_senders};
use crate::init::close_messages_sql;
use crate::quote::{quote_ident, quote_literal};
use crate::settings::SourceSettings;
use walrelay_base::error::{Exit, Fault};
use walrelay_base::finding::Finding;

pub const WAL_SENDERS: &str = "source.wal-senders";
/// Postgres ends the stream when relay, machine or network pause for longer than the setting.
const WAL_SENDER_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// As long as the setting, a relay that has vanished keeps others from using the slot.
const WAL_SENDER_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Less than what the look at the ends of topics allows for.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(5);

pub(super) fn judge(facts: &SourceFacts, settings: &SourceSettings) -> Vec<Finding> {
    [
        Some(version(facts)),
        output_plugins(facts),
        Some(standby(facts)),
        Some(wal_level(facts)),
        Some(role(facts)),
        Some(wal_senders(facts)),
        Some(wal_sender_timeout(facts)),
        replication_slots(facts),
        synchronous(facts, settings),
        standby_slots(facts),
        patroni(facts, settings),
        Some(encoding(facts, settings)),
        messages(facts, settings),
        clocks(facts),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The walsender of a relay counts as a standby wherever its name does.
fn synchronous(facts: &SourceFacts, settings: &SourceSettings) -> Option<Finding> {
    let names = &facts.server.synchronous_standbys;
    let own = &settings.connection.application_name;
    // Every other part is in quotes.
    let parts = names.split('"').enumerate();
    let each = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split(['(', ')', ',', ' ', '\t', '\n', '\r']).collect(),
        _ => vec![part],
    });
    let is_own = |name: &str| name == "*" || name.eq_ignore_ascii_case(own);
    each.into_iter().any(is_own).then(|| {
        Finding::warn(
            "source.synchronous",
            format!(
                "synchronous_standby_names is {names:?}, which includes this relay ({own}): each COMMIT may wait until the broker has confirmed, or end before a standby has it; write the names of the standbys there, or another application_name into source.url"
            ),
        )
    })
}

/// Postgres sends the changes of a failover slot only after the standbys of these slots have them.
fn standby_slots(facts: &SourceFacts) -> Option<Finding> {
    let slot = facts.slot.as_ref().filter(|slot| slot.is_failover())?;
    let unread = facts.server.unread_standby_slots.join(", ");
    (!unread.is_empty() && !facts.server.standby).then(|| {
        Finding::warn(
            "source.standby-slots",
            format!(
                "synchronized_standby_slots names slots that no standby reads ({unread}): Postgres sends no later changes from slot {} until a standby reads each of them; start these standbys, or change the list, as after a promotion: ALTER SYSTEM SET synchronized_standby_slots = ''; SELECT pg_catalog.pg_reload_conf();",
                slot.name
            ),
        )
    })
}

/// Patroni drops inactive slots that it does not know, for example when it or Postgres starts.
fn patroni(facts: &SourceFacts, settings: &SourceSettings) -> Option<Finding> {
    let name = &settings.slot;
    facts.server.has_patroni.then(|| {
        Finding::warn(
            "slot.patroni",
            format!(
                "Patroni manages this server and drops inactive slots that it does not know: in patronictl edit-config write ignore_slots: [{{name: {name}, type: logical}}], or the slot under slots: (docs/postgres.md)"
            ),
        )
    })
}

/// Records have the time of this host, and events that of Postgres' commit.
fn clocks(facts: &SourceFacts) -> Option<Finding> {
    let ahead_us = facts.server.host_ahead_us;
    let differ = Duration::from_micros(ahead_us.unsigned_abs());
    if differ <= CLOCKS_DIFFER_MAX {
        return None;
    }
    let which = if ahead_us > 0 { "ahead of" } else { "behind" };
    Some(Finding::warn(
        "source.clock",
        format!(
            "the clock of this host is {} s {which} that of Postgres: latencies are wrong by as much, and after a kill events may be published again that a topic holds; set both clocks by NTP",
            differ.as_secs()
        ),
    ))
}

fn problem(code: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding::fail(Fault::new(Exit::Source, code, what, "source.url", mend))
}

fn version(facts: &SourceFacts) -> Finding {
    let ServerFacts { version_text, system_id, timeline, .. } = &facts.server;
    let text = format!("PostgreSQL {version_text}, system {system_id}, timeline {timeline}");
    Finding::ok("source.version", text)
}

/// Which libraries a role with REPLICATION may load; without the setting it may load any.
fn output_plugins(facts: &SourceFacts) -> Option<Finding> {
    let Some(allowed) = &facts.server.output_plugins else {
        // A role that may not see the setting cannot tell whether the server has it.
        return facts.server.sees_all_settings.then(|| {
            Finding::warn(
                "source.minor",
                format!(
                    "PostgreSQL {} does not confine output plugins (no output_plugin_libraries): a \
                 role with REPLICATION can load any library; install the newest minor release",
                    facts.server.version_text
                ),
            )
        });
    };
    let names = || allowed.split(',').map(|name| name.trim().trim_matches('"'));
    if names().any(|name| matches!(name, "pgoutput" | "*")) {
        return None;
    }
    let names = names().filter(|name| !name.is_empty()).chain(["pgoutput"]).map(quote_literal);
    let names = names.collect::<Vec<_>>().join(", ");
    Some(problem(
        "source.output-plugins",
        format!("output_plugin_libraries is {allowed:?} and does not allow pgoutput"),
        format!(
            "ALTER SYSTEM SET output_plugin_libraries = {names}; SELECT pg_catalog.pg_reload_conf();"
        ),
    ))
}

fn standby(facts: &SourceFacts) -> Finding {
    if !facts.server.standby {
        return Finding::ok("source.standby", "the server is a primary");
    }
    problem(
        "source.standby",
        "the server is a standby: its slots end at a promotion and may be cancelled by recovery",
        "name the primary in source.url, or list all servers: \
         postgres://…@a:5432,b:5432/db?target_session_attrs=primary",
    )
}

/// From 19 on `replica` is enough: the first logical slot raises the level that is in effect.
fn wal_level(facts: &SourceFacts) -> Finding {
    let level = facts.server.wal_level.as_str();
    let text = match (level, facts.server.effective_wal_level.as_deref()) {
        ("logical", _) => "wal_level is logical".to_owned(),
        (_, Some("logical")) => {
            format!(
                "wal_level is {level}, and effective_wal_level logical while there is a logical slot"
            )
        }
        ("replica", Some(_)) => {
            "wal_level is replica: the first logical slot raises effective_wal_level".to_owned()
        }
        _ => {
            return problem(
                "source.wal-level",
                format!("wal_level is {level}, logical decoding needs logical"),
                SET_WAL_LEVEL,
            );
        }
    };
    Finding::ok("source.wal-level", text)
}

fn role(facts: &SourceFacts) -> Finding {
    let role = &facts.role;
    if role.superuser {
        return Finding::warn(
            "source.role",
            format!(
                "role {} is a superuser; a role with LOGIN REPLICATION and nothing else is \
                 enough (sql/roles.sql)",
                role.name
            ),
        );
    }
    if role.replication {
        return Finding::ok("source.role", format!("role {} may replicate", role.name));
    }
    problem(
        "source.role",
        format!("role {} may not replicate", role.name),
        format!(
            "as a superuser: ALTER ROLE {0} REPLICATION; (on RDS: GRANT rds_replication TO {0};)",
            quote_ident(&role.name)
        ),
    )
}

/// If the slot is being read, its reader has a WAL sender already, and none needs to be free.
fn wal_senders(facts: &SourceFacts) -> Finding {
    let (used, max) = (facts.server.wal_senders_used, facts.server.max_wal_senders);
    let reading = facts.slot.as_ref().is_some_and(|slot| slot.active_pid.is_some());
    let raise = raise_wal_senders(Some(max));
    match max.saturating_sub(used) {
        0 if !reading => problem(
            WAL_SENDERS,
            format!("all {max} WAL senders are in use (max_wal_senders)"),
            raise,
        ),
        0 => Finding::warn(
            WAL_SENDERS,
            format!("all {max} WAL senders are in use: nobody could take over; {raise}"),
        ),
        free => Finding::ok(WAL_SENDERS, format!("{free} of {max} WAL senders are free")),
    }
}

/// How long Postgres keeps the slot active for a relay that no longer answers.
fn wal_sender_timeout(facts: &SourceFacts) -> Finding {
    let topic = "source.wal-sender-timeout";
    let timeout = facts.server.wal_sender_timeout();
    let is = timeout.map_or("0".to_owned(), |timeout| format!("{} s", timeout.as_secs_f64()));
    let why = match timeout {
        Some(timeout) if timeout < WAL_SENDER_TIMEOUT_MIN => {
            "Postgres ends the stream at every pause of the relay or of the network that is longer"
        }
        Some(timeout) if timeout > WAL_SENDER_TIMEOUT_MAX => {
            "when the relay's machine or network fails, Postgres keeps the slot for it that long, \
             and no other relay can take over"
        }
        Some(_) => return Finding::ok(topic, format!("wal_sender_timeout is {is}")),
        None => {
            "when the relay's machine or network fails, Postgres may keep the slot for it until \
             TCP gives up, and no other relay can take over"
        }
    };
    Finding::warn(
        topic,
        format!(
            "wal_sender_timeout is {is}: {why}; ALTER SYSTEM SET wal_sender_timeout = '60s'; \
             SELECT pg_catalog.pg_reload_conf();"
        ),
    )
}

/// Free slots matter only until the relay has its own.
fn replication_slots(facts: &SourceFacts) -> Option<Finding> {
    if facts.slot.is_some() {
        return None;
    }
    let (used, max) = (facts.server.slots_used, facts.server.max_replication_slots);
    if used < max {
        return Some(Finding::ok(
            "slot.none-free",
            format!("{} of {max} replication slots are free", max - used),
        ));
    }
    Some(Finding::fail(no_free_slot(&facts.server.slots, Some(max))))
}

/// Every role that may emit a logical message can publish an event.
fn messages(facts: &SourceFacts, settings: &SourceSettings) -> Option<Finding> {
    settings.messages.as_ref()?;
    let sql = close_messages_sql(&facts.server)?;
    Some(Finding::warn(
        "messages.public",
        format!(
            "every role of database {} may emit events: PUBLIC may execute pg_logical_emit_message; as a superuser: {sql} (sql/messages.sql does both)",
            facts.server.database
        ),
    ))
}

fn encoding(facts: &SourceFacts, settings: &SourceSettings) -> Finding {
    let server = &facts.server;
    if server.encoding == "SQL_ASCII" {
        return Finding::warn(
            "source.encoding",
            format!(
                "database {} is SQL_ASCII: text that is not UTF-8 is published as it is, and \
                 cannot be an id or a part of a topic; store those as ASCII or UTF-8",
                server.database
            ),
        );
    }
    if server.encoding != "UTF8" && settings.messages.is_some() {
        return Finding::warn(
            "source.encoding",
            format!(
                "database {} is {}, and Postgres does not convert logical messages: emit their \
                 content as convert_to(…, 'UTF8')",
                server.database, server.encoding
            ),
        );
    }
    Finding::ok("source.encoding", format!("database {} is {}", server.database, server.encoding))
}
