//! Orders and their events. Each function is one transaction: either the order has changed and the
//! event will be published, or neither.

use serde::Deserialize;
use tokio_postgres::{Client, Transaction};
use walrelay_example_system::OrderEvent;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NewOrder {
    /// Chosen by the client, which repeats a request with the same id.
    pub(crate) order_id: String,
    pub(crate) customer: String,
    pub(crate) amount_cents: i64,
    pub(crate) payment: String,
}

/// The most bytes of an id, so that it fits an index of Postgres.
const ID_BYTES_MAX: usize = 200;

impl NewOrder {
    /// Reads the body of a request. What Postgres would refuse is an error for the client to correct.
    pub(crate) fn read(body: &[u8]) -> Result<NewOrder, String> {
        let order: NewOrder = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let NewOrder { order_id, customer, amount_cents, payment } = &order;
        for (name, text) in [("order_id", order_id), ("customer", customer), ("payment", payment)] {
            if text.is_empty() {
                return Err(format!("{name} is empty"));
            }
            if text.contains('\0') {
                return Err(format!("{name} has a NUL character"));
            }
            if text.len() > ID_BYTES_MAX {
                return Err(format!("{name} is longer than {ID_BYTES_MAX} bytes"));
            }
        }
        if *amount_cents < 0 {
            return Err(format!("amount_cents is negative: {amount_cents}"));
        }
        Ok(order)
    }
}

pub(crate) enum Outcome {
    Done,
    /// The request is a repetition; nothing was written.
    DoneBefore,
    /// A step that this one follows has not been taken.
    TooEarly,
    NoSuchOrder,
}

#[derive(Clone, Copy)]
pub(crate) enum Step {
    Pay,
    Ship,
}

impl Step {
    /// Status before and after, and the event.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Step::Pay => ("placed", "paid", "OrderPaid"),
            Step::Ship => ("paid", "shipped", "OrderShipped"),
        }
    }
}

pub(crate) async fn place(
    client: &mut Client,
    order: &NewOrder,
    traceparent: Option<String>,
) -> Result<Outcome, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    let sql = "insert into orders (order_id, customer, amount_cents, payment, status, version)
               values ($1, $2, $3, $4, 'placed', 1) on conflict (order_id) do nothing";
    let NewOrder { order_id, customer, amount_cents, payment } = order;
    if transaction.execute(sql, &[order_id, customer, amount_cents, payment]).await? == 0 {
        return Ok(Outcome::DoneBefore);
    }
    let event = OrderEvent {
        order_id: order_id.clone(),
        customer: customer.clone(),
        amount_cents: *amount_cents,
        payment: payment.clone(),
        version: 1,
    };
    emit(&transaction, "OrderPlaced", &event, traceparent).await?;
    transaction.commit().await?;
    Ok(Outcome::Done)
}

pub(crate) async fn advance(
    client: &mut Client,
    order_id: &str,
    step: Step,
    traceparent: Option<String>,
) -> Result<Outcome, tokio_postgres::Error> {
    let (before, after, event_type) = step.names();
    let transaction = client.transaction().await?;
    // The update locks the order until the commit: two changes of one order commit one after the other,
    // and so do their events.
    let sql = "update orders set status = $2, version = version + 1
               where order_id = $1 and status = $3
               returning customer, amount_cents, payment, version";
    let Some(row) = transaction.query_opt(sql, &[&order_id, &after, &before]).await? else {
        let sql = "select status = $2 or $2 = 'paid' and status = 'shipped'
                   from orders where order_id = $1";
        let done = transaction.query_opt(sql, &[&order_id, &after]).await?;
        return Ok(match done.map(|row| row.get(0)) {
            Some(true) => Outcome::DoneBefore,
            Some(false) => Outcome::TooEarly,
            None => Outcome::NoSuchOrder,
        });
    };
    let event = OrderEvent {
        order_id: order_id.to_owned(),
        customer: row.get(0),
        amount_cents: row.get(1),
        payment: row.get(2),
        version: row.get(3),
    };
    emit(&transaction, event_type, &event, traceparent).await?;
    transaction.commit().await?;
    Ok(Outcome::Done)
}

/// Writes the outbox row. The order's id is the key: consumers get the events of an order in the order
/// of their commits.
async fn emit(
    transaction: &Transaction<'_>,
    event_type: &str,
    event: &OrderEvent,
    traceparent: Option<String>,
) -> Result<(), tokio_postgres::Error> {
    let payload = serde_json::json!(event).to_string();
    let sql = "insert into outbox (aggregatetype, aggregateid, type, payload, traceparent)
               values ('order', $1, $2, $3::text::jsonb, $4)";
    transaction.execute(sql, &[&event.order_id, &event_type, &payload, &traceparent]).await?;
    Ok(())
}
