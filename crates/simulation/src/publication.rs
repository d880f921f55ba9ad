//! The publication as the catalog shows it, and what a machine remembers of it.

use serde_json::json;
use std::cell::RefCell;
use walrelay_core::base::error::{Exit, Fault};
use walrelay_core::base::lsn::Lsn;
use walrelay_core::doctor::fingerprint::{
    KeptPublication, PublicationFingerprint, PublicationLook,
};
use walrelay_core::relay::stops::Present;
use walrelay_core::source::publication::PublishedFacts;

use crate::options::SinkKind;
use crate::postgres::{COLUMNS, Postgres, TABLE};
use crate::process::settings;

const VERSION: u32 = 170_000;

/// The publication in one of its states, and why it holds back rows then.
struct Found {
    state: (bool, u32),
    fingerprint: PublicationFingerprint,
    withholding_fault: Option<Fault>,
}

thread_local! {
    static LAST: RefCell<Option<Found>> = const { RefCell::new(None) };
}

/// Calls `then` with the publication as it is now. It is read anew only where it has changed: all
/// relays have the same settings.
fn with_found<T>(postgres: &Postgres, then: impl FnOnce(&Found) -> T) -> T {
    let state = (postgres.publishes, postgres.publication_changes);
    LAST.with_borrow_mut(|last| {
        let found = match last.take() {
            Some(found) if found.state == state => found,
            _ => {
                let fingerprint = PublicationFingerprint::new(facts(postgres), VERSION);
                let withholding_fault =
                    fingerprint.withholding_fault(&settings(SinkKind::Direct).source);
                Found { state, fingerprint, withholding_fault }
            }
        };
        then(last.insert(found))
    })
}

/// As it is found now.
pub(crate) fn look(postgres: &Postgres) -> PublicationLook {
    PublicationLook {
        system_id: postgres.system_id.clone(),
        wal_end: Lsn::from_wire(postgres.end),
        found: with_found(postgres, |found| found.fingerprint.clone()),
    }
}

/// Why it holds back rows now, if it does.
pub(crate) fn withholding_fault(postgres: &Postgres) -> Option<Fault> {
    with_found(postgres, |found| found.withholding_fault.clone())
}

/// The fault of a publication that was changed while the slot stood still, so that nobody knows whether for
/// the first time.
pub(crate) fn in_doubt(postgres: &Postgres, decoded: Option<i64>) -> Option<Fault> {
    if !postgres.is_publication_young(decoded) {
        return None;
    }
    let confirmed = postgres.slot.as_ref().map_or(0, |slot| slot.confirmed);
    let what = "the table was put into the publication while the slot stood still";
    let fault = Fault::new(Exit::Source, "publication.recreated", what, "", "");
    Some(fault.standing(Lsn::from_wire(confirmed), Lsn::from_wire(postgres.end)))
}

fn facts(postgres: &Postgres) -> PublishedFacts {
    let member = postgres.publishes.then_some(5_000 + postgres.publication_changes);
    let columns: Vec<_> =
        COLUMNS.iter().map(|(name, _)| json!({ "name": name, "generated": false })).collect();
    let entries = member.map(|_| json!({ "schema": "public", "name": "outbox" }));
    let own =
        json!({ "kind": "publication", "about": 0, "name": "walrelay", "oid": 4_000, "xmin": 600 });
    let covers = member.map(|oid| {
        json!({ "kind": "table", "about": TABLE, "name": "public.outbox", "oid": oid, "xmin": oid })
    });
    let entries: Vec<_> = entries.into_iter().collect();
    let rows: Vec<_> = [own].into_iter().chain(covers).collect();
    let facts = json!({
        "publication": {
            "all_tables": false, "insert": true, "update": false, "delete": false,
            "truncate": false, "via_root": true, "owner": "owner",
            "tables": entries,
            "rows": rows,
        },
        "tables": [{
            "schema": "public", "name": "outbox", "schema_exists": true, "kind": "r",
            "has_update_trigger": false,
            "member_oid": member, "columns": columns, "similar": [],
        }],
    });
    serde_json::from_value(facts).unwrap_or_else(|error| panic!("the facts: {error}"))
}

/// The state of Postgres for a person who acknowledges a stop.
pub(crate) fn present(postgres: &Postgres) -> Result<Present, Fault> {
    if let Some(fault) = withholding_fault(postgres) {
        return Err(fault);
    }
    let look = look(postgres);
    let digest = look.found.digest();
    Ok(Present {
        publication: KeptPublication::of(&look, &settings(SinkKind::Direct).source),
        digest,
        system_id: look.system_id,
        timeline: postgres.timeline,
        wal_end: look.wal_end,
    })
}
