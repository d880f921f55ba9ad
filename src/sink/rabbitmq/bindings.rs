//! What the management API tells of bindings and queues: would an event arrive, and stay? Pure.

use serde_json::Value as Json;

/// One binding of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    /// A queue; else another exchange.
    pub(super) to_queue: bool,
    pub(super) destination: String,
    pub(super) key: String,
}

/// Is something bound for a routing key?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Bound,
    Unbound,
    /// It depends on more than the key.
    Unknown,
}

/// The bindings in an answer; what is no binding is left out.
pub(super) fn read(answer: &Json) -> Vec<Binding> {
    let text = |binding: &Json, name: &str| binding[name].as_str().map(str::to_owned);
    let bindings = answer.as_array().into_iter().flatten().filter_map(|binding| {
        Some(Binding {
            to_queue: binding["destination_type"] == "queue",
            destination: text(binding, "destination")?,
            key: text(binding, "routing_key")?,
        })
    });
    bindings.collect()
}

/// Whether an exchange of this type sends the key anywhere.
pub(super) fn reach(kind: &str, bindings: &[Binding], key: &str) -> Reach {
    let any = |bound: fn(&str, &str) -> bool| match bindings.iter().any(|it| bound(&it.key, key)) {
        true => Reach::Bound,
        false => Reach::Unbound,
    };
    match kind {
        _ if bindings.is_empty() => Reach::Unbound,
        "topic" => any(topic_matches),
        "direct" => any(|bound, key| bound == key),
        "fanout" => Reach::Bound,
        _ => Reach::Unknown,
    }
}

/// `*` is one word, `#` any number of them.
fn topic_matches(pattern: &str, key: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        if text.is_empty() { Vec::new() } else { text.split('.').map(str::to_owned).collect() }
    };
    let key = words(key);
    // reached[n]: the pattern so far matches the first n words.
    let mut reached = vec![false; key.len() + 1];
    reached[0] = true;
    for part in words(pattern) {
        let mut next = vec![false; key.len() + 1];
        for at in 0..=key.len() {
            let before = at.checked_sub(1);
            next[at] = match part.as_str() {
                "#" => reached[at] || before.is_some_and(|before| next[before]),
                word => before
                    .is_some_and(|before| reached[before] && (word == "*" || word == key[before])),
            };
        }
        reached = next;
    }
    reached[key.len()]
}

/// What of a queue can lose events that were confirmed, a sentence each.
pub(super) fn doubts(queue: &Json) -> Vec<String> {
    let name = queue["name"].as_str().unwrap_or_default();
    let is = |flag: &str| queue[flag] == true;
    let stream = queue["type"] == "stream";
    // An argument of the queue, else what policies say.
    let limit = |name: &str| {
        let argument = &queue["arguments"][format!("x-{name}")];
        let policy = &queue["effective_policy_definition"][name];
        Some(if argument.is_null() { policy } else { argument }).filter(|value| !value.is_null())
    };
    let mut doubts = Vec::new();
    if queue["durable"] == false {
        doubts.push("is not durable: confirmed events in it are gone after a restart".to_owned());
    }
    if is("auto_delete") {
        doubts.push("deletes itself with its last consumer, and the events in it".to_owned());
    }
    if is("exclusive") {
        doubts.push("is gone with the connection that made it".to_owned());
    }
    let bounded = ["max-length", "max-length-bytes"].into_iter().find(|name| limit(name).is_some());
    let rejects = limit("overflow").and_then(Json::as_str).is_some_and(|it| it.contains("reject"));
    if let Some(bound) = bounded
        && !rejects
        && !stream
    {
        doubts.push(format!(
            "drops its oldest events when it is full ({bound} with overflow = drop-head); overflow = reject-publish would hold them back"
        ));
    }
    if limit("message-ttl").is_some() {
        doubts.push("drops events that wait too long (message-ttl)".to_owned());
    }
    if limit("expires").is_some() {
        doubts.push("deletes itself when nobody uses it for a while (expires)".to_owned());
    }
    doubts.into_iter().map(|doubt| format!("queue {name} {doubt}")).collect()
}

#[cfg(test)]
#[path = "bindings_tests.rs"]
mod tests;
