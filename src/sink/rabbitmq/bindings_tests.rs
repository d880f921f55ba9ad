use serde_json::json;

use super::*;

#[test]
fn a_topic_matches_as_the_broker_does_it() {
    for (pattern, key) in [
        ("a.b", "a.b"),
        ("#", ""),
        ("#", "a.b.c"),
        ("a.#", "a"),
        ("a.#", "a.b.c"),
        ("#.c", "c"),
        ("#.c", "a.b.c"),
        ("a.*.c", "a.b.c"),
        ("a.#.c", "a.c"),
        ("a.#.b.#", "a.x.b.b"),
        ("*", "a"),
        ("a.*", "a."),
        ("", ""),
        ("#.#.#.#.#.#.x", "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.x"),
    ] {
        assert!(topic_matches(pattern, key), "{pattern} {key}");
    }
    for (pattern, key) in [
        ("a.b", "a"),
        ("a", "a.b"),
        ("*", ""),
        ("*", "a.b"),
        ("a.*", "a"),
        ("a.*.c", "a.c"),
        ("#.c", "a.b"),
        ("a.#", "b.a"),
        ("", "a"),
        ("A", "a"),
    ] {
        assert!(!topic_matches(pattern, key), "{pattern} {key}");
    }
}

#[test]
fn what_is_reached_depends_on_the_type() {
    let bindings = read(&json!([
        { "destination_type": "queue", "destination": "q", "routing_key": "a.*" },
        { "destination_type": "exchange", "destination": "x", "routing_key": "b" },
        { "no": "binding" },
    ]));
    assert_eq!(bindings.len(), 2);
    assert!(bindings[0].to_queue && !bindings[1].to_queue);
    assert_eq!(reach("topic", &bindings, "a.b"), Reach::Bound);
    assert_eq!(reach("topic", &bindings, "b"), Reach::Bound);
    assert_eq!(reach("topic", &bindings, "c"), Reach::Unbound);
    assert_eq!(reach("direct", &bindings, "a.b"), Reach::Unbound);
    assert_eq!(reach("direct", &bindings, "a.*"), Reach::Bound);
    assert_eq!(reach("fanout", &bindings, "c"), Reach::Bound);
    assert_eq!(reach("headers", &bindings, "c"), Reach::Unknown);
    assert_eq!(reach("x-consistent-hash", &bindings, "c"), Reach::Unknown);
    assert_eq!(reach("fanout", &[], "c"), Reach::Unbound);
}

#[test]
fn queues_that_lose_events_are_told() {
    let told = |queue: Json| doubts(&queue).join("\n");
    let sound = json!({ "name": "q", "durable": true, "auto_delete": false, "arguments": {} });
    assert_eq!(told(sound), "");
    let bad = told(json!({
        "name": "q", "durable": false, "auto_delete": true, "exclusive": true,
        "arguments": { "x-max-length": 5, "x-message-ttl": 1 },
        "effective_policy_definition": { "expires": 9 },
    }));
    let words = ["not durable", "last consumer", "made it", "max-length with", "ttl", "expires"];
    for word in words {
        assert!(bad.contains(word), "{word}: {bad}");
    }
    let rejecting = json!({
        "name": "q", "durable": true, "arguments": { "x-overflow": "reject-publish" },
        "effective_policy_definition": { "max-length-bytes": 5 },
    });
    assert_eq!(told(rejecting), "");
    let stream = json!({
        "name": "q", "durable": true, "type": "stream", "arguments": { "x-max-length-bytes": 5 },
    });
    assert_eq!(told(stream), "");
}
