//! What is not as it must be at the broker, with the command that mends it.
//!
//! `run` writes dead letters to an exchange. The stream behind it is read by `walrelay dlq`, and for
//! parked keys: a login that may only write is pointed out, and not refused.

use super::fault::{
    ACCESS_REFUSED, COMMAND_INVALID, ConnectionLoss, NOT_FOUND, PRECONDITION_FAILED, grant, user,
};
use super::message::OFFSET_HEADER;
use super::probe::{ExchangeDifferences, STREAM};
use super::settings::RabbitSettings;
use crate::base::error::{Exit, Fault};
use crate::dead_letter::writer::DeadLetterAddress;

/// Of the exchange for dead letters that `init` makes.
pub(super) const DIRECT: &str = "direct";
pub(super) const NOT_A_STREAM: &str = "sink.dead-letter-not-a-stream";
const DEAD_LETTER_FORBIDDEN: &str = "sink.dead-letter-forbidden";
const UNREADABLE: &str = "sink.dead-letter-unreadable";
const CHECK_TYPE: &str =
    "correct sink.rabbitmq.exchange_type, or enable its plugin: rabbitmq-plugins list";

/// What an exchange or a queue carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Events,
    DeadLetters,
}

impl Purpose {
    /// The exchange or queue at the end of a clause.
    pub(super) fn object(self, what: &str, name: &str) -> String {
        match self {
            Purpose::Events => format!("{what} {name}"),
            Purpose::DeadLetters => format!("{what} {name}, for dead letters"),
        }
    }

    /// The same before a verb.
    pub(super) fn subject(self, what: &str, name: &str) -> String {
        let comma = if self == Purpose::DeadLetters { "," } else { "" };
        self.object(what, name) + comma
    }

    /// The code of what is missing.
    fn missing(self, code: &'static str) -> &'static str {
        match self {
            Purpose::Events => code,
            Purpose::DeadLetters => "sink.dead-letter-missing",
        }
    }

    /// Types of the exchange and the queues that `init` makes.
    pub(super) fn types(self, settings: &RabbitSettings) -> (&str, &str) {
        match self {
            Purpose::Events => (&settings.exchange_type, &settings.queue_type),
            Purpose::DeadLetters => (DIRECT, STREAM),
        }
    }
}

/// The faults of one configuration.
#[derive(Clone, Copy)]
pub(super) struct MendHints<'a>(pub(super) &'a RabbitSettings);

impl MendHints<'_> {
    fn fault(self, code: &'static str, subject: &str, what: String, mend: String) -> Fault {
        Fault::new(Exit::Sink, code, what, format!("{subject} at {}", self.0.place()), mend)
    }

    /// `rabbitmqadmin`, on the right virtual host.
    pub(super) fn admin(self, command: &str) -> String {
        format!("rabbitmqadmin --vhost={:?} {command}", self.0.vhost)
    }

    fn init_or(self, command: &str) -> String {
        format!("walrelay init, or: {}", self.admin(command))
    }

    /// The command that gives the relay the rights it needs, and no others.
    fn grant_all(self, dead_letters: Option<&DeadLetterAddress>) -> String {
        let letters = dead_letters.map(|it| (it.exchange.as_str(), it.topic.as_str()));
        let (exchange, queue): (Vec<_>, Vec<_>) = letters.into_iter().unzip();
        // The default exchange is asked for under another name; rows may name any.
        let write = match self.0.exchange.as_deref() {
            None | Some("") => ".*".to_owned(),
            Some(events) => pattern(&[vec![events], exchange].concat()),
        };
        let command = grant(self.0, &format!("'' '{write}' '{}'", pattern(&queue)));
        format!("{command} (configure, write, read: this replaces what there is)")
    }

    pub(super) fn exchange_missing(self, purpose: Purpose, name: &str) -> Fault {
        let (subject, kind) = (format!("exchange {name}"), purpose.types(self.0).0);
        let what = format!("{} does not exist", purpose.subject("exchange", name));
        let command = format!("declare exchange name={name:?} type={kind} durable=true");
        let mend = self.init_or(&command);
        self.fault(purpose.missing("sink.exchange-missing"), &subject, what, mend)
    }

    pub(super) fn queue_missing(self, purpose: Purpose, name: &str) -> Fault {
        let (subject, kind) = (format!("queue {name}"), purpose.types(self.0).1);
        let what = format!("{} does not exist", purpose.subject("queue", name));
        let command = format!("declare queue name={name:?} durable=true queue_type={kind}");
        let mend = if purpose == Purpose::DeadLetters || self.0.queues.contains_key(name) {
            self.init_or(&command)
        } else {
            let by_hand = self.admin(&command);
            format!("{by_hand}; or list it in sink.rabbitmq.queues, then: walrelay init")
        };
        self.fault(purpose.missing("sink.queue-missing"), &subject, what, mend)
    }

    pub(super) fn queue_unbound(
        self,
        purpose: Purpose,
        exchange: &str,
        queue: &str,
        key: &str,
    ) -> Fault {
        let mut what = format!("queue {queue} is not bound to exchange {exchange} by {key:?}");
        if purpose == Purpose::DeadLetters {
            what.push_str(": dead letters would come back");
        }
        let mend = self.init_or(&format!(
            "declare binding source={exchange:?} destination={queue:?} routing_key={key:?}"
        ));
        let code = purpose.missing("sink.binding-missing");
        self.fault(code, &format!("queue {queue}"), what, mend)
    }

    /// Nothing is bound for the key; with none, nothing at all is bound.
    pub(super) fn unroutable(self, name: &str, key: Option<&str>) -> Fault {
        let what = match key {
            Some(key) => format!(
                "nothing is bound to exchange {name} for routing key {key}: events would come back"
            ),
            None => format!("nothing is bound to exchange {name}: every event would come back"),
        };
        let key = key.unwrap_or("#");
        let by_hand = self.admin(&format!(
            "declare binding source={name:?} destination=QUEUE routing_key={key:?}"
        ));
        let mend = format!(
            "{by_hand}; or under [sink.rabbitmq]: queues = {{ \"QUEUE\" = {key:?} }}, then: walrelay init"
        );
        self.fault("sink.unroutable", &format!("exchange {name}"), what, mend)
    }

    pub(super) fn publish_forbidden(
        self,
        purpose: Purpose,
        name: &str,
        dead_letters: Option<&DeadLetterAddress>,
    ) -> Fault {
        let (code, whose) = match purpose {
            Purpose::Events => ("sink.exchange-forbidden", ""),
            Purpose::DeadLetters => (DEAD_LETTER_FORBIDDEN, "dead letters "),
        };
        let what = format!("{} may not publish {whose}to exchange {name}", user(self.0));
        self.fault(code, &format!("exchange {name}"), what, self.grant_all(dead_letters))
    }

    /// In what an exchange cannot be used as it is.
    pub(super) fn exchange_unusable(
        self,
        purpose: Purpose,
        name: &str,
        differences: &ExchangeDifferences,
    ) -> Vec<Fault> {
        let wanted = purpose.types(self.0).0;
        let key = match purpose {
            Purpose::Events => "sink.rabbitmq.exchange",
            Purpose::DeadLetters => "dead_letter.exchange",
        };
        let delete = self.admin(&format!("delete exchange name={name:?}"));
        let wrong_type = differences.other_type.as_ref().map(|found| (
            "sink.exchange-type",
            format!("is of type {found}, and sink.rabbitmq.exchange_type says {wanted}"),
            format!(
                "exchange_type = {found:?} under [sink.rabbitmq]; or make it anew: {delete}, then: walrelay init"
            ),
        ));
        let transient = differences.transient.then(|| {
            (
                "sink.exchange-not-durable",
                "is not durable: it and its bindings are gone after a restart of the broker"
                    .to_owned(),
                format!("{delete}, then: walrelay init"),
            )
        });
        let internal = differences.internal.then(|| {
            (
                "sink.exchange-internal",
                "is internal: nobody can publish to it".to_owned(),
                format!("name another in {key}; or: {delete}, then: walrelay init"),
            )
        });
        let unknown_type = differences.unknown_type.then(|| {
            (
                "sink.exchange-type",
                format!("cannot be compared: the broker knows no exchange type {wanted}"),
                CHECK_TYPE.to_owned(),
            )
        });
        let subject = format!("exchange {name}");
        let found = [wrong_type, transient, internal, unknown_type].into_iter().flatten();
        found
            .map(|(code, what, mend)| self.fault(code, &subject, format!("{subject} {what}"), mend))
            .collect()
    }

    pub(super) fn queue_unusable(self, name: &str, loss: &ConnectionLoss) -> Fault {
        let what = format!("queue {name} cannot be used: {}", loss.text);
        let mend = "rabbitmqctl list_queues name durable exclusive state".to_owned();
        self.fault("sink.queue-unusable", &format!("queue {name}"), what, mend)
    }

    /// `init` could not make something.
    pub(super) fn not_made(self, subject: &str, loss: &ConnectionLoss) -> Fault {
        let (code, mend) = match loss.code {
            Some(ACCESS_REFUSED) => (
                "sink.not-permitted",
                format!(
                    "run init as somebody who may: WALRELAY_SINK__RABBITMQ__URL=amqp://ADMIN:PASSWORD@HOST/VHOST walrelay init; or for as long as it takes: {}",
                    grant(self.0, "'.*' '.*' '.*'")
                ),
            ),
            Some(PRECONDITION_FAILED) => (
                "sink.not-made",
                "it is there with other properties: delete it first, or use it as it is and remove it from sink.rabbitmq.queues"
                    .to_owned(),
            ),
            Some(COMMAND_INVALID) => ("sink.exchange-type", CHECK_TYPE.to_owned()),
            Some(_) => ("sink.not-made", "see the broker's log".to_owned()),
            None => return loss.unreachable(self.0),
        };
        self.fault(code, subject, format!("cannot make {subject}: {}", loss.text), mend)
    }

    /// The queue is there and holds dead letters in a way that reading would undo.
    pub(super) fn not_a_stream(self, name: &str) -> Fault {
        let what = format!(
            "queue {name}, for dead letters, is not a stream: reading would take them out of it"
        );
        let mend = format!(
            "name another in dead_letter.topic, then: walrelay init; or, when nothing in it is needed any more: {}, then: walrelay init",
            self.admin(&format!("delete queue name={name:?}"))
        );
        self.fault(NOT_A_STREAM, &format!("queue {name}"), what, mend)
    }

    /// From the offset on there is too much that cannot be read.
    pub(super) fn garbled(self, address: &DeadLetterAddress, offset: i64) -> Fault {
        let DeadLetterAddress { exchange, topic: name } = address;
        let what = format!(
            "queue {name} holds records of others, from offset {offset} on, that are no AMQP this client can read"
        );
        let mend = format!(
            "let nobody else write to queue {name} and exchange {exchange:?}; then name another queue in dead_letter.topic, and: walrelay init"
        );
        self.fault(UNREADABLE, &format!("queue {name}"), what, mend)
    }

    /// The stream cannot be read.
    pub(super) fn unreadable(self, address: &DeadLetterAddress, loss: &ConnectionLoss) -> Fault {
        let (name, text) = (&address.topic, &loss.text);
        let (code, what, mend) = match loss.code {
            None => return loss.unreachable(self.0),
            Some(NOT_FOUND) => return self.queue_missing(Purpose::DeadLetters, name),
            // What a queue of another type says of where to begin.
            Some(PRECONDITION_FAILED) if text.contains(OFFSET_HEADER) => {
                return self.not_a_stream(name);
            }
            Some(ACCESS_REFUSED) => (
                DEAD_LETTER_FORBIDDEN,
                format!("{} may not read dead letters from queue {name}", user(self.0)),
                self.grant_all(Some(address)),
            ),
            Some(PRECONDITION_FAILED) if text.contains("replica") => (
                UNREADABLE,
                format!("queue {name} cannot be read over this host: {text}"),
                format!(
                    "name a host first that has a replica, in sink.rabbitmq.url; or there: rabbitmq-streams add_replica --vhost {:?} {name:?} NODE",
                    self.0.vhost
                ),
            ),
            Some(_) => (
                UNREADABLE,
                format!("queue {name} cannot be read: {text}"),
                "see the broker's log, and: rabbitmqctl list_queues name type state".to_owned(),
            ),
        };
        self.fault(code, &format!("queue {name}"), what, mend)
    }
}

/// A pattern that these names match and nothing else does.
fn pattern(names: &[&str]) -> String {
    let escaped: Vec<String> = names.iter().map(|name| regex_syntax::escape(name)).collect();
    match escaped.as_slice() {
        [] => String::new(),
        [name] => format!("^{name}$"),
        names => format!("^({})$", names.join("|")),
    }
}

#[cfg(test)]
#[path = "mend_hints_tests.rs"]
mod tests;
