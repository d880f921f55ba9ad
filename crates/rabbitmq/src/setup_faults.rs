//! The faults of exchanges, queues, bindings and permissions, each with the command that mends it.

use super::connection_loss::ConnectionLoss;
use super::fault::{ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED};
use super::message::{LOST_BINDINGS, OFFSET_HEADER};
use super::probe::{ExchangeDifference, STREAM};
use super::rights::rights;
use super::settings::{RabbitAuth, RabbitSettings};
use walrelay_base::error::{Exit, Fault};
use walrelay_base::text::quoted;
use walrelay_core::dead_letter::writer::DeadLetterAddress;

/// Type of the exchange for dead letters that `init` makes.
pub(super) const DIRECT: &str = "direct";
pub(super) const NOT_A_STREAM: &str = "sink.dead-letter-not-a-stream";
const DEAD_LETTER_FORBIDDEN: &str = "sink.dead-letter-forbidden";
const UNREADABLE: &str = "sink.dead-letter-unreadable";
const CHECK_TYPE: &str =
    "correct sink.rabbitmq.exchange_type, or enable its plugin: rabbitmq-plugins list";
/// In the broker's text about a name that nobody may declare.
const RESERVED: &str = "contains reserved prefix 'amq.*'";

/// The purpose of an exchange or a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Events,
    DeadLetters,
}

impl Purpose {
    /// Names an exchange or a queue at the end of a clause.
    pub(super) fn object(self, what: &str, name: &str) -> String {
        match self {
            Purpose::Events => format!("{what} {name}"),
            Purpose::DeadLetters => format!("{what} {name}, for dead letters"),
        }
    }

    /// Names an exchange or a queue in front of a verb.
    pub(super) fn subject(self, what: &str, name: &str) -> String {
        let comma = if self == Purpose::DeadLetters { "," } else { "" };
        self.object(what, name) + comma
    }

    /// The types of the exchange and of the queues that `init` makes.
    pub(super) fn types(self, settings: &RabbitSettings) -> (&str, &str) {
        match self {
            Purpose::Events => (&settings.exchange_type, &settings.queue_type),
            Purpose::DeadLetters => (DIRECT, STREAM),
        }
    }

    fn missing_code(self, code: &'static str) -> &'static str {
        if self == Purpose::Events { code } else { "sink.dead-letter-missing" }
    }
}

/// Makes faults for one configuration.
#[derive(Clone, Copy)]
pub(super) struct SetupFaults<'a>(pub(super) &'a RabbitSettings);

impl<'a> SetupFaults<'a> {
    fn fault(
        self,
        code: &'static str,
        subject: &str,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Fault {
        Fault::new(Exit::Sink, code, what, format!("{subject} at {}", self.0.place()), mend)
    }

    /// A command of `rabbitmqadmin` 2 for the configured virtual host.
    pub(super) fn admin(self, command: &str) -> String {
        self.0.address().admin(command)
    }

    /// Dead letters also need the binding between their exchange and their queue, which one command does
    /// not make.
    fn init_or(self, purpose: Purpose, command: &str) -> String {
        match purpose {
            Purpose::Events => format!("walrelay init, or: {}", self.admin(command)),
            Purpose::DeadLetters => "walrelay init".to_owned(),
        }
    }

    /// The command that gives the login the permissions for the events and these dead letters, and no
    /// others.
    fn grant_all(self, dead_letters: &[&DeadLetterAddress]) -> String {
        let command = self.0.address().grant(&rights(&self.0.exchange, dead_letters));
        format!("{command} (configure, write, read: this replaces what there is)")
    }

    /// As [`Self::grant_all`]; a login that shall read the dead letters of a consumer keeps the
    /// permissions for those of the relay.
    fn grant_to_read(self, address: &DeadLetterAddress) -> String {
        let own = &self.0.dead_letters;
        if own == address { self.grant_all(&[own]) } else { self.grant_all(&[own, address]) }
    }

    pub(super) fn exchange_missing(self, purpose: Purpose, name: &str) -> Fault {
        let what = format!("{} does not exist", purpose.subject("exchange", name));
        let (named, kind) = (quoted(name), quoted(purpose.types(self.0).0));
        let command = format!("declare exchange --name {named} --type {kind} --durable true");
        let bindings = if purpose == Purpose::Events { LOST_BINDINGS } else { "" };
        let mend = self.init_or(purpose, &command) + bindings;
        let code = purpose.missing_code("sink.exchange-missing");
        self.fault(code, &format!("exchange {name}"), what, mend)
    }

    pub(super) fn queue_missing(self, purpose: Purpose, name: &str) -> Fault {
        let what = format!("{} does not exist", purpose.subject("queue", name));
        let (named, kind) = (quoted(name), purpose.types(self.0).1);
        let command = format!("declare queue --name {named} --type {kind} --durable true");
        let mend = if purpose == Purpose::DeadLetters || self.0.queues.contains_key(name) {
            self.init_or(purpose, &command)
        } else {
            let by_hand = self.admin(&command);
            format!("{by_hand}; or list it in sink.rabbitmq.queues, then: walrelay init")
        };
        self.fault(purpose.missing_code("sink.queue-missing"), &format!("queue {name}"), what, mend)
    }

    /// The user cannot have as many channels at once as `run` needs.
    pub(super) fn too_few_channels(self, needed: usize, loss: &ConnectionLoss) -> Fault {
        let address = self.0.address();
        let what = format!(
            "{} cannot open {needed} channels at once, and run may publish nothing with fewer: {}",
            address.user(),
            loss.text
        );
        Fault { what, ..loss.unreachable(&address) }
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
        let what = format!("{} may not publish {whose}to exchange {name}", self.0.address().user());
        self.fault(code, &format!("exchange {name}"), what, self.grant_all(dead_letters.as_slice()))
    }

    /// The differences from the configured exchange that `run` cannot accept.
    pub(super) fn exchange_unusable(
        self,
        purpose: Purpose,
        name: &str,
        differences: &[ExchangeDifference],
    ) -> Vec<Fault> {
        let wanted = purpose.types(self.0).0;
        let subject = format!("exchange {name}");
        let delete = self.admin(&format!("delete exchange --name {}", quoted(name)));
        let key = match purpose {
            Purpose::Events => "sink.rabbitmq.exchange",
            Purpose::DeadLetters => "dead_letter.exchange",
        };
        let fault = |difference: &ExchangeDifference| {
            let (code, what, mend) = match difference {
                ExchangeDifference::OtherType(found) => (
                    "sink.exchange-type",
                    format!("is of type {found}, and sink.rabbitmq.exchange_type says {wanted}"),
                    format!(
                        "exchange_type = {found:?} under [sink.rabbitmq]; or make it anew: {delete}, then: walrelay init"
                    ),
                ),
                ExchangeDifference::NotDurable => (
                    "sink.exchange-not-durable",
                    "is not durable: it and its bindings are gone after a restart of the broker"
                        .to_owned(),
                    format!("{delete}, then: walrelay init"),
                ),
                ExchangeDifference::Internal => (
                    "sink.exchange-internal",
                    "is internal: nobody can publish to it".to_owned(),
                    format!("name another in {key}; or: {delete}, then: walrelay init"),
                ),
                ExchangeDifference::UnknownType => (
                    "sink.exchange-type",
                    format!("cannot be compared: the broker knows no exchange type {wanted}"),
                    CHECK_TYPE.to_owned(),
                ),
                _ => return None,
            };
            Some(self.fault(code, &subject, format!("{subject} {what}"), mend))
        };
        differences.iter().filter_map(fault).collect()
    }

    pub(super) fn queue_unusable(self, name: &str, loss: &ConnectionLoss) -> Fault {
        let what = format!("queue {name} cannot be used: {}", loss.text);
        let vhost = quoted(&self.0.vhost);
        let mend = format!("rabbitmqctl list_queues -p {vhost} name durable exclusive state");
        self.fault("sink.queue-unusable", &format!("queue {name}"), what, mend)
    }

    /// Something could not be created.
    pub(super) fn not_made(self, subject: String) -> impl Fn(ConnectionLoss) -> Fault + use<'a> {
        move |loss| {
            let (code, mend) = match loss.code {
                _ if loss.is_unknown_exchange_type() => {
                    ("sink.exchange-type", CHECK_TYPE.to_owned())
                }
                // No right on such a name helps.
                Some(ACCESS_REFUSED) if loss.text.ends_with(RESERVED) => (
                    "sink.not-made",
                    "names that begin with amq. are reserved for RabbitMQ: configure another name"
                        .to_owned(),
                ),
                Some(ACCESS_REFUSED) => (
                    "sink.not-permitted",
                    format!(
                        "run init as somebody who may: {}WALRELAY_SINK__RABBITMQ__URL={}://ADMIN:PASSWORD@HOST/VHOST walrelay init; or for as long as it takes: {}",
                        if self.0.auth == RabbitAuth::External { "WALRELAY_SINK__RABBITMQ__AUTH=plain " } else { "" },
                        self.0.scheme(),
                        self.0.address().grant("'.*' '.*' '.*'")
                    ),
                ),
                Some(PRECONDITION_FAILED) if !loss.text.contains("inequivalent arg") => (
                    "sink.not-made",
                    "declare it yourself, with the arguments that its type needs: init then uses it as it is"
                        .to_owned(),
                ),
                Some(PRECONDITION_FAILED) => (
                    "sink.not-made",
                    "it is there with other properties: delete it first, or use it as it is and remove it from sink.rabbitmq.queues"
                        .to_owned(),
                ),
                Some(_) => ("sink.not-made", "see the broker's log".to_owned()),
                None => return loss.unreachable(&self.0.address()),
            };
            self.fault(code, &subject, format!("cannot make {subject}: {}", loss.text), mend)
        }
    }

    /// Reading from a queue of another type removes the dead letters from it.
    pub(super) fn not_a_stream(self, name: &str) -> Fault {
        let what = format!(
            "queue {name}, for dead letters, is not a stream: reading would take them out of it"
        );
        let mut mend = "name another in dead_letter.topic, then: walrelay init".to_owned();
        // A queue for events is never to be deleted.
        if !self.0.queues.contains_key(name) {
            let delete = self.admin(&format!("delete queue --name {}", quoted(name)));
            mend += &format!(
                "; or, when nothing in it is needed any more: {delete}, then: walrelay init"
            );
        }
        self.fault(NOT_A_STREAM, &format!("queue {name}"), what, mend)
    }

    /// Too many records from this offset on cannot be read.
    pub(super) fn garbled(self, address: &DeadLetterAddress, offset: i64) -> Fault {
        let DeadLetterAddress { exchange, topic: name } = address;
        let what = format!(
            "queue {name} holds records of others, from offset {offset} on, that are no AMQP this client can read"
        );
        let mend = format!(
            "let nobody else write to queue {name} and exchange {exchange}; then name another queue in dead_letter.topic, and: walrelay init"
        );
        self.fault(UNREADABLE, &format!("queue {name}"), what, mend)
    }

    /// The stream cannot be read.
    pub(super) fn unreadable(self, address: &DeadLetterAddress, loss: &ConnectionLoss) -> Fault {
        let (name, text, vhost) = (&address.topic, &loss.text, quoted(&self.0.vhost));
        let (code, what, mend) = match loss.code {
            None => return loss.unreachable(&self.0.address()),
            Some(NOT_FOUND) => return self.queue_missing(Purpose::DeadLetters, name),
            // A queue of another type refuses a consumer that names an offset.
            Some(PRECONDITION_FAILED) if text.contains(OFFSET_HEADER) => {
                return self.not_a_stream(name);
            }
            Some(ACCESS_REFUSED) => (
                DEAD_LETTER_FORBIDDEN,
                format!("{} may not read dead letters from queue {name}", self.0.address().user()),
                self.grant_to_read(address),
            ),
            Some(PRECONDITION_FAILED) if text.contains("replica") => (
                UNREADABLE,
                format!("queue {name} cannot be read over this host: {text}"),
                format!(
                    "name a host first that has a replica, in sink.rabbitmq.url; or there: rabbitmq-streams add_replica --vhost {vhost} {} NODE",
                    quoted(name)
                ),
            ),
            Some(_) if loss.is_forced() => return loss.unreachable(&self.0.address()),
            Some(_) => (
                UNREADABLE,
                format!("queue {name} cannot be read: {text}"),
                format!(
                    "see the broker's log, and: rabbitmqctl list_queues -p {vhost} name type state"
                ),
            ),
        };
        self.fault(code, &format!("queue {name}"), what, mend)
    }
}

#[cfg(test)]
#[path = "setup_faults_tests.rs"]
mod tests;
