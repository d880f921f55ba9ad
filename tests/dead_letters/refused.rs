//! A topic that takes less than the relay's batches: what fits is published, in smaller ones.

use walrelay_harness::BrokerKind;
use walrelay_harness::relay::RelayProcess;

use super::fixture::{DeadLetterFixture, held};
use crate::support::LIMIT;

/// Most bytes of a batch of the topic.
const BATCH_BYTES_MAX: u64 = 20_000;
/// One that does not know the limit, one that asks for it, and one more where the answer is late.
const SINKS_MAX: usize = 3;

/// How often the relay has given up its sink, and with it the session and its producers.
pub(super) fn sinks_lost(relay: &RelayProcess) -> usize {
    let log = std::fs::read_to_string(relay.log_file()).unwrap();
    log.lines().filter(|line| line.contains("building a new one")).count()
}

/// A transaction of a thousand events of 230 bytes.
fn insert_small(case: &DeadLetterFixture, transaction: u64) {
    case.site.execute(&format!(
        "insert into outbox select gen_random_uuid(), '{}', 'k' || i % 100, 'created',
         jsonb_build_object('seq', {transaction} * 1000 + i, 'x', repeat('y', 200))
         from generate_series(1, 1000) i order by i",
        case.site.name
    ));
}

fn insert_large(case: &DeadLetterFixture, key: &str, seq: u64) -> String {
    case.site.value(&format!(
        "insert into outbox values (gen_random_uuid(), '{}', '{key}', 'created',
         jsonb_build_object('seq', {seq}, 'x', repeat('y', 48000))) returning id",
        case.site.name
    ))
}

#[test]
fn a_topic_that_refuses_the_batches_gets_all_that_fits_in_smaller_ones() {
    let case = DeadLetterFixture::on(BrokerKind::Kafka, "refused", "", "");
    // GIVEN a topic that takes less than a batch, and three events that are larger than it takes
    case.site.limit_route(&case.site.name, BATCH_BYTES_MAX);
    let reader = case.site.reader();
    let mut large = Vec::new();
    for transaction in 0..10 {
        insert_small(&case, transaction);
        if transaction % 4 == 1 {
            large.push(insert_large(&case, "k7", transaction * 1000 + 1001));
        }
    }
    // WHEN they are relayed
    let mut relay = case.relay();
    let took = case.site.wait_confirmed(&mut relay, 2 * LIMIT);
    // THEN all others are there, in order, and dead letters are exactly the three
    let verdict = case.judge(&case.site.name, &held(reader), &large);
    let lost = sinks_lost(&relay);
    println!("{verdict}; {lost} sinks lost, within {took:?}");
    verdict.assert_exact(20_000);
    assert_eq!(verdict.distinct, 10_000);
    assert_eq!(case.open(), large);
    // THEN the limit was learned, and not met again and again
    assert!(lost <= SINKS_MAX, "{lost} sinks lost\n{}", relay.tail(40));
}
