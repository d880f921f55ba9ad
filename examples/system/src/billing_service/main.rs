//! The billing service: an invoice for each order, exactly one. It can be made to fail.

mod billing;

use std::time::Duration;

use clap::Parser;
use walrelay_example_system::{ConsumerOptions, Failed, Telemetry, consume, duration};

use self::billing::Billing;

/// Issues an invoice for each order that was placed.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    consumer: ConsumerOptions,
    /// Accepts the payments that are otherwise refused ("poison"), as a version without the bug does
    #[arg(long)]
    fixed: bool,
    /// How long the payment provider is down, from the first payment after the start on.
    #[arg(long, value_parser = duration, default_value = "0s")]
    down_for: Duration,
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let options = Options::parse();
    let _telemetry = Telemetry::start("billing-service")?;
    let billing = Billing::new(options.fixed, options.down_for);
    consume("billing", &options.consumer, billing).await
}
