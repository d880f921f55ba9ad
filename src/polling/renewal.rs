//! Renews the claims of this process, over a connection of its own, so that nothing delays it, and looks
//! whether their rows are still there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::lost_rows;
use super::session::{PollingSession, millis};
use super::worker::{PollingShared, Reconnect, broke};
use crate::base::error::Fault;

/// Renews the claims of this process until the future is dropped.
pub(crate) async fn renew(shared: Arc<PollingShared>) -> Result<(), Fault> {
    let mut reconnect = Reconnect::new(&shared);
    let quarter = shared.lease.interval();
    // Claims that the lease has run out for: the loop has withdrawn their rows.
    let mut lapsed = BTreeSet::new();
    let mut is_locked = false;
    loop {
        let session = reconnect.session().await?;
        let error = loop {
            let (began, live) = (Instant::now(), shared.live.all());
            if began >= shared.lease.until() {
                lapsed = live.iter().cloned().collect();
            }
            match session.within(quarter, renew_once(&session, &shared, &live, &lapsed)).await {
                Ok(0) => {
                    shared.lease.renewed(began);
                    reconnect.succeeded();
                    is_locked = false;
                }
                Ok(rows) if !std::mem::replace(&mut is_locked, true) => {
                    tracing::warn!(
                        code = "polling.claims-locked",
                        rows,
                        "another transaction has locked rows of this process, whose claims cannot be renewed: it gives all its rows back if that lasts for half a lease"
                    );
                }
                Ok(_) => {}
                Err(error) => break error,
            }
            // The time of the answer belongs to the interval.
            tokio::time::sleep_until((began + quarter).into()).await;
        };
        broke(&shared, &error)?;
    }
}

/// Renews these claims. Returns how many rows that may still be published were locked for long, and can
/// soon be another process's; not of claims that have lapsed.
async fn renew_once(
    session: &PollingSession,
    shared: &PollingShared,
    claims: &[String],
    lapsed: &BTreeSet<String>,
) -> Result<i64, tokio_postgres::Error> {
    if claims.is_empty() {
        return Ok(0);
    }
    let (client, quarter) = (&session.sql.client, shared.lease.interval());
    client.execute(&shared.statements.renew, &[&claims, &millis(quarter)]).await?;
    let mut held = shared.live.undecided();
    held.retain(|claim| !lapsed.contains(claim));
    // The renewal has passed over what is younger than a quarter of the lease.
    let PollingShared { statements, live, lease, .. } = shared;
    lost_rows::look(session, statements, live, lease, &held, quarter * 3 / 2).await
}
