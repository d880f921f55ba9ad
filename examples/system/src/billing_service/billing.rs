//! One event, in one transaction with the row that says that it was processed: an invoice is never
//! issued twice, whatever is delivered twice.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tokio_postgres::Transaction;
use walrelay_example_system::{OrderEvent, record_handled};
use walrelay_inbox::{Failure, Handler, Message};

/// How often a flaky payment fails before it is taken.
const FLAKY_FAILURES: u32 = 2;
const SLOW: Duration = Duration::from_millis(300);

pub(crate) struct Billing {
    takes_poison: bool,
    down_for: Duration,
    first_payment: OnceLock<Instant>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BillingError {
    #[error("the event cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("the payment was refused")]
    Refused,
    #[error("the payment provider is busy")]
    Busy,
    #[error("the payment provider is down")]
    Down,
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
}

impl Handler for Billing {
    type Error = BillingError;

    async fn handle(
        &self,
        message: &Message,
        transaction: &Transaction<'_>,
    ) -> Result<(), BillingError> {
        let event: OrderEvent = serde_json::from_slice(message.value().unwrap_or_default())?;
        let event_type = message.event_type().unwrap_or_default();
        if event_type == "OrderPlaced" {
            self.charge(&event, message.failed_attempts()).await?;
            let sql = "insert into invoices (order_id, amount_cents) values ($1, $2)";
            transaction.execute(sql, &[&event.order_id, &event.amount_cents]).await?;
        }
        record_handled(transaction, event_type, &event).await?;
        Ok(())
    }

    /// Which failures may pass, and which are not the event's fault. Of Postgres the default knows that.
    fn classify(&self, error: &BillingError) -> Failure {
        match error {
            BillingError::Unreadable(_) => Failure::Permanent,
            BillingError::Refused => Failure::PermanentAs("billing.refused".into()),
            BillingError::Busy => Failure::Transient,
            BillingError::Down => Failure::Hold,
            BillingError::Postgres(error) => walrelay_inbox::classify(error),
        }
    }
}

impl Billing {
    pub(crate) fn new(takes_poison: bool, down_for: Duration) -> Billing {
        Billing { takes_poison, down_for, first_payment: OnceLock::new() }
    }

    /// Stands for a payment provider, and fails as one does.
    async fn charge(&self, event: &OrderEvent, attempts: u32) -> Result<(), BillingError> {
        if self.first_payment.get_or_init(Instant::now).elapsed() < self.down_for {
            return Err(BillingError::Down);
        }
        match event.payment.as_str() {
            "poison" if !self.takes_poison => Err(BillingError::Refused),
            "flaky" if attempts < FLAKY_FAILURES => Err(BillingError::Busy),
            "slow" => {
                tokio::time::sleep(SLOW).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
