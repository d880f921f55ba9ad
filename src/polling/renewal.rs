//! Renews the claims of this process, over a connection of its own, so that nothing delays it, and looks
//! whether their rows are still there.
//!
//! A server that crashed with `synchronous_commit = off`, or a standby that has taken its place, may not
//! have the last claims: their rows are pending, and the next claim, of this process or another, takes
//! them again. Others can free or delete rows, too. So each new connection looks before it claims, and
//! each renewal afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::maintenance::millis;
use super::session::PollingSession;
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
    live: &[String],
    lapsed: &BTreeSet<String>,
) -> Result<i64, tokio_postgres::Error> {
    if live.is_empty() {
        return Ok(0);
    }
    let (client, quarter) = (session.client(), shared.lease.interval());
    client.execute(&shared.statements.renew, &[&live, &millis(quarter)]).await?;
    let mut held = shared.live.undecided();
    held.retain(|claim| !lapsed.contains(claim));
    // The renewal has passed over what is younger than a quarter of the lease.
    look_for_lost_rows(session, shared, &held, quarter * 3 / 2).await
}

/// Withdraws all rows of this process if some of these claims are gone. Returns how many rows were not
/// renewed for this long.
pub(super) async fn look_for_lost_rows(
    session: &PollingSession,
    shared: &PollingShared,
    claims: &[String],
    age: Duration,
) -> Result<i64, tokio_postgres::Error> {
    let known = shared.live.undecided_rows();
    let found = session.client().query(&shared.statements.held, &[&claims, &millis(age)]).await?;
    let mut in_progress = BTreeMap::new();
    let mut unrenewed = 0;
    for row in &found {
        in_progress.insert(row.try_get::<_, String>(0)?, row.try_get::<_, i64>(1)?);
        unrenewed += row.try_get::<_, i64>(2)?;
    }
    // What has been decided meanwhile may have been settled before the query.
    let still = shared.live.undecided_rows();
    let expected =
        still.iter().filter(|(claim, _)| known.contains_key(*claim) && claims.contains(claim));
    let gone: usize = expected
        .map(|(claim, rows)| {
            let found = in_progress.get(claim).copied().unwrap_or_default();
            rows.saturating_sub(usize::try_from(found).unwrap_or_default())
        })
        .sum();
    if gone > 0 {
        shared.lease.lose();
        tracing::warn!(
            code = "polling.claims-gone",
            rows = gone,
            "rows in hand do not belong to this process any more, perhaps because another server has taken over: it gives all its rows back"
        );
    }
    Ok(unrenewed)
}
