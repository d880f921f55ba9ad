//! The slot as it stands.

use super::{Facts, SlotFacts};
use crate::base::error::{Exit, Fault};
use crate::doctor::finding::Finding;
use crate::source::settings::SourceSettings;

pub(crate) fn judge(facts: &Facts, settings: &SourceSettings) -> Vec<Finding> {
    let Some(slot) = &facts.slot else {
        return vec![Finding::fail(missing(&settings.slot))];
    };
    if let Some(fault) = not_ours(slot, &facts.server.database) {
        return vec![Finding::fail(fault)];
    }
    let mut findings: Vec<Finding> =
        [lost(slot), temporary(slot), two_phase(slot), ahead(slot, facts)]
            .into_iter()
            .flatten()
            .map(Finding::fail)
            .collect();
    findings.extend(in_danger(slot));
    if findings.iter().all(|finding| finding.fault.is_none()) {
        findings.insert(0, standing(slot, facts));
    }
    findings
}

/// The slot is not there.
pub(crate) fn missing(name: &str) -> Fault {
    Fault::new(
        Exit::Slot,
        "slot.missing",
        format!("replication slot {name} does not exist"),
        "source.slot",
        "walrelay init (or, once the publication exists: walrelay slot create). If the slot was \
         there before, events written since it vanished are not in the new one: publish them \
         by hand (docs/operations.md, \"A lost slot\")",
    )
}

/// A slot of that name is there, and it cannot be the relay's.
fn not_ours(slot: &SlotFacts, database: &str) -> Option<Fault> {
    let fault = |code, what: String| {
        let mend = format!(
            "choose another name in source.slot, then walrelay init; if nobody needs this slot: \
             walrelay slot drop {}",
            slot.name
        );
        Some(Fault::new(Exit::Slot, code, what, "source.slot", mend))
    };
    let name = &slot.name;
    let Some(plugin) = &slot.plugin else {
        return fault("slot.physical", format!("slot {name} is physical, not logical"));
    };
    if plugin != "pgoutput" {
        return fault("slot.plugin", format!("slot {name} uses plugin {plugin}, not pgoutput"));
    }
    match &slot.database {
        Some(theirs) if theirs != database => fault(
            "slot.database",
            format!("slot {name} belongs to database {theirs}, not to {database}"),
        ),
        _ => None,
    }
}

fn lost(slot: &SlotFacts) -> Option<Fault> {
    let gone = slot.wal_status.as_deref() == Some("lost");
    if !gone && slot.invalidation_reason.is_none() {
        return None;
    }
    let reason = slot.invalidation_reason.as_deref().unwrap_or("wal_removed");
    Some(lost_slot(&slot.name, reason, &slot.confirmed_flush))
}

/// The commands that put a new slot in the place of one that cannot be used any more.
pub(crate) fn renewal(slot: &str) -> String {
    format!("walrelay slot drop {slot} && walrelay slot create")
}

/// Postgres has given the slot up.
pub(crate) fn lost_slot(slot: &str, reason: &str, confirmed: &dyn std::fmt::Display) -> Fault {
    Fault::new(
        Exit::Slot,
        "slot.lost",
        format!(
            "slot {slot} is lost ({reason}): Postgres removed WAL after {confirmed} that it still needed"
        ),
        "source.slot",
        format!(
            "{}, then publish what it never delivered by hand (docs/operations.md, \"A lost slot\"). To keep it from \
             happening again raise max_slot_wal_keep_size and alarm on safe_wal_size (config/alerts.yml)",
            renewal(slot)
        ),
    )
}

fn temporary(slot: &SlotFacts) -> Option<Fault> {
    slot.temporary.then(|| {
        Fault::new(
            Exit::Slot,
            "slot.temporary",
            format!("slot {} is temporary: it vanishes with the session that made it", slot.name),
            "source.slot",
            "end that session, then walrelay slot create",
        )
    })
}

fn two_phase(slot: &SlotFacts) -> Option<Fault> {
    slot.two_phase.then(|| {
        Fault::new(
            Exit::Slot,
            "slot.two-phase",
            format!("slot {} decodes prepared transactions before they commit", slot.name),
            "source.slot",
            format!("when it has no lag (walrelay slot show): {}", renewal(&slot.name)),
        )
    })
}

/// Confirmed beyond the end of WAL: the server went back in time, or someone confirmed too much.
/// Either way Postgres would silently skip what is written until it gets there.
fn ahead(slot: &SlotFacts, facts: &Facts) -> Option<Fault> {
    let end = facts.server.current_lsn;
    (slot.confirmed_flush > end && !facts.server.standby).then(|| {
        Fault::new(
            Exit::Slot,
            "slot.ahead",
            format!(
                "slot {} has confirmed {}, beyond the end of WAL {end}: what is written up to \
                 there would be skipped",
                slot.name, slot.confirmed_flush
            ),
            "source.slot",
            format!(
                "{}, then publish what it never delivered by hand (docs/operations.md, \"A lost slot\")",
                renewal(&slot.name)
            ),
        )
    })
}

fn in_danger(slot: &SlotFacts) -> Option<Finding> {
    (slot.wal_status.as_deref() == Some("unreserved")).then(|| {
        Finding::warn(
            "slot.unreserved",
            format!(
                "slot {} may lose its WAL at the next checkpoint: start the relay now, or raise \
                 max_slot_wal_keep_size and SELECT pg_catalog.pg_reload_conf()",
                slot.name
            ),
        )
    })
}

fn standing(slot: &SlotFacts, facts: &Facts) -> Finding {
    let end = facts.server.current_lsn;
    let behind = end.bytes_since(slot.confirmed_flush);
    let retained = end.bytes_since(slot.restart_lsn);
    let reader = match slot.active_pid {
        Some(pid) => format!("read by pid {pid}: another relay would wait as a standby"),
        None => "idle".to_owned(),
    };
    let limit = match facts.server.max_slot_wal_keep_size.as_str() {
        "-1" => "without limit (max_slot_wal_keep_size = -1)".to_owned(),
        size => format!("at most {size}"),
    };
    Finding::ok(
        "slot",
        format!(
            "slot {} at {}, {behind} bytes behind, {reader}; it retains {retained} bytes of WAL, \
             {limit}",
            slot.name, slot.confirmed_flush
        ),
    )
}
