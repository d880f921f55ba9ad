//! A topic that refuses the time of records holds events back: the clocks are to blame, and no event.

use walrelay_harness::BrokerKind;
use walrelay_harness::consumer::alter_topic;

use super::fixture::{DeadLetterFixture, held};
use crate::support::{LIMIT, metric, shared_kafka, wait_until};

const OLDEST: &str = "message.timestamp.before.max.ms";

#[test]
fn a_refused_time_holds_events_and_makes_no_dead_letter() {
    let case =
        DeadLetterFixture::on(BrokerKind::Kafka, "refused_time", "backoff_cap = \"200ms\"\n", "");
    let (name, brokers) = (case.site.name.clone(), shared_kafka().bootstrap());
    let (mut relay, reader) = (case.relay(), case.site.reader());
    // GIVEN a topic for which every record is too old, as it is where the clock of the relay is
    // behind
    alter_topic(&brokers, &name, OLDEST, "0").unwrap();
    // WHEN the relay publishes to it
    case.insert(&name, 0..5, 1, 200);
    // THEN it says what the broker refuses, and gives no event up after any number of attempts
    let log = || std::fs::read_to_string(relay.log_file()).unwrap();
    let retries = || metric(&relay, "outbox_retries_total").unwrap_or_default();
    wait_until("more attempts than events may have", || retries() > 30.0);
    assert!(log().contains("the clocks of this host"), "{}", relay.tail(40));
    assert_eq!(metric(&relay, "outbox_dlq_published_total"), Some(0.0));
    // AND only the first refusal costs the sink, with which other topics are published
    assert_eq!(log().matches("building a new one").count(), 1, "{}", relay.tail(40));
    // WHEN the clocks agree again THEN all are published, in order, and no dead letter was written
    alter_topic(&brokers, &name, OLDEST, &i64::MAX.to_string()).unwrap();
    case.site.wait_confirmed(&mut relay, LIMIT);
    let verdict = case.judge(&name, &held(reader), &[]);
    println!("{verdict}");
    verdict.assert_complete();
    assert_eq!(case.open(), Vec::<String>::new());
}
