//! Why there is no connection to RabbitMQ, and what mends it.

use std::io;

use lapin::{ChannelState, ErrorKind};

use super::fault::{
    ACCESS_REFUSED, COMMAND_INVALID, CloseMeaning, FRAME_ERROR, NOT_ALLOWED, NOT_FOUND,
    NOT_IMPLEMENTED, PRECONDITION_FAILED, UNKNOWN_CODE, close_class, close_meaning,
};
use super::settings::{RabbitLogin, RabbitSettings};
use crate::base::error::{Exit, Fault};
use crate::sink::{Disposition, Failure, UNREACHABLE};

/// How lapin ends a channel that the broker closed with a code that lapin does not know.
const CLOSED_WITHOUT_CODE: &str = "channel.close-ok sent";
/// In lapin's own text when the broker has sent a frame that is too large: RabbitMQ sends headers
/// in one frame, also if that is larger than was agreed.
const LARGE_FRAME: &str = "frame too large";
/// In the broker's text about a queue that exists and does not answer.
const QUEUE_DOWN: &str = "down or inaccessible";
/// In the broker's text about an exchange type.
const UNKNOWN_EXCHANGE_TYPE: &str = "unknown exchange type";
/// Configure, write and read permissions; dead letters are read.
const PUBLISH_ANYWHERE: &str = "'' '.*' '.*'";

pub(super) type AmqpResult<T> = Result<T, ConnectionLoss>;

/// Why a connection or a channel has ended, or could not be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionLoss {
    /// The reply code, when the broker sent one.
    pub(super) code: Option<u16>,
    pub(super) text: String,
    /// What is known beyond the code.
    pub(super) cause: Option<KnownCause>,
    /// lapin could not parse what the broker sent, or it was larger than a frame.
    pub(super) is_garbled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownCause {
    /// The code of the fault.
    pub(super) code: &'static str,
    pub(super) mend: &'static str,
    /// Another attempt with the same settings would fail in the same way.
    pub(super) is_final: bool,
}

impl From<lapin::Error> for ConnectionLoss {
    fn from(error: lapin::Error) -> ConnectionLoss {
        let text = error.to_string();
        match error.kind() {
            ErrorKind::ProtocolError(refusal)
                if refusal.get_id() == FRAME_ERROR
                    && refusal.get_message().as_str().starts_with(LARGE_FRAME) =>
            {
                ConnectionLoss { is_garbled: true, ..ConnectionLoss::of(text) }
            }
            ErrorKind::ProtocolError(refusal) => {
                ConnectionLoss::refused(refusal.get_id(), refusal.get_message().as_str())
            }
            ErrorKind::InvalidChannelState(ChannelState::Closing, CLOSED_WITHOUT_CODE) => {
                let text = "the channel was closed with a code that is not known";
                ConnectionLoss::refused(UNKNOWN_CODE, text)
            }
            ErrorKind::IOError(io) | ErrorKind::RuntimeShutdownError(io) => {
                ConnectionLoss::of(io.to_string())
            }
            ErrorKind::MissingHeartbeatError => {
                ConnectionLoss::of("nothing was heard for two heartbeats")
            }
            ErrorKind::ParsingError(_) => {
                ConnectionLoss { is_garbled: true, ..ConnectionLoss::of(text) }
            }
            // After any other error the state of the connection is unknown.
            _ => ConnectionLoss::of(text),
        }
    }
}

impl From<io::Error> for ConnectionLoss {
    fn from(error: io::Error) -> ConnectionLoss {
        ConnectionLoss::of(error.to_string())
    }
}

impl ConnectionLoss {
    /// A loss without a reply code.
    pub(super) fn of(text: impl Into<String>) -> ConnectionLoss {
        ConnectionLoss { text: text.into(), ..ConnectionLoss::default() }
    }

    pub(super) fn caused_by(
        self,
        code: &'static str,
        mend: &'static str,
        is_final: bool,
    ) -> ConnectionLoss {
        ConnectionLoss { cause: Some(KnownCause { code, mend, is_final }), ..self }
    }

    /// The broker closed the channel or the connection.
    pub(super) fn refused(code: u16, text: &str) -> ConnectionLoss {
        // A node that is starting answers before its queues do, and reports them as not found.
        if code == NOT_FOUND && text.contains(QUEUE_DOWN) {
            let mend = "wait until the node of the queue has started, or start it: rabbitmqctl cluster_status, rabbitmqctl list_queues name state";
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
    pub(super) fn is_over_a_message(&self) -> bool {
        self.meaning() == Some(CloseMeaning::BadMessage)
    }

    /// True if the broker refused a publish: the login may not publish there.
    pub(super) fn is_refused_publish(&self) -> bool {
        self.meaning() == Some(CloseMeaning::NotPermitted)
    }

    /// True if the broker has no exchange type of the name that was declared: up to RabbitMQ 3 the
    /// connection is closed over it, and from 4 on the channel.
    pub(super) fn is_unknown_exchange_type(&self) -> bool {
        self.code == Some(COMMAND_INVALID)
            || self.code == Some(PRECONDITION_FAILED) && self.text.contains(UNKNOWN_EXCHANGE_TYPE)
    }

    /// The exchange that the broker has not found.
    pub(super) fn missing_exchange(&self) -> Option<&str> {
        let (_, name) = self.text.split_once("no exchange '")?;
        name.split_once("' in vhost").map(|(name, _)| name).filter(|_| self.code == Some(NOT_FOUND))
    }

    /// True if the broker closed because the user has as many channels as it may.
    pub(super) fn is_over_channels(&self) -> bool {
        self.code == Some(NOT_ALLOWED) && self.text.contains("number of channels")
    }

    /// True if the broker closed because a limit of channels or connections is reached.
    fn is_over_limit(&self) -> bool {
        let is_over_connections =
            self.code == Some(NOT_ALLOWED) && self.text.contains("connection limit");
        is_over_connections || self.is_over_channels()
    }

    /// True if the broker closed because a message is larger than it accepts.
    pub(super) fn is_over_size(&self) -> bool {
        self.is_over_a_message() && self.text.contains("larger than")
    }

    /// The broker's limit for a body, if it closed because of that and its text names it.
    pub(super) fn body_bytes_max(&self) -> Option<usize> {
        let words = self.text.split_whitespace().filter(|_| self.is_over_size());
        words.rev().find_map(|word| word.parse().ok())
    }

    /// True if what was in flight must be sent again one message at a time: the broker will close
    /// again over one of them, and everything sent before it would be duplicated each time.
    pub(super) fn sends_one_at_a_time(&self) -> bool {
        self.is_refused_publish() || self.is_over_a_message()
    }

    /// True if another attempt with the same settings will fail in the same way.
    pub(super) fn is_final(&self) -> bool {
        let refused = [CloseMeaning::LoginRefused, CloseMeaning::NotPermitted];
        self.cause.as_ref().is_some_and(|cause| cause.is_final)
            || self.meaning().is_some_and(|meaning| refused.contains(&meaning))
    }

    /// Of a connection that could not be opened: true if the broker does not accept user or
    /// password, the certificate, or the virtual host.
    pub(super) fn is_login_refused(&self) -> bool {
        self.code == Some(ACCESS_REFUSED) || self.meaning() == Some(CloseMeaning::LoginRefused)
    }

    /// The failure with which the relay stops, if this broker can never take a message.
    pub(super) fn halts(&self, settings: &RabbitSettings) -> Option<Failure> {
        (self.meaning() == Some(CloseMeaning::NotImplemented)).then(|| Failure {
            disposition: Disposition::Halt,
            known: true,
            key: None,
            class: close_class(NOT_IMPLEMENTED).0,
            subject: settings.place(),
            reason: format!("the broker cannot do what is asked of it: {}", self.text),
            mend: "see the broker's log; let sink.rabbitmq.url lead to RabbitMQ itself, not to something that speaks less of AMQP 0-9-1"
                .to_owned(),
        })
    }

    /// Describes the loss of an established connection.
    pub(super) fn interrupted(&self, settings: &RabbitSettings) -> String {
        let text = &self.text;
        match self.code {
            Some(_) => text.clone(),
            None => format!("{text} ({})", settings.place()),
        }
    }

    /// The fault of a broker to which no connection can be opened.
    pub(super) fn unreachable(&self, settings: &RabbitSettings) -> Fault {
        let (code, mend) = match (self.code, &self.cause) {
            (_, Some(KnownCause { code, mend, .. })) => (*code, (*mend).to_owned()),
            (Some(ACCESS_REFUSED), _) => ("sink.login", login_mend(&settings.login)),
            _ if self.is_over_limit() => (UNREACHABLE, limit_mend(&self.text, settings)),
            (Some(402 | NOT_ALLOWED), _) => {
                let grant = grant(settings, PUBLISH_ANYWHERE);
                ("sink.vhost", format!("rabbitmqctl add_vhost {:?}; {grant}", settings.vhost))
            }
            _ => (
                UNREACHABLE,
                "start the broker, or correct sink.rabbitmq.url; try: rabbitmq-diagnostics check_port_connectivity"
                    .to_owned(),
            ),
        };
        let what = format!("no RabbitMQ could be used: {}", self.text);
        Fault::new(Exit::Sink, code, what, settings.place(), mend)
    }
}

/// The commands that permit this login to publish.
pub(super) fn permit(settings: &RabbitSettings) -> String {
    let (vhost, user) = (&settings.vhost, user(settings));
    format!(
        "{}; for a routing key: rabbitmqctl list_topic_permissions -p {vhost:?}, rabbitmqctl clear_topic_permissions -p {vhost:?} {user:?}",
        grant(settings, PUBLISH_ANYWHERE)
    )
}

/// The user that logs in, as far as the configuration names one.
pub(super) fn user(settings: &RabbitSettings) -> &str {
    match &settings.login {
        RabbitLogin::Plain(user, _) => user,
        RabbitLogin::External => "USER",
    }
}

/// The command that gives that user permissions.
pub(super) fn grant(settings: &RabbitSettings, permissions: &str) -> String {
    format!(
        "rabbitmqctl set_permissions -p {:?} {:?} {permissions}",
        settings.vhost,
        user(settings)
    )
}

/// The command that lifts the limit of which the broker's text speaks.
fn limit_mend(text: &str, settings: &RabbitSettings) -> String {
    let (user, vhost) = (user(settings), &settings.vhost);
    let is_of = |subject: &str| text.contains(subject);
    if is_of("on node") {
        "raise channel_max_per_node in rabbitmq.conf, and see: rabbitmqctl list_connections user channels".to_owned()
    } else if is_of("number of channels") {
        format!("rabbitmqctl clear_user_limits {user:?} max-channels")
    } else if is_of("node connection limit") {
        "raise connection_max in rabbitmq.conf, and see: rabbitmqctl list_connections user"
            .to_owned()
    } else if is_of("user connection limit") {
        format!("rabbitmqctl clear_user_limits {user:?} max-connections")
    } else {
        format!("rabbitmqctl clear_vhost_limits -p {vhost:?}")
    }
}

fn login_mend(login: &RabbitLogin) -> String {
    match login {
        RabbitLogin::Plain(user, _) => format!(
            "correct user and password in sink.rabbitmq.url, or: rabbitmqctl change_password {user:?} …"
        ),
        RabbitLogin::External => {
            "rabbitmqctl add_user NAME ''; rabbitmqctl clear_password NAME, where NAME is what ssl_cert_login_from in rabbitmq.conf takes from the certificate"
                .to_owned()
        }
    }
}

#[cfg(test)]
#[path = "connection_loss_tests.rs"]
mod tests;
