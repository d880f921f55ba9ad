//! `make demo SYSTEM=1`: orders from HTTP to two consumers, with what goes wrong on the way.
//!
//! The services are those of `examples/system`. Each scene waits for a fact in their databases, and the
//! demo ends with success only if all of them came true.

use std::time::{Duration, Instant};

use super::screen::Screen;
use super::waterfall;
use crate::kit::{now_us, wait_at_most, wait_for};
use crate::system::{
    BILLING, Effects, NOTIFICATIONS, OF_BILLING, OrderClient, OrderLoad, Payments, System,
    SystemOptions, effects,
};
use crate::{BrokerKind, HarnessError, Result};
use walrelay_measure::numbers;

const LEVELS: &str = "1s,2s,4s";
const LIMIT: Duration = Duration::from_secs(60);
const LOAD: Duration = Duration::from_secs(12);
const ORDERS: u64 = 300;

/// True when every order had the effects it should have.
pub(super) fn run(broker: BrokerKind) -> Result<bool> {
    let screen = Screen::new();
    screen.head("walrelay demo: an order service, a relay, two consumers");
    let began = Instant::now();
    let mut system = System::start(&SystemOptions { broker, levels: LEVELS, traced: true })?;
    system.broker.sync_declarations()?;
    let service = |name: &str, address| format!("  {name:<22}http://{address}/metrics");
    screen.say(&format!(
        "PostgreSQL on port {}, {} on port {}, all ready in {}\n{}\n{}\n{}\n  {:<22}http://{}/",
        system.postgres.port(),
        system.broker.kind().name(),
        system.broker.port(),
        numbers::duration(began.elapsed()),
        service("order-service", system.orders.address()),
        service("notification-service", system.notifications.address()),
        service("billing-service", system.billing.address()),
        "walrelay",
        system.relay.admin(),
    ));
    let mut show = Show { screen: &screen, system: &mut system };
    show.one_order()?;
    show.retries()?;
    show.dead_letter()?;
    show.kills()
}

/// Kills a part of the system with SIGKILL, and starts it again.
type Kill = fn(&mut System) -> Result<()>;

struct Show<'a> {
    screen: &'a Screen,
    system: &'a mut System,
}

impl Show<'_> {
    fn one_order(&mut self) -> Result<()> {
        self.screen.head("one order, from HTTP to both consumers");
        let trace = self.place("ada-1", "card")?;
        self.wait_invoice("ada-1")?;
        self.wait_notification("ada-1")?;
        self.show_trace(trace, 2)
    }

    fn retries(&mut self) -> Result<()> {
        self.screen.head(&format!(
            "the payment provider is busy twice: billing tries again after 1 s and 2 s (here the levels \
             are {LEVELS}; the default is 30s,1m,5m)"
        ));
        let trace = self.place("bob-1", "flaky")?;
        self.post("/orders/bob-1/pay", "")?;
        self.post("/orders/bob-1/ship", "")?;
        self.wait_invoice("bob-1")?;
        let sql = "select count(*) from handled_events where order_id = 'bob-1'";
        self.system.wait_for(BILLING, sql, "3", LIMIT)?;
        let sql = "select string_agg(event_type, ', ' order by position) from handled_events
                   where order_id = 'bob-1'";
        let order = self.system.postgres.sql(BILLING, sql)?;
        self.show_trace(trace, 4)?;
        self.screen.say(&format!("  what came later has waited; handled by billing: {order}"));
        expect(&order, "OrderPlaced, OrderPaid, OrderShipped")
    }

    fn dead_letter(&mut self) -> Result<()> {
        self.screen.head("a payment that billing refuses: a dead letter at once");
        self.place("eve-1", "poison")?;
        self.wait_notification("eve-1")?;
        let listed = wait_for("the dead letter", LIMIT, Duration::from_millis(200), || {
            Ok(Some(self.dlq(&["list"])?).filter(|listed| listed.contains("billing.refused")))
        })?;
        self.screen.command(&format!("walrelay dlq list {}", OF_BILLING.join(" ")));
        self.screen.say(listed.trim_end());
        self.screen.head("billing is fixed and started again, and the dead letter replayed");
        self.screen.command("billing-service --fixed");
        self.mend()?;
        self.replay()?;
        self.wait_invoice("eve-1")?;
        self.screen.say("  eve-1 has its invoice; its notification was not sent again");
        let sql = "select count(*) from notifications where order_id = 'eve-1'";
        expect(&self.system.postgres.sql(NOTIFICATIONS, sql)?, "1")
    }

    fn kills(&mut self) -> Result<bool> {
        let seconds = LOAD.as_secs();
        self.screen.head(&format!(
            "{ORDERS} orders in {seconds} s, each placed, paid and shipped; every part is killed (kill -9)"
        ));
        let load = OrderLoad {
            service: self.system.orders.address(),
            orders: ORDERS,
            clients: 4,
            last: LOAD,
            payments: Payments { poison: 0, flaky: 20, slow: 10 },
            seed: now_us().unsigned_abs(),
        };
        let began = Instant::now();
        let loading = std::thread::spawn(move || load.run());
        let kills: [(&str, Kill); 6] = [
            ("order-service", |system| system.orders.restart()),
            ("billing-service", |system| system.billing.restart()),
            ("relay", |system| system.relay.restart()),
            ("notification-service", |system| system.notifications.restart()),
            (self.system.broker.kind().name(), |system| {
                system.broker.kill9()?;
                system.broker.start_again()
            }),
            ("PostgreSQL", |system| {
                system.postgres.kill9()?;
                system.postgres.start_again()
            }),
        ];
        for (name, kill) in kills {
            self.screen.event(&format!("{name} killed"));
            kill(self.system)?;
            std::thread::sleep(LOAD.mul_f64(1.0 / 8.0));
        }
        let report = super::joined(loading)?;
        self.screen.say(&format!(
            "{} orders written; {} requests were repeated, {} of them had been done",
            report.orders, report.repeated, report.done_before
        ));
        self.revive()?;
        let found = self.settled()?;
        self.screen
            .head(&format!("settled {} after the first order", numbers::duration(began.elapsed())));
        self.screen.say(found.to_string().trim_end());
        let exact = found.are_exact();
        self.screen.say(&if exact {
            self.screen
                .good("each order has one notification and one invoice, in the order of its events")
        } else {
            self.screen.bad("not exact")
        });
        Ok(exact)
    }

    /// The effects of the orders once they are as they should be, or at the end of the time for
    /// that.
    fn settled(&mut self) -> Result<Effects> {
        let mut found = Effects::default();
        wait_at_most(LIMIT, Duration::from_millis(200), || {
            found = effects(&self.system.postgres)?;
            Ok(found.are_exact().then_some(()))
        })?;
        Ok(found)
    }

    /// Starts again what has ended because something else was dead, as a supervisor would.
    fn revive(&mut self) -> Result<()> {
        let System { orders, notifications, billing, relay, .. } = &mut *self.system;
        for service in [orders, notifications, billing] {
            if !service.is_running() {
                service.restart()?;
            }
        }
        if !relay.is_running() {
            relay.restart()?;
        }
        self.system.wait_ready()
    }

    fn mend(&mut self) -> Result<()> {
        self.system.billing.start_with(&["--fixed"])?;
        self.system.billing.wait_ready(LIMIT)
    }

    fn replay(&self) -> Result<()> {
        self.screen.command(&format!("walrelay dlq replay --all {}", OF_BILLING.join(" ")));
        let said = self.dlq(&["replay", "--all"])?;
        self.screen.say(said.trim_end());
        Ok(())
    }

    fn dlq(&self, words: &[&str]) -> Result<String> {
        self.system.commands().run(&[&["dlq"], words, &OF_BILLING].concat())
    }

    /// Places an order; the id of its trace.
    fn place(&self, order_id: &str, payment: &str) -> Result<[u8; 16]> {
        let body = format!(
            r#"{{"order_id": "{order_id}", "customer": "{}", "amount_cents": 4200, "payment": "{payment}"}}"#,
            order_id.trim_end_matches("-1")
        );
        let before = self.system.collector.spans().len();
        self.post("/orders", &body)?;
        wait_for(format!("the span of {order_id}"), LIMIT, Duration::from_millis(20), || {
            let spans = self.system.collector.spans();
            let own = spans.iter().skip(before).find(|span| span.name == "POST /orders");
            Ok(own.and_then(|span| span.trace_id.as_slice().try_into().ok()))
        })
    }

    fn post(&self, path: &str, body: &str) -> Result<()> {
        let address = self.system.orders.address();
        let data = if body.is_empty() { String::new() } else { format!(" -d '{body}'") };
        self.screen.command(&format!("curl -X POST http://{address}{path}{data}"));
        let reply = OrderClient::new(address).post(path, body)?;
        self.screen.say(&format!("{}", reply.status));
        Ok(())
    }

    fn wait_invoice(&self, order_id: &str) -> Result<()> {
        let sql = format!("select count(*) from invoices where order_id = '{order_id}'");
        self.system.wait_for(BILLING, &sql, "1", LIMIT)
    }

    fn wait_notification(&self, order_id: &str) -> Result<()> {
        let sql = format!("select count(*) from notifications where order_id = '{order_id}'");
        self.system.wait_for(NOTIFICATIONS, &sql, "1", LIMIT)
    }

    /// Draws the trace once so many spans of consumers have come.
    fn show_trace(&self, trace: [u8; 16], of_consumers: usize) -> Result<()> {
        let mut lines = Vec::new();
        let found = wait_at_most(LIMIT, Duration::from_millis(50), || {
            lines = waterfall::lines(&self.system.collector.received().resources, &trace);
            let found = lines.iter().filter(|line| line.name.ends_with(" process")).count();
            let is_published = lines.iter().any(|line| line.name == "outbox.publish");
            Ok((found >= of_consumers && is_published).then_some(()))
        })?;
        let drawn = waterfall::draw(&lines);
        found.ok_or_else(|| {
            let what = format!("{of_consumers} spans of consumers\n{drawn}");
            HarnessError::Late { what, limit: LIMIT }
        })?;
        self.screen.say(&format!("\n{drawn}"));
        Ok(())
    }
}

fn expect(found: &str, wanted: &str) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(HarnessError::Other(format!("{found} instead of {wanted}")))
}
