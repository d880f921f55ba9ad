//! WAL that was written while there was no publication.
//!
//! Changes are decoded with the catalog of their time. Up to 17 Postgres ends the stream at such a
//! change, from 18 on it leaves the change out with a warning. Neither passes with time: only a new
//! slot gets behind that part of the WAL.

use super::super::connect::ServerError;
use super::super::quote::quote_table;
use super::super::settings::SourceSettings;
use crate::base::error::{Exit, Fault};
use crate::doctor::source::slot::renewal;

/// From 18 on: the stream goes on without the publication. The text may be translated.
#[must_use]
pub fn is_skipped(notice: &ServerError) -> bool {
    notice.sqlstate == "55000" || notice.routine == "LoadPublications"
}

/// The publication did not exist when a part of the WAL was written that the slot still has to
/// deliver.
#[must_use]
pub fn fault(settings: &SourceSettings, server_said: &str) -> Fault {
    let (slot, publication) = (&settings.slot, &settings.publication);
    Fault::new(
        Exit::Source,
        "publication.missing",
        format!(
            "publication {publication} did not exist when the next part of the WAL was written: \
             the rows of that time cannot be read from slot {slot}: {server_said}"
        ),
        format!("slot {slot}, publication {publication}"),
        format!(
            "if the publication is not there: walrelay init\nthe slot cannot read past this part of \
             the WAL\n{}",
            mend(settings)
        ),
    )
}

/// How to get behind a gap without losing a row.
pub(super) fn mend(settings: &SourceSettings) -> String {
    format!(
        "make a new slot: {}\nthen publish by hand \
         what the slot has not delivered (docs/operations.md, \"A lost slot\"): {}\nthen start again",
        renewal(&settings.slot),
        publish_by_hand(settings)
    )
}

/// The statement that writes the rows of a time once more, with the same ids.
pub(super) fn publish_by_hand(settings: &SourceSettings) -> String {
    let statement = |table: String| {
        format!(
            "WITH moved AS (DELETE FROM {table} WHERE created_at >= 'TIME' RETURNING *) INSERT INTO \
             {table} SELECT * FROM moved ORDER BY created_at;"
        )
    };
    let tables = settings.outboxes.iter().map(|o| quote_table(&o.schema, &o.table));
    tables.map(statement).collect::<Vec<_>>().join(" ")
}
