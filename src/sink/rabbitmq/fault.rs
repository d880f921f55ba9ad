//! What the broker's codes mean: an outage, an event that may pass later, one that never will, or
//! the end.

use lapin::{ChannelState, ErrorKind};

use super::message::Message;
use super::replies::{self, ACCESS_REFUSED, Closed, NOT_FOUND, NOT_TOLD};
use super::returns::Returned;
use super::settings::{Login, RabbitSettings};
use super::tls;
use crate::base::error::{Exit, Fault};
use crate::dead_letter::writer::CLASS_PARKED;
use crate::sink::{Disposition, Failure, UNREACHABLE};

/// How lapin ends a channel that the broker closed with such a code.
const CLOSED_UNTOLD: &str = "channel.close-ok sent";

/// What the broker says of a queue that is there and does not answer.
const QUEUE_DOWN: &str = "down or inaccessible";

/// Why there is no connection (any more).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    /// The reply code, when the broker gave one.
    pub(super) code: Option<u16>,
    /// For people.
    pub(super) text: String,
    /// What is behind it, when that is known better than from the code.
    pub(super) cause: Option<Cause>,
    /// What the broker sent is more than the client can read.
    pub(super) is_garbled: bool,
}

/// A cause with a remedy of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// The fault's code.
    pub(super) code: &'static str,
    pub(super) mend: String,
    /// Another attempt with the same settings would fail in the same way.
    pub(super) is_final: bool,
}

impl From<lapin::Error> for Loss {
    fn from(error: lapin::Error) -> Loss {
        match error.kind() {
            ErrorKind::ProtocolError(refusal) => {
                Loss::refused(refusal.get_id(), refusal.get_message().to_string())
            }
            ErrorKind::InvalidChannelState(ChannelState::Closing, CLOSED_UNTOLD) => Loss {
                code: Some(NOT_TOLD),
                ..Loss::of("the channel was closed with a code that is not known")
            },
            // A message is to blame, and would be again.
            ErrorKind::SerialisationError(_) => Loss {
                code: Some(NOT_TOLD),
                ..Loss::of(format!("AMQP cannot carry a message: {error}"))
            },
            ErrorKind::IOError(io) | ErrorKind::RuntimeShutdownError(io) => {
                Loss::of(io.to_string())
            }
            ErrorKind::MissingHeartbeatError => Loss::of("nothing was heard for two heartbeats"),
            ErrorKind::ParsingError(_) => Loss { is_garbled: true, ..Loss::of(error.to_string()) },
            // The connection is in doubt, whatever else it may be.
            ErrorKind::ChannelsLimitReached
            | ErrorKind::InvalidProtocolVersion(_)
            | ErrorKind::InvalidChannel(_)
            | ErrorKind::InvalidChannelState(..)
            | ErrorKind::InvalidConnectionState(_)
            | ErrorKind::AuthProviderError(_)
            | ErrorKind::FutureCompleted
            | ErrorKind::NoDefaultRuntime => Loss::of(error.to_string()),
            _ => Loss::of(format!("not known: {error}")),
        }
    }
}

impl From<std::io::Error> for Loss {
    fn from(error: std::io::Error) -> Loss {
        Loss { cause: tls::cause(&error), ..Loss::of(tls::describe(&error)) }
    }
}

impl Loss {
    /// Without a reply code.
    pub(super) fn of(text: impl Into<String>) -> Loss {
        Loss { code: None, text: text.into(), cause: None, is_garbled: false }
    }

    fn refused(code: u16, text: String) -> Loss {
        // A node that starts answers sooner than its queues, and calls them not found.
        if code == NOT_FOUND && text.contains(QUEUE_DOWN) {
            let mend = "wait until the node of the queue has started, or start it: rabbitmqctl cluster_status, rabbitmqctl list_queues name state";
            let (code, mend, is_final) = (UNREACHABLE, mend.to_owned(), false);
            return Loss { cause: Some(Cause { code, mend, is_final }), ..Loss::of(text) };
        }
        Loss { code: Some(code), ..Loss::of(text) }
    }

    /// Did the broker close over what one message is, and not over its own state?
    pub(super) fn is_over_a_message(&self) -> bool {
        let Some(code) = self.code else { return false };
        let why = replies::closed(code).map(|(_, why)| why);
        if why.is_none() {
            tracing::warn!(code, "a reply code that is not known");
        }
        why.is_none_or(|why| why == Closed::Message)
    }

    /// Did the broker close because a message is larger than it takes?
    pub(super) fn is_over_size(&self) -> bool {
        self.is_over_a_message() && self.text.contains("larger than")
    }

    /// Most bytes of a body, where the broker has said so.
    pub(super) fn size_limit(&self) -> Option<usize> {
        self.text.split_whitespace().rev().find_map(|word| word.parse().ok())
    }

    /// Must what was in flight be sent again one at a time? Either one of it is to blame, or the
    /// broker will go on closing over one, and all before that would be doubled each time.
    pub(super) fn narrows(&self) -> bool {
        self.is(Closed::Forbidden) || self.is_over_a_message()
    }

    /// Can the broker not do what is asked of it?
    pub(super) fn is_inability(&self) -> bool {
        self.is(Closed::Unable)
    }

    fn is(&self, why: Closed) -> bool {
        self.code.and_then(replies::closed).is_some_and(|(_, it)| it == why)
    }

    /// Will another attempt with the same settings fail in the same way?
    pub(super) fn is_final(&self) -> bool {
        let known = self.cause.as_ref().is_some_and(|cause| cause.is_final);
        known || self.is(Closed::Refused) || self.is(Closed::Forbidden)
    }
}

/// A message that came back.
pub(super) fn unroutable(message: &Message, returned: &Returned) -> Failure {
    let (exchange, routing_key) = (message.exchange(), message.routing_key());
    let reply = replies::returned(returned.code);
    Failure {
        disposition: reply.map_or(Disposition::Terminal, |(_, disposition)| disposition),
        known: reply.is_some(),
        key: message.key().map(Box::from),
        class: replies::returned_class(returned.code),
        subject: subject(message),
        reason: format!(
            "no queue is bound to exchange {exchange:?} for routing key {routing_key:?}: the broker returned it ({} {})",
            returned.code, returned.text
        ),
        mend: format!(
            "bind a queue: rabbitmqadmin declare binding source={exchange:?} destination=QUEUE routing_key={routing_key:?}, or list it in sink.rabbitmq.queues and run: walrelay init"
        ),
    }
}

/// A message that was not kept.
pub(super) fn nacked(message: &Message) -> Failure {
    Failure {
        disposition: Disposition::Transient,
        known: true,
        key: message.key().map(Box::from),
        class: replies::NACK.to_owned(),
        subject: subject(message),
        reason: "a queue refused it: it is full (overflow = reject-publish), or it failed"
            .to_owned(),
        mend: format!(
            "rabbitmqctl list_queues name messages arguments policy, for those bound to {:?}: consume from the full one, or raise its max-length",
            message.exchange()
        ),
    }
}

/// A message to an exchange that does not exist.
pub(super) fn no_exchange(message: &Message) -> Failure {
    let exchange = message.exchange();
    Failure {
        disposition: Disposition::Transient,
        known: true,
        key: message.key().map(Box::from),
        class: replies::NO_EXCHANGE.to_owned(),
        subject: subject(message),
        reason: format!("there is no exchange {exchange:?}"),
        mend: format!(
            "rabbitmqadmin declare exchange name={exchange:?} type=… durable=true, or, where the exchange is not a template: walrelay init"
        ),
    }
}

/// A message that waited behind the dead letter that parks its key.
pub(super) fn parked(message: &Message) -> Failure {
    Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: message.key().map(Box::from),
        class: CLASS_PARKED.to_owned(),
        subject: subject(message),
        reason: "its key is parked: an earlier event of it is a dead letter".to_owned(),
        mend: "walrelay dlq replay or discard what is open of the key, then: walrelay dlq release"
            .to_owned(),
    }
}

/// The message over which the broker closed.
pub(super) fn poison(message: &Message, loss: &Loss) -> Failure {
    let code = loss.code.unwrap_or_default();
    Failure {
        disposition: Disposition::Terminal,
        known: replies::closed(code).is_some(),
        key: message.key().map(Box::from),
        class: replies::closed_class(code),
        subject: subject(message),
        reason: format!("the broker closed the channel over it: {}", loss.text),
        mend: "see the broker's log; the limit of a message is max_message_size in rabbitmq.conf"
            .to_owned(),
    }
}

/// The broker cannot do what every message asks of it.
pub(super) fn unable(settings: &RabbitSettings, loss: &Loss) -> Failure {
    Failure {
        disposition: Disposition::Halt,
        known: true,
        key: None,
        class: replies::closed_class(replies::NOT_IMPLEMENTED),
        subject: settings.place(),
        reason: format!("the broker cannot do what is asked of it: {}", loss.text),
        mend: "see the broker's log; let sink.rabbitmq.url lead to RabbitMQ itself, not to something that speaks less of AMQP 0-9-1"
            .to_owned(),
    }
}

fn subject(message: &Message) -> String {
    let (id, exchange) = (message.id(), message.exchange());
    let routing_key = message.routing_key();
    format!("event {id}, exchange {exchange}, routing key {routing_key}")
}

/// Configure, write, read: the dead letters are read.
const PUBLISH_ANYWHERE: &str = "'' '.*' '.*'";

/// Who logs in, as far as the configuration tells.
pub(super) fn user(settings: &RabbitSettings) -> &str {
    match &settings.login {
        Login::Plain { user, .. } => user,
        Login::External => "USER",
    }
}

/// The command that gives that user rights.
pub(super) fn grant(settings: &RabbitSettings, rights: &str) -> String {
    format!("rabbitmqctl set_permissions -p {:?} {:?} {rights}", settings.vhost, user(settings))
}

/// Why a connection that was there is there no more.
pub(super) fn interrupted(settings: &RabbitSettings, loss: &Loss) -> String {
    let text = &loss.text;
    match (loss.code, &settings.login) {
        (Some(ACCESS_REFUSED), Login::Plain { .. }) => {
            format!("{text}; to mend it: {}", grant(settings, PUBLISH_ANYWHERE))
        }
        (Some(_), _) => text.clone(),
        (None, _) => format!("{text} ({})", settings.place()),
    }
}

/// Why there is no connection, in a sentence.
pub(super) fn unreachable_text(settings: &RabbitSettings, loss: &Loss) -> String {
    let fault = unreachable(settings, loss);
    format!("{} ({}); to mend it: {}", fault.what, fault.place, fault.mend)
}

/// The broker cannot be used.
pub(super) fn unreachable(settings: &RabbitSettings, loss: &Loss) -> Fault {
    let (code, mend) = match (loss.code, &loss.cause) {
        (_, Some(Cause { code, mend, .. })) => (*code, mend.clone()),
        (Some(ACCESS_REFUSED), _) => ("sink.login", login(settings)),
        (Some(402 | 530), _) => (
            "sink.vhost",
            format!(
                "rabbitmqctl add_vhost {:?}; {}",
                settings.vhost,
                grant(settings, PUBLISH_ANYWHERE)
            ),
        ),
        _ => (
            UNREACHABLE,
            "start the broker, or correct sink.rabbitmq.url; try: rabbitmq-diagnostics check_port_connectivity"
                .to_owned(),
        ),
    };
    Fault::new(
        Exit::Sink,
        code,
        format!("no RabbitMQ could be used: {}", loss.text),
        settings.place(),
        mend,
    )
}

fn login(settings: &RabbitSettings) -> String {
    match &settings.login {
        Login::Plain { user, .. } => format!(
            "correct user and password in sink.rabbitmq.url, or: rabbitmqctl change_password {user:?} …"
        ),
        Login::External => {
            "rabbitmqctl add_user NAME ''; rabbitmqctl clear_password NAME, where NAME is what ssl_cert_login_from in rabbitmq.conf takes from the certificate"
                .to_owned()
        }
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
