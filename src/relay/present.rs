//! State of Postgres when a stop is acknowledged.

use tokio_postgres::Client;
use walrelay_core::relay::stops::Present;

use crate::base::error::Fault;
use crate::base::stop::RESUME;
use crate::doctor::fingerprint::{KeptPublication, PublicationLook};
use crate::doctor::source;
use crate::source::settings::SourceSettings;

/// The publication must be in order by now.
pub(super) async fn ask(client: &Client, settings: &SourceSettings) -> Result<Present, Fault> {
    let report = source::report(client, settings).await?;
    let found = source::fingerprint(&report.facts);
    if let Some(fault) = found.withholding_fault(settings) {
        let mend = format!("{}\nthen: {RESUME}", fault.mend);
        return Err(Fault { mend, ..fault });
    }
    let server = report.facts.server;
    let digest = found.digest();
    let look = PublicationLook { system_id: server.system_id, wal_end: server.current_lsn, found };
    Ok(Present {
        publication: KeptPublication::of(&look, settings),
        digest,
        system_id: look.system_id,
        timeline: server.timeline,
        wal_end: look.wal_end,
    })
}
