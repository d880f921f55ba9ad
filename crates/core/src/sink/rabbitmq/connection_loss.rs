//! Why there is no connection to RabbitMQ, and what mends it.

use std::io;

use super::fault::{
    ACCESS_REFUSED, COMMAND_INVALID, CONNECTION_FORCED, CloseMeaning, NOT_ALLOWED, NOT_FOUND,
    NOT_IMPLEMENTED, PRECONDITION_FAILED, close_class, close_meaning,
};
use crate::base::error::{Exit, Fault};
use crate::base::text::quoted;
use crate::mutants::{Mutant, on};
use crate::sink::{Disposition, Failure, UNREACHABLE};

/// In the broker's text about a queue that exists and does not answer.
const QUEUE_DOWN: &str = "down or inaccessible";
/// In the broker's text about an exchange type.
const UNKNOWN_EXCHANGE_TYPE: &str = "unknown exchange type";

/// The broker as faults name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AmqpAddress {
    /// Where the broker is, without the login.
    pub place: String,
    pub vhost: String,
    /// None where the broker takes the user from the client certificate.
    pub user: Option<String>,
    /// The permissions that a relay needs: patterns to configure, write and read, as `rabbitmqctl` takes them.
    pub rights: String,
}

impl AmqpAddress {
    /// The user that logs in, as far as the configuration names one.
    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or("USER")
    }

    /// A command of `rabbitmqadmin` 2 for the virtual host.
    pub fn admin(&self, command: &str) -> String {
        format!("rabbitmqadmin --vhost {} {command}", quoted(&self.vhost))
    }

    /// The command that gives that user permissions.
    pub fn grant(&self, permissions: &str) -> String {
        let (vhost, user) = (quoted(&self.vhost), quoted(self.user()));
        format!("rabbitmqctl set_permissions -p {vhost} {user} {permissions}")
    }

    /// The command that gives that user the permissions of a relay, and no others.
    fn grant_rights(&self) -> String {
        format!("{} (docs/rabbitmq.md, \"Rights\")", self.grant(&self.rights))
    }

    /// The commands that permit this login to publish.
    pub fn permit(&self) -> String {
        let (vhost, user) = (quoted(&self.vhost), quoted(self.user()));
        format!(
            "{}; for a routing key: rabbitmqctl list_topic_permissions -p {vhost}, rabbitmqctl clear_topic_permissions -p {vhost} {user}",
            self.grant_rights()
        )
    }

    fn login_mend(&self) -> String {
        match self.user.as_deref().map(quoted) {
            Some(user) => format!(
                "correct user and password in sink.rabbitmq.url, or: rabbitmqctl change_password {user}; if there is no \
                 such user: rabbitmqctl add_user {user}; {}",
                self.grant_rights()
            ),
            None => {
                "rabbitmqctl add_user NAME ''; rabbitmqctl clear_password NAME, where NAME is what ssl_cert_login_from in rabbitmq.conf takes from the certificate; ssl_options.verify = verify_peer in rabbitmq.conf (docs/rabbitmq.md)"
                    .to_owned()
            }
        }
    }

    /// The command that lifts the limit of which the broker's text speaks.
    pub(super) fn limit_mend(&self, text: &str) -> String {
        let (user, vhost) = (quoted(self.user()), quoted(&self.vhost));
        let is_of = |subject: &str| text.contains(subject);
        if is_of("on node") {
            "raise channel_max_per_node in rabbitmq.conf, and see: rabbitmqctl list_connections user channels".to_owned()
        } else if is_of("number of channels") {
            format!("rabbitmqctl clear_user_limits {user} max-channels")
        } else if is_of("node connection limit") {
            "raise connection_max in rabbitmq.conf, and see: rabbitmqctl list_connections user"
                .to_owned()
        } else if is_of("user connection limit") {
            format!("rabbitmqctl clear_user_limits {user} max-connections")
        } else {
            format!("rabbitmqctl clear_vhost_limits -p {vhost}")
        }
    }
}

pub type AmqpResult<T> = Result<T, ConnectionLoss>;

/// Why a connection or a channel has ended, or could not be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionLoss {
    /// The reply code, when the broker sent one.
    pub code: Option<u16>,
    pub text: String,
    /// The cause, where it is known beyond the code.
    pub cause: Option<KnownCause>,
    /// A connection for reading got bytes that lapin could not parse, or a frame that is larger than
    /// was agreed.
    pub is_garbled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownCause {
    /// The code of the fault.
    pub code: &'static str,
    pub mend: &'static str,
    /// Another attempt with the same settings would fail in the same way.
    pub is_final: bool,
}

impl From<io::Error> for ConnectionLoss {
    fn from(error: io::Error) -> ConnectionLoss {
        ConnectionLoss::of(error.to_string())
    }
}

impl ConnectionLoss {
    /// A loss without a reply code.
    pub fn of(text: impl Into<String>) -> ConnectionLoss {
        ConnectionLoss { text: text.into(), ..ConnectionLoss::default() }
    }

    pub fn caused_by(
        self,
        code: &'static str,
        mend: &'static str,
        is_final: bool,
    ) -> ConnectionLoss {
        ConnectionLoss { cause: Some(KnownCause { code, mend, is_final }), ..self }
    }

    /// The broker closed the channel or the connection.
    pub fn refused(code: u16, text: &str) -> ConnectionLoss {
        // A node that is starting answers before its queues do, and reports them as not found. The name of
        // an exchange that is missing may have these words, too, but a quotation mark after them.
        if code == NOT_FOUND && text.ends_with(QUEUE_DOWN) {
            let mend = "wait until the node of the queue has started, or start it: rabbitmqctl cluster_status, rabbitmqctl list_queues -p VHOST name state";
            return ConnectionLoss::of(text).caused_by(UNREACHABLE, mend, false);
        }
        ConnectionLoss { code: Some(code), ..ConnectionLoss::of(text) }
    }

    fn meaning(&self) -> Option<CloseMeaning> {
        // Another login is accepted as soon as somebody else closes a channel or a connection.
        if self.is_over_limit() {
            return Some(CloseMeaning::BrokerFailure);
        }
        self.code.map(close_meaning)
    }

    /// True if the broker closed because of a message, not because of its own state.
    pub fn is_over_a_message(&self) -> bool {
        self.meaning() == Some(CloseMeaning::BadMessage)
    }

    /// True if the broker closed because a queue that a message leads to cannot take any.
    pub fn is_over_a_queue(&self) -> bool {
        self.meaning() == Some(CloseMeaning::QueueFailed) && !on(Mutant::RabbitQueueFailureIsOutage)
    }

    /// True if the broker ends all its connections, as a node does that is stopped.
    pub fn is_forced(&self) -> bool {
        self.code == Some(CONNECTION_FORCED)
    }

    /// True if the broker refused a publish: the login may not publish there.
    pub fn is_refused_publish(&self) -> bool {
        self.meaning() == Some(CloseMeaning::NotPermitted)
    }

    /// True if the broker has no exchange type of the name that was declared: up to RabbitMQ 3 the
    /// connection is closed over it, and from 4 on the channel.
    pub fn is_unknown_exchange_type(&self) -> bool {
        self.code == Some(COMMAND_INVALID)
            || self.code == Some(PRECONDITION_FAILED) && self.text.contains(UNKNOWN_EXCHANGE_TYPE)
    }

    /// True if the broker has not found the exchange of this name. It cuts its text after 252 bytes.
    pub fn misses_exchange(&self, name: &str) -> bool {
        let found = self.text.split_once("no exchange '").filter(|_| self.code == Some(NOT_FOUND));
        let expected = format!("{name}' in vhost");
        found.is_some_and(|(_, text)| {
            let cut = text.strip_suffix("...");
            text.starts_with(&expected) || cut.is_some_and(|cut| expected.starts_with(cut))
        })
    }

    /// True if the broker closed because the user has as many channels as it may.
    pub fn is_over_channels(&self) -> bool {
        self.code == Some(NOT_ALLOWED) && self.text.contains("number of channels")
    }

    /// How many channels the user may have, if the broker closed because of that and its text says it.
    pub fn channels_max(&self) -> Option<usize> {
        let (_, limit) = self.text.rsplit_once('(').filter(|_| self.is_over_channels())?;
        limit.strip_suffix(')')?.parse().ok()
    }

    /// True if the broker closed because a limit of channels or connections is reached.
    fn is_over_limit(&self) -> bool {
        let is_over_connections =
            self.code == Some(NOT_ALLOWED) && self.text.contains("connection limit");
        is_over_connections || self.is_over_channels()
    }

    /// True if the broker closed because a message is larger than it accepts.
    pub fn is_over_size(&self) -> bool {
        self.is_over_a_message() && self.text.contains("larger than")
    }

    /// The broker's limit for a body, if it closed because of that and its text names it.
    pub fn body_bytes_max(&self) -> Option<usize> {
        let words = self.text.split_whitespace().filter(|_| self.is_over_size());
        words.rev().find_map(|word| word.parse().ok())
    }

    /// True if what was in flight must be sent again one message at a time: the broker will close
    /// again over one of them, and everything sent before it would be duplicated each time.
    pub fn sends_one_at_a_time(&self) -> bool {
        self.is_refused_publish() || self.is_over_a_message() || self.is_over_a_queue()
    }

    /// True if another attempt with the same settings will fail in the same way.
    pub fn is_final(&self) -> bool {
        let refused = [CloseMeaning::LoginRefused, CloseMeaning::NotPermitted];
        self.cause.as_ref().is_some_and(|cause| cause.is_final)
            || self.meaning().is_some_and(|meaning| refused.contains(&meaning))
    }

    /// Whether the broker does not accept user or password, the certificate, or the
    /// virtual host of a connection that could not be opened.
    pub fn is_login_refused(&self) -> bool {
        self.code == Some(ACCESS_REFUSED) || self.meaning() == Some(CloseMeaning::LoginRefused)
    }

    /// The failure with which the relay stops, if this broker can never take a message.
    pub fn halting_failure(&self, address: &AmqpAddress) -> Option<Failure> {
        (self.meaning() == Some(CloseMeaning::NotImplemented)).then(|| Failure {
            disposition: Disposition::Halt,
            known: true,
            key: None,
            class: close_class(NOT_IMPLEMENTED).0,
            subject: address.place.clone(),
            reason: format!("the broker cannot do what is asked of it: {}", self.text),
            mend: "see the broker's log; let sink.rabbitmq.url lead to RabbitMQ itself, not to something that speaks less of AMQP 0-9-1"
                .to_owned(),
        })
    }

    /// Describes the loss of an established connection.
    pub fn interrupted(&self, address: &AmqpAddress) -> String {
        let text = &self.text;
        match self.code {
            Some(_) if self.is_over_limit() => {
                format!("{text}; help: {}", address.limit_mend(text))
            }
            Some(_) => text.clone(),
            None => format!("{text} ({})", address.place),
        }
    }

    /// The fault of a broker to which no connection can be opened. It may pass even if the login is
    /// refused: the next connection has the login and the certificate that the files have then.
    pub fn unreachable(&self, address: &AmqpAddress) -> Fault {
        let (code, mend) = match (self.code, &self.cause) {
            (_, Some(KnownCause { code, mend, .. })) => (*code, (*mend).to_owned()),
            (Some(ACCESS_REFUSED), _) => ("sink.login", address.login_mend()),
            _ if self.is_over_limit() => (UNREACHABLE, address.limit_mend(&self.text)),
            (Some(402 | NOT_ALLOWED), _) => {
                let grant = address.grant_rights();
                ("sink.vhost", format!("rabbitmqctl add_vhost {}; {grant}", quoted(&address.vhost)))
            }
            _ => (
                UNREACHABLE,
                "start the broker, or correct sink.rabbitmq.url; try: rabbitmq-diagnostics check_port_connectivity"
                    .to_owned(),
            ),
        };
        let what = format!("no RabbitMQ could be used: {}", self.text);
        Fault::new(Exit::Sink, code, what, address.place.clone(), mend).passing()
    }
}

#[cfg(test)]
#[path = "connection_loss_tests.rs"]
mod tests;
