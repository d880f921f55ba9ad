//! `walrelay dlq purge`: deletes old records of the dead-letter topic.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::figures::counted;
use crate::cli::args::{OutputFormat, PurgeArgs};
use crate::cli::confirm::{check_askable, confirm};
use crate::cli::output::{print, print_values};
use crate::dead_letter::filter::parse_age;
use crate::dead_letter::purge::{PartitionPurge, plan};
use crate::dead_letter::reader::DeadLetterTopic;
use crate::sink::broker::DeleteBefore;

/// A signal ends the command until it has been confirmed; from then on `begin` decides.
pub(super) fn run(
    topic: &DeadLetterTopic<'_>,
    args: &PurgeArgs,
    who: &str,
    begin: &dyn Fn() -> Result<(), Fault>,
) -> Result<Exit, Fault> {
    let age = parse_age(&args.older_than).ok_or_else(|| bad_age(&args.older_than))?;
    let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    let before_unix_us = unix_now_us().saturating_sub_unsigned(age_us);
    let question = format!(
        "Delete records of {} that are older than {}?",
        topic.address.topic, args.older_than
    );
    let dry_run = args.dry_run.dry_run;
    let deletion = topic.broker.dead_letter_deletion(topic.address, age);
    // Nobody is asked about what the broker can never do.
    if !dry_run && deletion.is_ok() {
        check_askable(&question, args.yes.yes)?;
    }
    let purges = plan(topic, before_unix_us)?;
    let name = &topic.address.topic;
    let count: u64 = purges.iter().map(|purge| purge.records).sum();
    if count > 0 {
        let deletion = deletion?;
        if !dry_run {
            confirm(&format!("Delete {} of {name}?", records(count)), args.yes.yes)?;
            begin()?;
            delete(name, deletion, &purges, who)?;
        }
    }
    let format = args.output.format();
    if format != OutputFormat::Text {
        let values: Vec<Value> = purges.iter().map(|purge| json!(purge)).collect();
        return print_values(format, &values);
    }
    let verb = if dry_run { "would be deleted" } else { "deleted" };
    let lines = purges.iter().map(|PartitionPurge { partition, records: count, before, kept }| {
        let kept = if kept.is_empty() { String::new() } else { format!(", where {kept} stands") };
        let records = records(*count);
        format!("{name}, partition {partition}: {records} {verb}, up to offset {before}{kept}\n")
    });
    let lines: String = lines.collect();
    print(&(lines + &format!("{} {verb}\n", records(count))))
}

fn records(count: u64) -> String {
    counted(count as usize, "record")
}

fn delete(
    name: &str,
    deletion: DeleteBefore<'_>,
    purges: &[PartitionPurge],
    who: &str,
) -> Result<(), Fault> {
    let count: u64 = purges.iter().map(|purge| purge.records).sum();
    tracing::info!(target: "audit", who, action = "purge", topic = name, count, "dead letters: purge begins");
    let before: BTreeMap<i32, i64> = purges.iter().map(|it| (it.partition, it.before)).collect();
    let deleted = deletion(&before);
    let ended = deleted.as_ref().map_or_else(|fault| fault.code, |()| "done");
    tracing::info!(target: "audit", who, action = "purge", topic = name, count, ended, "dead letters: purge ended");
    deleted
}

fn bad_age(text: &str) -> Fault {
    Fault::new(
        Exit::Usage,
        "dead-letter.bad-filter",
        format!("{text:?} is not an age"),
        "--older-than",
        "expected an age, as in 30d or 12h",
    )
}
