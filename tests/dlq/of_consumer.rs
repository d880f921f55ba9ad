//! `walrelay dlq --from SERVICE.dlq`: dead letters that a consumer has written, and their way back to
//! that consumer alone.

use std::sync::Arc;

use walrelay::config::Config;
use walrelay_harness::BrokerKind;
use walrelay_harness::consumer::create_topic;
use walrelay_harness::rabbit::{Outcome, Properties, Queue, Rabbit, Value};

use super::fixture::DlqFixture;
use crate::dead_letters::fixture::{held, ids};
use crate::sinks::test_relay::{Event, TestRelay};
use crate::support::faults::{CliFixture, read};
use crate::support::{LIMIT, on_both_brokers, shared_kafka, shared_rabbitmq};

/// The topics that one service has made for itself, as `walrelay-inbox` makes it.
struct Service {
    name: String,
    bench: DlqFixture,
    /// Where its messages come from, and where a replay must lead.
    topic: String,
}

impl Service {
    fn new(kind: BrokerKind, name: &str) -> Service {
        let bench = DlqFixture::on(kind, name);
        let name = format!("{}.svc", bench.site.name);
        if kind == BrokerKind::Kafka {
            let brokers = shared_kafka().bootstrap();
            create_topic(&brokers, &format!("{name}.dlq"), 1, &[("retention.ms", "-1")]).unwrap();
            let topic = bench.site.name.clone();
            return Service { name, bench, topic };
        }
        let mut rabbit = Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap();
        let (dlx, dlq) = (format!("{name}.dlx"), format!("{name}.dlq"));
        rabbit.declare_exchange(&name, "fanout").unwrap();
        rabbit.declare_queue(&name, Queue::Quorum).unwrap();
        rabbit.bind(&name, &name, "").unwrap();
        rabbit.declare_exchange(&dlx, "fanout").unwrap();
        rabbit.declare_stream(&dlq).unwrap();
        rabbit.bind(&dlq, &dlx, "").unwrap();
        rabbit.close();
        // The routing key of the event is also that of the fixture's own queue, which stands for
        // another service: it must get nothing.
        let topic = bench.site.name.clone();
        Service { name, bench, topic }
    }

    fn dlq(&self) -> String {
        format!("{}.dlq", self.name)
    }

    fn config(&self) -> &Config {
        self.bench.config()
    }

    /// Writes dead letters with exactly these headers beside those of the event.
    fn write(&self, letters: &[(&str, Vec<(&str, String)>)]) {
        let mut relay = TestRelay::open(Arc::clone(&self.config().sink));
        let (exchange, topic) = match self.bench.site.kind() {
            BrokerKind::Kafka => (String::new(), self.dlq()),
            BrokerKind::RabbitMq => (format!("{}.dlx", self.name), self.topic.clone()),
        };
        for (id, own) in letters {
            let theirs = [("id", (*id).to_owned()), ("lsn", "16/B374D848".to_owned())];
            let headers = theirs.iter().chain(own);
            let headers = headers.map(|(name, value)| ((*name).to_owned(), value.clone().into()));
            let (exchange, headers) = (exchange.clone(), headers.collect());
            let value = Some(b"{\"seq\": 1}".to_vec());
            relay.publish(&Event {
                exchange,
                value,
                headers,
                ..Event::new(&topic, *id).keyed("k")
            });
            relay.settle();
        }
    }

    /// The headers that the crate writes.
    fn letter<'a>(&self, id: &'a str, class: &str) -> (&'a str, Vec<(&'static str, String)>) {
        let exchange = match self.bench.site.kind() {
            BrokerKind::Kafka => None,
            BrokerKind::RabbitMq => Some(("dlq-original-exchange", self.name.clone())),
        };
        let mut own = vec![
            ("dlq-event-id", id.to_owned()),
            ("dlq-original-topic", self.topic.clone()),
            ("dlq-error-class", class.to_owned()),
            ("dlq-error-msg", "no such customer".to_owned()),
            ("dlq-attempts", "4".to_owned()),
            ("dlq-failed-at", "2026-11-21T13:10:31.227183Z".to_owned()),
            ("dlq-first-failed-at", "2026-11-21T13:10:01.000000Z".to_owned()),
            ("dlq-lsn", "16/B374D848".to_owned()),
            ("dlq-commit-ts", "2026-11-21T13:10:00.000000Z".to_owned()),
            ("dlq-relay", format!("{}@host", self.name)),
        ];
        own.extend(exchange);
        (id, own)
    }

    fn walrelay(&self, words: &[&str]) -> crate::support::faults::Ended {
        self.bench.dlq(&[words, &["--from", &self.dlq()]].concat())
    }

    #[track_caller]
    fn open(&self) -> Vec<String> {
        self.bench.ids(&["--from", &self.dlq()])
    }

    /// Ids of what the service would read.
    fn arrived(&self) -> Vec<String> {
        let records = match self.bench.site.kind() {
            BrokerKind::Kafka => held(self.bench.site.reader()),
            BrokerKind::RabbitMq => held(self.bench.site.reader_of(&self.name)),
        };
        records.into_iter().map(|record| record.id).collect()
    }
}

on_both_brokers!(letters_of_a_consumer_are_listed_shown_discarded_and_replayed_to_it_alone, rabbitmq in soak);

fn letters_of_a_consumer_are_listed_shown_discarded_and_replayed_to_it_alone(kind: BrokerKind) {
    let service = Service::new(kind, "dlq_from");
    let letter = |id| service.letter(id, "consumer.permanent");
    // GIVEN letters of a consumer, and one that is none
    service.write(&[
        letter("c1"),
        ("foreign", vec![("dlq-error-class", "forged".to_owned())]),
        letter("c2"),
        letter("c3"),
    ]);
    // THEN they are not among the relay's, and the option stands before or after the action
    assert!(service.bench.ids(&[]).is_empty());
    assert_eq!(service.open(), ["c1", "c2", "c3"]);
    let before = service.bench.dlq(&["--from", &service.dlq(), "list"]);
    let words = ["consumer.permanent", "3 dead letters", "1 of them foreign"];
    before.assert_done().assert_says(&words);
    let shown = service.walrelay(&["show", "c1", "--payload"]);
    shown.assert_done().assert_says(&[
        "no such customer",
        "seq",
        &format!("{}@host", service.name),
    ]);
    // WHEN one is discarded and the others are replayed
    service.walrelay(&["discard", "c2", "--yes"]).assert_done();
    service
        .walrelay(&["replay", "--all", "--dry-run"])
        .assert_done()
        .assert_says(&["2 dead letters"]);
    let replayed = service.walrelay(&["replay", "--all"]);
    replayed.assert_done().assert_says(&["replayed 2 of 2 dead letters"]);
    // THEN they have come to the service, and to nobody else, and are resolved in its own topic
    assert_eq!(service.arrived(), ["c1", "c3"]);
    match kind {
        BrokerKind::RabbitMq => assert_eq!(held(service.bench.site.reader()), []),
        // Others read the topic, too, and see for whom it is.
        BrokerKind::Kafka => {
            for record in read(&[&service.topic]) {
                let wanted = ("dlq-replay-for".to_owned(), Some(service.name.clone().into_bytes()));
                assert!(record.headers.contains(&wanted), "{record:?}");
            }
        }
    }
    assert!(service.open().is_empty());
    let resolved = service.bench.list(&["--from", &service.dlq(), "--state", "replayed"]);
    assert_eq!(ids(&resolved), ["c1", "c3"]);
    assert_eq!(service.bench.records_read(), 0, "nothing is in the relay's own topic");
}

#[test]
fn a_letter_with_headers_that_the_relay_cannot_publish_hinders_no_other() {
    let service = Service::new(BrokerKind::RabbitMq, "dlq_from_large");
    // GIVEN a letter with headers that fill more than a frame of the relay, and one behind it
    let (_, own) = service.letter("c1", "consumer.permanent");
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value.as_str())));
    let large = ("large".to_owned(), Value::Bytes(vec![b'h'; 40 * 1024]));
    let headers = own.chain([large]).collect();
    let mut rabbit = Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap();
    rabbit.confirm().unwrap();
    let properties = Properties { headers, ..Properties::default() };
    let exchange = format!("{}.dlx", service.name);
    rabbit.publish((&exchange, &service.topic), &properties, b"large", true);
    rabbit.flush().unwrap();
    assert_eq!(rabbit.outcome(LIMIT).unwrap(), Some(Outcome::Acked(1, false)));
    service.write(&[service.letter("c2", "consumer.permanent")]);
    // WHEN they are listed and shown THEN both can be read
    assert_eq!(service.open(), ["c1", "c2"]);
    service.walrelay(&["show", "c1"]).assert_done().assert_says(&["no such customer"]);
    // WHEN they are replayed THEN the second arrives, and the first alone is refused
    let ended = service.walrelay(&["replay", "--all"]);
    let words = [
        "the broker cannot carry the event (1, first event ",
        "event c1: key, headers and other properties have 4",
    ];
    ended.assert_fault(1, "dead-letter.unfit", &words);
    assert_eq!(service.arrived(), ["c2"]);
    assert_eq!(service.open(), ["c1"]);
    // THEN it can be given up
    service.walrelay(&["discard", "c1", "--yes"]).assert_done();
    assert!(service.open().is_empty());
}

on_both_brokers!(a_consumer_that_is_not_there_is_told, rabbitmq in soak);

fn a_consumer_that_is_not_there_is_told(kind: BrokerKind) {
    let bench = DlqFixture::on(kind, "dlq_from_nobody");
    let nobody = format!("{}.nobody.dlq", bench.site.name);
    let ended = bench.dlq(&["list", "--from", &nobody]);
    ended.assert_fault(5, "sink.dead-letter-missing", &[&nobody, "is the name right?"]);
}

#[test]
fn from_is_refused_where_it_makes_no_sense() {
    let mut scene = CliFixture::bare("dlq_from_words");
    scene.sink = "[sink.kafka]\nbrokers = \"127.0.0.1:1\"\n".into();
    let code = "dead-letter.bad-from";
    let release = scene.walrelay(&["dlq", "release", "--all", "--from", "billing.dlq"]);
    release.assert_fault(2, code, &["parks no keys", "without --from"]);
    let odd = scene.walrelay(&["dlq", "--from", "bill/ing", "list"]);
    odd.assert_fault(2, code, &["bill/ing", "SERVICE.dlq"]);
}
