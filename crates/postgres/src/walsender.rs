//! State of the walsender of the stream, seen from a second connection: a walsender that decodes a
//! large transaction neither sends nor reads.
//!
//! A walsender reads status updates in every turn of its loop: while it waits (for WAL, for room in
//! its socket, for a standby) and after each WAL record. So one that waits there, or whose position
//! moves, reads them. Any other is busy, with a transaction that it decodes or with the storage or
//! lock that it needs for that.

use tokio_postgres::Client;
use tokio_postgres::types::{PgLsn, Type};
pub use walrelay_core::source::walsender::Activity;

use walrelay_base::lsn::Lsn;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    /// `wait_event_type` and `wait_event`.
    wait: Option<(String, String)>,
    sent_lsn: Option<PgLsn>,
}

const SQL: &str = "
SELECT a.wait_event_type, a.wait_event, r.sent_lsn, s.confirmed_flush_lsn
FROM pg_catalog.pg_replication_slots s
JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
LEFT JOIN pg_catalog.pg_stat_replication r ON r.pid = s.active_pid
WHERE s.slot_name = $1 AND s.active_pid = $2";

/// Observes walsenders; two observations of one tell whether its position moves.
#[derive(Debug, Default)]
pub struct WalsenderObserver {
    last: Option<(i32, Process)>,
}

impl WalsenderObserver {
    /// Observes the walsender with this process id, which streams from `slot`, and the position
    /// that it has confirmed there.
    pub async fn observe(
        &mut self,
        client: &Client,
        slot: &str,
        pid: i32,
    ) -> Result<(Activity, Lsn), tokio_postgres::Error> {
        let rows = client.query_typed(SQL, &[(&slot, Type::TEXT), (&pid, Type::INT4)]).await?;
        let Some(row) = rows.first() else { return Ok((self.judge(pid, None), Lsn::ZERO)) };
        let kind: Option<String> = row.try_get(0)?;
        let event: Option<String> = row.try_get(1)?;
        let process = Process { wait: kind.zip(event), sent_lsn: row.try_get(2)? };
        let confirmed: Option<PgLsn> = row.try_get(3)?;
        let confirmed = confirmed.map_or(Lsn::ZERO, |it| Lsn::from_wire(it.into()));
        Ok((self.judge(pid, Some(process)), confirmed))
    }

    fn judge(&mut self, pid: i32, now: Option<Process>) -> Activity {
        let before = self.last.take().filter(|(before, _)| *before == pid);
        let Some(now) = now else { return Activity::Gone };
        self.last = Some((pid, now.clone()));
        match (now.wait, before) {
            // `Activity` is a wait in the main loop, `Client` one in which it serves its socket.
            (Some((kind, _)), _) if kind == "Activity" || kind == "Client" => Activity::Waiting,
            (_, None) => Activity::Unclear,
            (_, Some((_, before))) if before.sent_lsn != now.sent_lsn => Activity::Moving,
            (Some((kind, event)), _) => Activity::Busy(format!("{kind}:{event}")),
            (None, _) => Activity::Busy("CPU".to_owned()),
        }
    }
}

#[cfg(test)]
#[path = "walsender_tests.rs"]
mod tests;
