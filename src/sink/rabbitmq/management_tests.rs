use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::base::secret::Secret;

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
    let bindings: Vec<ExchangeBinding> = serde_json::from_value(json!([
        { "destination_type": "queue", "destination": "q", "routing_key": "a.*", "source": "s" },
        { "destination_type": "exchange", "destination": "x", "routing_key": "b", "source": "s" },
    ]))
    .unwrap();
    assert!(bindings[0].to_queue() && !bindings[1].to_queue());
    assert_eq!(routability("topic", &bindings, "a.b"), Routability::Bound);
    assert_eq!(routability("topic", &bindings, "b"), Routability::Bound);
    assert_eq!(routability("topic", &bindings, "c"), Routability::Unbound);
    assert_eq!(routability("direct", &bindings, "a.b"), Routability::Unbound);
    assert_eq!(routability("direct", &bindings, "a.*"), Routability::Bound);
    assert_eq!(routability("fanout", &bindings, "c"), Routability::Bound);
    assert_eq!(routability("headers", &bindings, "c"), Routability::Unknown);
    assert_eq!(routability("x-consistent-hash", &bindings, "c"), Routability::Unknown);
    assert_eq!(routability("fanout", &[], "c"), Routability::Unbound);
}

#[test]
fn queues_that_lose_events_are_told() {
    let told = |queue: Json| queue_warnings(&queue).join("\n");
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

fn settings(management: &str, login: RabbitLogin) -> RabbitSettings {
    let management = ManagementUri::parse(management).unwrap();
    let (vhost, management) = ("/".to_owned(), Some(management));
    RabbitSettings { vhost, management, login, ..RabbitSettings::default() }
}

#[test]
fn a_request_carries_its_login_and_an_encoded_path() {
    let plain = || RabbitLogin::Plain("relay".to_owned(), Secret::new("pw"));
    let request = |settings: &RabbitSettings| {
        ManagementApi::of(settings).unwrap().request("exchanges", &["a b%/ü"]).unwrap()
    };
    let sent = request(&settings("http://mq:1/x", plain()));
    assert_eq!(sent.uri(), "/x/api/exchanges/%2F/a%20b%25%2F%C3%BC");
    assert_eq!(sent.headers()[header::HOST], "mq:1");
    assert_eq!(sent.headers()[header::AUTHORIZATION], "Basic cmVsYXk6cHc=");
    let own = request(&settings("http://a:b@mq", plain()));
    assert_eq!(own.headers()[header::AUTHORIZATION], "Basic YTpi");
    let none = request(&settings("http://mq", RabbitLogin::External));
    assert!(!none.headers().contains_key(header::AUTHORIZATION));
}

/// What the API's client makes of such an answer.
fn answered(answer: &str) -> Result<Json, String> {
    let answer = answer.to_owned();
    let test = async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _request = stream.read(&mut [0; 4096]).await;
            drop(stream.write_all(answer.as_bytes()).await);
        });
        let settings = settings(&uri, RabbitLogin::External);
        ManagementApi::of(&settings).unwrap().get("queues", &["q"]).await
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

#[test]
fn a_body_is_read_whatever_tells_its_end() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nx: y\r\n\r\n[1]",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\n[1\r\n1\r\n]\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\n[1]",
    ] {
        assert_eq!(answered(answer), Ok(json!([1])), "{answer:?}");
    }
}

#[test]
fn what_is_no_answer_is_told_as_what_it_is() {
    let status = |status: &str| format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
    let large = format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(ANSWER_BYTES_MAX + 1));
    for (answer, told) in [
        (status("401"), "the login was refused"),
        (status("403"), "the login was refused"),
        (status("404"), "it answered 404"),
        (status("302"), "it answered 302"),
        (status("200"), "not the JSON"),
        ("AMQP\0\0\x09\x01\r\n\r\n".to_owned(), "invalid HTTP version"),
        ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n".to_owned(), "invalid HTTP header"),
        ("HTTP/1.1 200 OK\r\n".to_owned(), "closed before message completed"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}".to_owned(), "end of file"),
        (large, "length limit exceeded"),
    ] {
        let error = answered(&answer).unwrap_err();
        assert!(error.contains(told), "{told}: {error}");
        assert!(error.contains("was asked for queues/q: "), "{error}");
    }
}
