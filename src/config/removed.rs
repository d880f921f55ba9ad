//! Keys that walrelay once had. A configuration that still has one is refused with what to do instead.

use crate::base::settings::{Origin, Problem};

/// A key, why it was removed, and what to do.
const REMOVED: [(&str, &str, &str); 1] = [(
    "sink.rabbitmq.management_url",
    "walrelay does not use the management API of RabbitMQ",
    "remove the key; an event for which no queue is bound is returned by the broker, retried, and then becomes a dead letter",
)];

/// The problem of a key that was removed; `named` is the key or the variable as it was written.
pub(super) fn problem(path: &str, named: &str, origin: &Origin) -> Option<Problem> {
    let (_, why, mend) = REMOVED.into_iter().find(|(removed, ..)| *removed == path)?;
    let what = format!("{named} was removed: {why}");
    Some(Problem::new(origin, "config.removed-key", what, mend))
}
