//! Looks whether the rows of this process's claims are still its own.
//!
//! A server that crashed with `synchronous_commit = off`, or a standby that has taken its place, may not
//! have the last claims: their rows are pending, and the next claim, of this process or another, takes
//! them again. Others can free or delete rows, too. So each new connection looks before it claims, and
//! each renewal afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use super::claim_lease::ClaimLease;
use super::live_claims::LiveClaims;
use super::session::{PollingSession, millis};
use super::statements::Statements;

/// Withdraws all rows of this process if rows of these claims are gone. Returns how many rows were not
/// renewed for this long.
pub(super) async fn look(
    session: &PollingSession,
    statements: &Statements,
    live: &LiveClaims,
    lease: &ClaimLease,
    claims: &[String],
    age: Duration,
) -> Result<i64, tokio_postgres::Error> {
    let known = live.undecided_rows();
    let found = session.sql.client.query(&statements.held, &[&claims, &millis(age)]).await?;
    let mut in_progress = BTreeMap::new();
    let mut unrenewed = 0;
    for row in &found {
        in_progress.insert(row.try_get::<_, String>(0)?, row.try_get::<_, i64>(1)?);
        unrenewed += row.try_get::<_, i64>(2)?;
    }
    // What has been decided meanwhile may have been settled before the query.
    let undecided = live.undecided_rows();
    let mut gone = 0;
    for claim in claims.iter().filter(|claim| known.contains_key(*claim)) {
        let expected = undecided.get(claim).copied().unwrap_or_default();
        let found = in_progress.get(claim).copied().unwrap_or_default();
        let missing = expected.saturating_sub(usize::try_from(found).unwrap_or_default());
        if missing > 0 {
            live.lose(claim);
            gone += missing;
        }
    }
    if gone > 0 {
        lease.lose();
        tracing::warn!(
            code = "polling.claims-gone",
            rows = gone,
            "rows in hand do not belong to this process any more, perhaps because another server has taken over: it gives all its rows back"
        );
    }
    Ok(unrenewed)
}
