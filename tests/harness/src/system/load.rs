//! Orders, each placed, paid and shipped, by several clients at once; all of it from one seed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::client::OrderClient;
use crate::kit::Rng;
use crate::{HarnessError, Result};

/// How many of a thousand orders make the billing service fail, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Payments {
    /// For good.
    pub poison: u64,
    /// At the first attempts.
    pub flaky: u64,
    pub slow: u64,
}

#[derive(Clone, Debug)]
pub struct OrderLoad {
    pub service: SocketAddr,
    pub orders: u64,
    pub clients: u64,
    /// The last order begins after this time.
    pub last: Duration,
    pub payments: Payments,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct OrderReport {
    pub orders: u64,
    /// Requests that were repeated because they had no answer, or a failure.
    pub repeated: u64,
    /// The part of them whose first request had been done after all.
    pub done_before: u64,
    pub elapsed: Duration,
}

impl OrderLoad {
    pub fn run(&self) -> Result<OrderReport> {
        let began = Instant::now();
        let mut report = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients)
                .map(|client| scope.spawn(move || self.client(client, began)))
                .collect();
            clients.into_iter().try_fold(OrderReport::default(), |mut sum, client| {
                let one = client.join().unwrap_or_else(|_| {
                    Err(HarnessError::Other("a client of the orders panicked".into()))
                })?;
                sum.orders += one.orders;
                sum.repeated += one.repeated;
                sum.done_before += one.done_before;
                Ok::<_, HarnessError>(sum)
            })
        })?;
        report.elapsed = began.elapsed();
        Ok(report)
    }

    fn client(&self, client: u64, began: Instant) -> Result<OrderReport> {
        let mut http = OrderClient::new(self.service);
        let mut report = OrderReport::default();
        for number in (client..self.orders).step_by(usize::try_from(self.clients).unwrap_or(1)) {
            let due = self.last.mul_f64(number as f64 / self.orders as f64);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            let id = format!("o-{number:06}");
            let order = format!(
                r#"{{"order_id": "{id}", "customer": "c-{}", "amount_cents": {}, "payment": "{}"}}"#,
                number % 97,
                100 + number % 9_900,
                self.payment(number)
            );
            let requests = [
                ("/orders".to_owned(), order.as_str()),
                (format!("/orders/{id}/pay"), ""),
                (format!("/orders/{id}/ship"), ""),
            ];
            for (path, body) in requests {
                let reply = http.post(&path, body)?;
                report.repeated += reply.requests - 1;
                report.done_before += u64::from(reply.status == 200);
            }
            report.orders += 1;
        }
        Ok(report)
    }

    fn payment(&self, number: u64) -> &'static str {
        let Payments { poison, flaky, slow } = self.payments;
        match Rng::fork(self.seed, number).below(1_000) {
            draw if draw < poison => "poison",
            draw if draw < poison + flaky => "flaky",
            draw if draw < poison + flaky + slow => "slow",
            _ => "card",
        }
    }
}
