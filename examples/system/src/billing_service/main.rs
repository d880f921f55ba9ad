//! The billing service: an invoice for each order, exactly one. It can be made to fail.

mod billing;

use std::time::{Duration, Instant};

use clap::Parser;
use walrelay_example_system::{ConsumerOptions, Failed, Telemetry, consume, duration};

use self::billing::Billing;

/// Issues an invoice for each order that was placed.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    consumer: ConsumerOptions,
    /// Takes the payments that are otherwise refused ("poison"): the version in which the bug is mended.
    #[arg(long)]
    mended: bool,
    /// The payment provider is down for so long after the start.
    #[arg(long, value_parser = duration, default_value = "0s")]
    down_for: Duration,
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let options = Options::parse();
    let _telemetry = Telemetry::start("billing-service")?;
    let down_until = Instant::now() + options.down_for;
    let billing = Billing { takes_poison: options.mended, down_until };
    consume("billing", &options.consumer, billing).await
}
