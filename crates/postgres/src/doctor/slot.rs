//! Judges the replication slot.

use std::time::Duration;

use crate::facts::SourceFacts;
use crate::faults::{new_slot_commands, slot_missing, slot_problem};
use crate::oldest_transaction::PINNED_BYTES_MIN;
use crate::quote::quote_literal;
use crate::settings::SourceSettings;
use crate::slot::{being_made, lost, not_ours};
use crate::slot_state::SlotFacts;
use walrelay_base::error::Fault;
use walrelay_base::figures::binary_size;
use walrelay_base::finding::{Finding, is_sound};

/// Most slots of others that a fault names.
const NAMED_MAX: usize = 10;

/// A name that is wrong would leave a slot behind that nobody reads.
fn missing(facts: &SourceFacts, name: &str) -> Fault {
    let fault = slot_missing(name);
    let others: Vec<&str> = facts.server.slots.iter().map(String::as_str).take(NAMED_MAX).collect();
    if others.is_empty() {
        return fault;
    }
    let (mend, others) = (&fault.mend, others.join(", "));
    let mend =
        format!("{mend}. If another slot of this server is meant, correct source.slot: {others}");
    Fault { mend, ..fault }
}

pub(super) fn judge(facts: &SourceFacts, settings: &SourceSettings) -> Vec<Finding> {
    let Some(slot) = &facts.slot else {
        return vec![Finding::fail(missing(facts, &settings.slot))];
    };
    if let Some(fault) = not_ours(slot, &facts.server.database) {
        return vec![Finding::fail(fault)];
    }
    let faults = [lost(slot), temporary(slot), two_phase(slot), ahead(slot, facts)];
    let mut findings: Vec<Finding> = faults.into_iter().flatten().map(Finding::fail).collect();
    if slot.wal_status.as_deref() == Some("unreserved") {
        findings.push(Finding::warn(
            "slot.unreserved",
            format!(
                "slot {} may lose its WAL at the next checkpoint: start the relay now, or raise \
                 max_slot_wal_keep_size and SELECT pg_catalog.pg_reload_conf()",
                slot.name
            ),
        ));
    }
    findings.extend(pinned(slot, facts, settings));
    findings.extend(idle_timeout(slot));
    findings.extend(not_synchronized(slot));
    findings.extend(own_on_standby(slot));
    match being_made(slot) {
        // A relay waits for it.
        Some(fault) => findings.insert(0, Finding::warn(fault.code, fault.what)),
        None if is_sound(&findings) => findings.insert(0, position(slot, facts)),
        None => {}
    }
    findings
}

/// Whether a relay could read on from the slot. Any other is replaced, or is somebody else's.
pub(super) fn is_usable(facts: &SourceFacts) -> bool {
    let is_ours =
        |slot: &&SlotFacts| not_ours(slot, &facts.server.database).is_none() && !slot.is_lost();
    facts.slot.as_ref().is_some_and(|slot| is_ours(&slot))
}

fn temporary(slot: &SlotFacts) -> Option<Fault> {
    let name = &slot.name;
    let (what, mend) = match slot.is_half_synchronized() {
        true => (
            format!(
                "slot {name} is not synchronized yet: if this standby is promoted now, Postgres drops the slot"
            ),
            "do not promote this standby before pg_replication_slots shows the slot with temporary = f; the log of the standby says what it waits for",
        ),
        false => (
            format!("slot {name} is temporary: it vanishes with the session that made it"),
            "end that session, then walrelay slot create",
        ),
    };
    slot.temporary.then(|| slot_problem("slot.temporary", what, mend))
}

fn two_phase(slot: &SlotFacts) -> Option<Fault> {
    let what = format!("slot {} decodes prepared transactions before they commit", slot.name);
    let renew = new_slot_commands(&slot.name);
    let mend = format!("when it has no lag (walrelay slot show): {renew}");
    slot.two_phase.then(|| slot_problem("slot.two-phase", what, mend))
}

/// Confirmed beyond the end of WAL: the server was restored from an older backup, or somebody else
/// has confirmed too much. Postgres would silently skip what is written up to that position.
fn ahead(slot: &SlotFacts, facts: &SourceFacts) -> Option<Fault> {
    let (name, confirmed, end) = (&slot.name, slot.confirmed_flush, facts.server.current_lsn);
    (confirmed > end && !facts.server.standby).then(|| {
        slot_problem(
            "slot.ahead",
            format!(
                "slot {name} has confirmed {confirmed}, beyond the end of WAL {end}: what is \
                 written up to there would be skipped"
            ),
            format!(
                "first stop jobs that delete outbox rows; {}, then publish what it never delivered by hand \
                 (docs/operations.md, \"A lost slot\")",
                new_slot_commands(name)
            ),
        )
    })
}

/// A transaction that is open for long, with WAL before the confirmed LSN that is kept for it.
fn pinned(slot: &SlotFacts, facts: &SourceFacts, settings: &SourceSettings) -> Option<Finding> {
    let oldest = facts.oldest_transaction.as_ref()?;
    let age_ms = oldest.age_ms.filter(|ms| Duration::from_millis(*ms) >= settings.pinned_after)?;
    let bytes = slot.confirmed_flush.bytes_since(slot.restart_lsn);
    let (title, age_s, mend) = (oldest.title(), age_ms / 1000, oldest.mend());
    (bytes >= PINNED_BYTES_MIN).then(|| {
        Finding::warn(
            "slot.pinned",
            format!(
                "Postgres keeps {} of WAL that slot {} has confirmed, as long as this is open: \
                 {title}, for {age_s} s; to end it: {mend}",
                binary_size(bytes),
                slot.name
            ),
        )
    })
}

/// When Postgres invalidates the slot because nobody reads it.
fn idle_timeout(slot: &SlotFacts) -> Option<Finding> {
    let (topic, idle) = ("slot.idle-timeout", slot.idle_timeout()?);
    let text = idle.text(&slot.name);
    Some(match idle.is_urgent() {
        false => Finding::ok(topic, text),
        true => Finding::warn(
            topic,
            format!(
                "{text}; start the relay, or ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_catalog.pg_reload_conf();"
            ),
        ),
    })
}

/// Warns of a slot on a standby that was not synchronized, as 19 says.
fn not_synchronized(slot: &SlotFacts) -> Option<Finding> {
    let reason = slot.slotsync_skip_reason()?;
    Some(Finding::warn(
        "slot.not-synchronized",
        format!(
            "this standby has not synchronized slot {0} the last time ({reason}): after a promotion it may stand further back, or not be there; \
             SELECT slotsync_skip_reason FROM pg_catalog.pg_replication_slots WHERE slot_name = {1}; names what holds it back",
            slot.name,
            quote_literal(&slot.name)
        ),
    ))
}

/// Warns of a slot that this standby has from when it was a primary.
fn own_on_standby(slot: &SlotFacts) -> Option<Finding> {
    slot.is_own_on_standby().then(|| {
        Finding::warn(
            "slot.not-synchronized",
            format!(
                "slot {0} is this standby's own, from when it was a primary: Postgres does not synchronize a slot of this name, and after a \
                 promotion it stands where it was then; on this server: walrelay slot drop {0}, and Postgres copies that of the primary",
                slot.name
            ),
        )
    })
}

fn position(slot: &SlotFacts, facts: &SourceFacts) -> Finding {
    let end = facts.server.current_lsn;
    let behind = binary_size(end.bytes_since(slot.confirmed_flush));
    let retained = binary_size(end.bytes_since(slot.restart_lsn));
    let reader = match slot.active_pid {
        Some(pid) => format!("read by pid {pid}: another relay would wait as a standby"),
        None => "idle".to_owned(),
    };
    let limit = match facts.server.max_slot_wal_keep_size.as_str() {
        "-1" => "without limit (max_slot_wal_keep_size = -1): if no relay confirms for long, the disk fills".to_owned(),
        size => format!("at most {size}, then the slot is lost (max_slot_wal_keep_size)"),
    };
    Finding::ok(
        "slot",
        format!(
            "slot {} at {}, {behind} behind, {reader}; it retains {retained} of WAL, \
             {limit}",
            slot.name, slot.confirmed_flush
        ),
    )
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
