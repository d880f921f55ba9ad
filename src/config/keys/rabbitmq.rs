//! The keys of `[sink.rabbitmq]`.

use super::{Absent, HOUR_MS, Row, SECOND_MS, within_ms};
use crate::config::kind::{Kind, rule};

pub(super) const ROWS: &[Row] = &[
    (
        "url",
        Kind::Url,
        Absent::Refused,
        "Where RabbitMQ is: `amqps://user:password@mq1:5671,mq2:5671/vhost`; hosts are tried in order, no path is the virtual host `/`. A secret: it may hold a password.",
    ),
    (
        "exchange",
        Kind::Template,
        Absent::Value("outbox.events"),
        "Exchange that events are published to; `${column}` takes it from the row. Empty is the default exchange, where the routing key is a queue's name.",
    ),
    (
        "exchange_type",
        Kind::Text(rule::EXCHANGE_TYPE),
        Absent::Value("topic"),
        "Type of the exchange that `init` makes and `check` and `run` insist on: `topic`, `direct`, `fanout`, `headers` or one that begins with `x-`.",
    ),
    (
        "queues.*",
        Kind::Text(rule::BINDING_KEY),
        Absent::Means("none"),
        "Queues that `init` makes and binds and that `check` and `run` insist on: name to binding key.",
    ),
    (
        "queue_type",
        Kind::Choice(&["quorum", "classic", "stream"]),
        Absent::Value("quorum"),
        "Type of a queue that `init` makes; always durable.",
    ),
    (
        "auth",
        Kind::Choice(&["plain", "external"]),
        Absent::Value("plain"),
        "How to log in: `plain` by user and password of the URL, `external` by the client certificate.",
    ),
    (
        "ca_file",
        Kind::Text(rule::FILLED),
        Absent::Means("the system's roots"),
        "PEM file of the certificates that may sign the server's.",
    ),
    (
        "cert_file",
        Kind::Text(rule::FILLED),
        Absent::Means("no client certificate"),
        "PEM file of the client certificate and its chain.",
    ),
    (
        "key_file",
        Kind::Text(rule::FILLED),
        Absent::Means("no client certificate"),
        "PEM file of the client certificate's key, unencrypted.",
    ),
    (
        "server_name",
        Kind::Text(rule::FILLED),
        Absent::Means("the host of the URL"),
        "Name that the server's certificate must bear, also sent as SNI.",
    ),
    (
        "heartbeat",
        within_ms(SECOND_MS, HOUR_MS),
        Absent::Value("10s"),
        "A connection on which nothing was heard for twice as long is taken for dead. Whole seconds count.",
    ),
    (
        "connect_timeout",
        within_ms(SECOND_MS / 10, HOUR_MS),
        Absent::Value("5s"),
        "Longest attempt to connect to one host, and to log in there.",
    ),
    (
        "management_url",
        Kind::Url,
        Absent::Means("bindings are not looked at"),
        "Where `check` can see bindings and policies: `http://user:password@mq:15672`; without a user, that of `url`. A secret.",
    ),
];
