//! A real RabbitMQ behind a proxy; a place is an exchange and a durable queue of one name.

use std::sync::Arc;
use std::time::Duration;

use walrelay::sink::Broker;
use walrelay_harness::proxy::Proxy;
use walrelay_harness::rabbit::{Delivery, Queue, Rabbit, Value};
use walrelay_harness::{RabbitMq, RabbitOptions};

use super::fixture::{Arrived, SinkFixture};
use crate::sinks::section;
use crate::sinks::test_relay::Event;

const MESSAGE_BYTES_MAX: usize = 2_000_000;
const KEY: &str = "here";
const LATER: &str = "later";

pub(crate) struct RabbitFixture {
    rabbitmq: RabbitMq,
    proxy: Proxy,
}

impl RabbitFixture {
    pub(crate) fn start() -> RabbitFixture {
        let extra_conf = format!("max_message_size = {MESSAGE_BYTES_MAX}");
        let options = RabbitOptions { extra_conf, ..RabbitOptions::default() };
        let rabbitmq = RabbitMq::start_with(&options).unwrap();
        let proxy = Proxy::start(rabbitmq.port()).unwrap();
        RabbitFixture { rabbitmq, proxy }
    }

    fn admin(&self) -> Rabbit {
        Rabbit::open(&self.rabbitmq.amqp_url()).unwrap()
    }
}

impl SinkFixture for RabbitFixture {
    fn broker(&self) -> Arc<dyn Broker> {
        section::rabbitmq(self.proxy.port, Duration::from_secs(2))
    }

    fn place(&mut self, name: &str) -> Event {
        let mut admin = self.admin();
        admin.declare_exchange(name, "topic").unwrap();
        admin.declare_queue(name, Queue::Classic).unwrap();
        admin.bind(name, name, KEY).unwrap();
        admin.close();
        Event { exchange: name.to_owned(), ..Event::new(KEY, "") }
    }

    fn count(&mut self, place: &Event) -> usize {
        let mut admin = self.admin();
        let count = admin.message_count(&place.exchange).unwrap();
        admin.close();
        usize::try_from(count).unwrap()
    }

    fn take(&mut self, place: &Event) -> Vec<Arrived> {
        let mut admin = self.admin();
        let taken = admin.take(&place.exchange).unwrap();
        admin.close();
        taken.into_iter().map(arrived).collect()
    }

    /// AMQP has no null, and no order of headers.
    fn normal(&self, arrived: Arrived) -> Arrived {
        let Arrived { key, value, mut headers } = arrived;
        headers.sort();
        Arrived { key, value: Some(value.unwrap_or_default()), headers }
    }

    fn poison(&mut self, event: Event) -> Event {
        Event { value: Some(vec![b'x'; MESSAGE_BYTES_MAX + 1]), ..event }
    }

    fn refuse_for_now(&mut self, event: Event) -> Option<Event> {
        Some(Event { topic: LATER.to_owned(), ..event })
    }

    fn provide(&mut self, place: &Event) {
        let mut admin = self.admin();
        admin.bind(&place.exchange, &place.exchange, LATER).unwrap();
        admin.close();
    }

    fn lose_answers(&mut self) {
        self.proxy.lose_answers();
    }

    fn cut(&mut self) {
        self.proxy.cut();
    }

    fn stall(&mut self) {
        self.proxy.stall();
    }

    fn go_on(&mut self) {
        self.proxy.go_on();
    }

    /// A node that is killed soon after it confirmed a binding may come back without it.
    fn keep(&self) {
        self.rabbitmq.sync_declarations().unwrap();
    }

    fn kill(&mut self) {
        self.rabbitmq.kill9().unwrap();
    }

    fn revive(&mut self) {
        self.rabbitmq.start_again().unwrap();
    }

    fn connections(&self) -> usize {
        self.proxy.open()
    }
}

fn arrived(delivery: Delivery) -> Arrived {
    let own = |(name, value): (String, Value)| match value {
        Value::Bytes(bytes) => (name, bytes),
        other => panic!("header {name} is {other:?}"),
    };
    let headers = delivery.properties.headers.into_iter().map(own);
    let (keys, headers): (Vec<_>, Vec<_>) = headers.partition(|(name, _)| name == "key");
    let key = keys.into_iter().next().map(|(_, key)| key);
    Arrived { key, value: Some(delivery.body), headers }
}
