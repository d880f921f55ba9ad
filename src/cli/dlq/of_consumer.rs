//! `--from`: the dead letters of a consumer, which `walrelay-inbox` writes as the relay writes its own.

use crate::base::error::{Exit, Fault};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::Broker;

/// The address of the topic; refused for an action on parked keys, which only the relay has.
pub(super) fn address(
    broker: &dyn Broker,
    name: &str,
    parks_keys: bool,
) -> Result<DeadLetterAddress, Fault> {
    let refused = |what, mend: &str| {
        Err(Fault::new(Exit::Usage, "dead-letter.bad-from", what, "--from", mend))
    };
    let address = DeadLetterAddress::of_consumer(name)?;
    if parks_keys {
        let what = "a consumer parks no keys, so none can be released".to_owned();
        return refused(
            what,
            "walrelay dlq release, without --from: it releases keys of the relay",
        );
    }
    let kind = broker.kind();
    if !kind.serves_consumers {
        let what = format!("sink.kind is {:?}, and has no consumers with dead letters", kind.name);
        return refused(what, "use the configuration of a relay to Kafka or RabbitMQ");
    }
    Ok(address)
}

/// Commands that a fault names must read the same topic; what is missing is made by others, and a queue
/// of another kind belongs to others.
pub(super) fn fault(fault: Fault, name: &str) -> Fault {
    let mend = match fault.code {
        "sink.dead-letter-missing" => {
            "is the name right? The consumer's own init makes it: Inbox::init of walrelay-inbox"
                .to_owned()
        }
        "sink.dead-letter-not-a-stream" => {
            "is the name right? --from takes the stream queue SERVICE.dlq of a consumer".to_owned()
        }
        _ => fault.mend.replace("walrelay dlq ", &format!("walrelay dlq --from {name} ")),
    };
    let place = fault.place.replace("dead_letter.topic", &format!("--from {name}"));
    Fault { mend, place, ..fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_the_topic_that_was_given_and_deletes_no_queue() {
        let told = |code, mend: &str| {
            let place = "dead_letter.topic on localhost:9092";
            fault(Fault::new(Exit::Sink, code, "what", place, mend), "billing.dlq")
        };
        let missing = told("sink.dead-letter-missing", "walrelay init");
        assert!(missing.mend.starts_with("is the name right?"), "{missing}");
        assert_eq!(missing.place, "--from billing.dlq on localhost:9092");
        let other = told("sink.dead-letter-not-a-stream", "rabbitmqadmin delete queue");
        assert!(other.mend.contains("stream queue SERVICE.dlq"), "{other}");
        assert!(!other.mend.contains("delete"), "{other}");
        let known = told("dead-letter.unknown", "walrelay dlq list --state all");
        assert_eq!(known.mend, "walrelay dlq --from billing.dlq list --state all");
    }
}
