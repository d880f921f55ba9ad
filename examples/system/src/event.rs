//! The payload of an order's events, as the order service writes and the consumers read it.

use serde::{Deserialize, Serialize};
use tokio_postgres::Transaction;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OrderEvent {
    pub order_id: String,
    pub customer: String,
    pub amount_cents: i64,
    /// How the customer pays. The billing service fails for some on purpose.
    pub payment: String,
    /// 1 for the first event of the order, and so on.
    pub version: i64,
}

/// Notes in the handler's own transaction that the event was handled. A real service has no need of
/// this table: it shows that each event was handled once, and those of an order in their order.
pub async fn record_handled(
    transaction: &Transaction<'_>,
    event_type: &str,
    event: &OrderEvent,
) -> Result<(), tokio_postgres::Error> {
    let sql = "insert into handled_events (order_id, event_type, version) values ($1, $2, $3)";
    transaction.execute(sql, &[&event.order_id, &event_type, &event.version]).await?;
    Ok(())
}
