//! Sources whose broker lets a client in, and answers nothing after that.

use std::sync::mpsc::Receiver;

use super::RabbitMq;

/// The source, and a message at the end of each of its connections.
pub(super) fn silent_node() -> (RabbitMq, Receiver<()>) {
    node(|_| None)
}

/// The same; whether the exchange of events exists, it tells only a login that may configure it.
pub(super) fn hiding_node() -> (RabbitMq, Receiver<()>) {
    let refused = [&[0, 20, 0, 40, 1, 0x93, 2], &b"no"[..], &[0, 40, 0, 10]].concat();
    node(move |method| {
        let is_source = method.windows(13).any(|part| part == b"outbox.events");
        (method.starts_with(&[0, 40, 0, 10]) && is_source).then(|| refused.clone())
    })
}

fn node(
    answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Clone + Send + 'static,
) -> (RabbitMq, Receiver<()>) {
    let (address, ended) = walrelay_harness::silent_node(answer).unwrap();
    (RabbitMq::new(format!("amqp://guest:guest@{address}"), ["order.*"]), ended)
}
