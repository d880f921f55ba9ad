//! A RabbitMQ of smaller frames and messages than the relay would send: what does not fit is
//! dead-lettered before it is sent, and its dead letter fits.

use walrelay_harness::{RabbitMq, RabbitOptions};

use super::fixture::{DeadLetterFixture, held};
use crate::support::{LIMIT, shared_postgres, stop};

/// The least that RabbitMQ 4.1 and later agree on.
const FRAME_BYTES_MAX: usize = 8_192;
const BODY_BYTES_MAX: usize = 300_000;
/// How the broker notes a message that is too large.
const REFUSED: &str = "larger than configured max size";

#[test]
fn what_a_rabbitmq_of_small_frames_and_messages_does_not_take_is_dead_lettered_before_it_is_sent() {
    // GIVEN a broker of small frames and messages
    let extra_conf =
        format!("frame_max = {FRAME_BYTES_MAX}\nmax_message_size = {BODY_BYTES_MAX}\n");
    let options = RabbitOptions { extra_conf, ..RabbitOptions::default() };
    let rabbitmq = RabbitMq::start_with(&options).unwrap();
    let case = DeadLetterFixture::new(shared_postgres(), &rabbitmq, "small_frames", "", "");
    case.site.execute("alter table outbox alter id type text, add headers jsonb");
    let name = &case.site.name;
    let insert = |id: &str, key: &str, payload_bytes: usize, header_bytes: usize| {
        case.site.execute(&format!(
            "insert into outbox (id, aggregatetype, aggregateid, type, payload, headers)
             values ('{id}', '{name}', {key}, 't', jsonb_build_object('x', repeat('y', {payload_bytes})),
                     jsonb_build_object('h', repeat('h', {header_bytes}), 'small', 'kept'))"
        ));
    };
    let mut relay = case.relay();
    // WHEN rows fill many frames, or do not fit into one, or not into a message
    insert("many-frames", "'k'", BODY_BYTES_MAX - 100, 6_000);
    insert("headers", "'k'", 10, 8_100);
    insert("key", "repeat('k', 10000)", 10, 10);
    insert("both", "repeat('k', 10000)", BODY_BYTES_MAX, 30_000);
    for number in 0..3 {
        insert(&format!("body-{number}"), "'k'", BODY_BYTES_MAX, 10);
    }
    insert("last", "'k'", 10, 10);
    // THEN the slot moves over them
    case.site.wait_confirmed(&mut relay, LIMIT);
    let mut expected = [
        ("headers", "rabbitmq.headers-too-large"),
        ("key", "rabbitmq.headers-too-large"),
        ("both", "rabbitmq.headers-too-large"),
        ("body-0", "rabbitmq.message-too-large"),
        ("body-1", "rabbitmq.message-too-large"),
        ("body-2", "rabbitmq.message-too-large"),
    ];
    let letters = case.list(&[]);
    let found = letters.iter().map(|letter| {
        (letter["event_id"].as_str().unwrap(), letter["error_class"].as_str().unwrap())
    });
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    // THEN each says which limit, and what is larger
    let reason = |id: &str| {
        let out = case.must(&["dlq", "show", id, "--json"]).out;
        let shown: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
        shown["error_msg"].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned()
    };
    for (id, sizes) in [("headers", ["8192", "8064"]), ("body-2", ["300009", "300000"])] {
        let reason = reason(id);
        assert!(sizes.iter().all(|size| reason.contains(size)), "{id}: {reason}");
    }
    // THEN the broker was asked to learn its limit, and not for each: a connection that is lost for
    // another reason, as on a busy machine, forgets it
    let refused = rabbitmq.recent_log().matches(REFUSED).count();
    assert!((1..3).contains(&refused), "{refused} refusals");
    let published: Vec<String> =
        held(case.site.reader()).into_iter().map(|record| record.id).collect();
    assert_eq!(published, ["many-frames", "last"]);
    stop(&mut relay);
}
