//! The notification service: one notification for each order.

use clap::Parser;
use tokio_postgres::Transaction;
use walrelay_example_system::{
    ConsumerOptions, Failed, OrderEvent, Telemetry, consume, record_handled,
};
use walrelay_inbox::{Failure, Handler, Message};

/// Notifies the customer of each order that was placed.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    consumer: ConsumerOptions,
}

struct Notifications;

#[derive(Debug, thiserror::Error)]
enum NotificationError {
    #[error("the event cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
}

impl Handler for Notifications {
    type Error = NotificationError;

    async fn handle(
        &self,
        message: &Message,
        transaction: &Transaction<'_>,
    ) -> Result<(), NotificationError> {
        let event: OrderEvent = serde_json::from_slice(message.value().unwrap_or_default())?;
        let event_type = message.event_type().unwrap_or_default();
        if event_type == "OrderPlaced" {
            // The row is what a sender of mails would work on: a mail itself cannot be rolled back.
            let sql = "insert into notifications (order_id, customer) values ($1, $2)";
            transaction.execute(sql, &[&event.order_id, &event.customer]).await?;
        }
        record_handled(transaction, event_type, &event).await?;
        Ok(())
    }

    fn classify(&self, error: &NotificationError) -> Failure {
        match error {
            NotificationError::Unreadable(_) => Failure::Permanent,
            NotificationError::Postgres(error) => walrelay_inbox::classify(error),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let options = Options::parse();
    let _telemetry = Telemetry::start("notification-service")?;
    consume("notification", &options.consumer, Notifications).await
}
