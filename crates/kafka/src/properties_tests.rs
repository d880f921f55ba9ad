use super::*;

#[test]
fn what_breaks_a_promise_is_refused_with_its_reason() {
    let broken = [
        ("acks", "1"),
        ("acks", "0"),
        ("request.required.acks", "1"),
        ("enable.idempotence", "false"),
        ("max.in.flight", "6"),
        ("max.in.flight.requests.per.connection", "1000000"),
        ("message.timeout.ms", "300000"),
        ("delivery.timeout.ms", "120000"),
        ("retries", "0"),
        ("message.send.max.retries", "3"),
        ("partitioner", "random"),
        ("transactional.id", "relay"),
        ("bootstrap.servers", "kafka:9092"),
        ("metadata.broker.list", "kafka:9092"),
        ("queuing.strategy", "lifo"),
        ("enable.gapless.guarantee", "false"),
        ("delivery.report.only.error", "true"),
        ("dr_cb", "x"),
        ("dr_msg_cb", "x"),
        ("topic.partitioner", "random"),
        ("topic.message.timeout.ms", "5000"),
    ];
    for (name, value) in broken {
        let rule = broken_rule(name, value);
        let explained = rule.is_some_and(|rule| !rule.reason.is_empty() && !rule.mend.is_empty());
        assert!(explained, "{name} = {value}");
    }
}

#[test]
fn what_keeps_the_promises_passes() {
    let kept = [
        ("acks", "all"),
        ("acks", "-1"),
        ("enable.idempotence", "TRUE"),
        ("max.in.flight", "5"),
        ("max.in.flight.requests.per.connection", "1"),
        ("message.timeout.ms", "0"),
        ("retries", "2147483647"),
        ("partitioner", "murmur2"),
        ("partitioner", "consistent_random"),
        ("queuing.strategy", "fifo"),
        ("enable.gapless.guarantee", "true"),
        ("compression.type", "lz4"),
        ("linger.ms", "5"),
        ("message.copy.max.bytes", "0"),
        ("message.max.bytes", "10485760"),
        ("allow.auto.create.topics", "true"),
        ("sasl.password", "random"),
        ("security.protocol", "SASL_SSL"),
    ];
    for (name, value) in kept {
        assert!(broken_rule(name, value).is_none(), "{name} = {value}");
    }
}
