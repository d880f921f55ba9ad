//! Orders, each placed, paid and shipped, by several clients at once; all of it from one seed.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use walrelay_measure::load::steady;

use super::client::OrderClient;
use crate::Result;
use crate::kit::{Rng, lock};

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
        let report = Mutex::new(OrderReport::default());
        let clients: Vec<_> = (0..self.clients).map(|_| self.client(&report)).collect();
        let rate = self.orders as f64 / self.last.as_secs_f64();
        let pace = steady(clients, 0..self.orders, rate, &AtomicBool::new(false))?;
        let report = *lock(&report);
        Ok(OrderReport { orders: pace.events, elapsed: pace.elapsed, ..report })
    }

    /// Sends the requests of one order after the other.
    fn client(&self, report: &Mutex<OrderReport>) -> impl FnMut(u64) -> Result<()> + Send {
        let mut http = OrderClient::new(self.service);
        move |number| {
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
                let mut report = lock(report);
                report.repeated += reply.requests - 1;
                report.done_before += u64::from(reply.status == 200);
            }
            Ok(())
        }
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
