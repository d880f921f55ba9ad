//! What the broker's reply codes mean: the one place that decides, and from which `docs/errors.md`
//! is written; and why there is no connection, with what mends it.

use lapin::{ChannelState, ErrorKind};

use super::settings::{RabbitLogin, RabbitSettings};
use super::tls::TlsFailure;
use crate::base::error::{Exit, Fault};
use crate::sink::{Disposition, ErrorRow, Failure, UNREACHABLE};

pub(super) const ACCESS_REFUSED: u16 = 403;
pub(super) const NOT_FOUND: u16 = 404;
pub(super) const PRECONDITION_FAILED: u16 = 406;
pub(super) const COMMAND_INVALID: u16 = 503;
const NOT_IMPLEMENTED: u16 = 540;
/// Stands for a code that lapin does not know, and therefore does not pass on.
const UNKNOWN_CODE: u16 = 0;

pub(super) const NACK: &str = "rabbitmq.nack";
pub(super) const NO_EXCHANGE: &str = "rabbitmq.not-found";
pub(super) const NAME_TOO_LONG: &str = "rabbitmq.name-too-long";
pub(super) const HEADERS_TOO_LARGE: &str = "rabbitmq.headers-too-large";
const CLOSED_UNKNOWN: &str = "rabbitmq.closed-unknown";

/// What a channel or connection that was closed with a code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseMeaning {
    BrokerUnwell,
    /// The same settings would be refused again.
    LoginRefused,
    /// A message in flight may not go where it is to go. Who mends that mends it for all.
    NotPermitted,
    /// A message in flight is to blame. When it was alone, it is that one.
    BadMessage,
    NotImplemented,
}

use CloseMeaning::{BadMessage, BrokerUnwell, LoginRefused, NotImplemented, NotPermitted};

/// The codes with which AMQP 0-9-1 closes.
const CLOSE_CODES: [(u16, &str, CloseMeaning); 17] = [
    (311, "content-too-large", BadMessage),
    (313, "no-consumers", BadMessage),
    (320, "connection-forced", BrokerUnwell),
    (402, "invalid-path", LoginRefused),
    (ACCESS_REFUSED, "access-refused", NotPermitted),
    (NOT_FOUND, "not-found", BrokerUnwell),
    (405, "resource-locked", BrokerUnwell),
    // A message above the broker's limit, or with headers that it refuses.
    (PRECONDITION_FAILED, "precondition-failed", BadMessage),
    // What only malformed content can cause: 501 to 503, and 505.
    (501, "frame-error", BadMessage),
    (502, "syntax-error", BadMessage),
    (COMMAND_INVALID, "command-invalid", BadMessage),
    (504, "channel-error", BrokerUnwell),
    (505, "unexpected-frame", BadMessage),
    (506, "resource-error", BrokerUnwell),
    (530, "not-allowed", LoginRefused),
    (NOT_IMPLEMENTED, "not-implemented", NotImplemented),
    (541, "internal-error", BrokerUnwell),
];

/// The codes with which a message is returned.
const RETURN_CODES: [(u16, &str, Disposition); 2] =
    [(312, "no-route", Disposition::Transient), (313, "no-consumers", Disposition::Transient)];

fn close_meaning(code: u16) -> Option<CloseMeaning> {
    CLOSE_CODES.iter().find(|(known, ..)| *known == code).map(|(.., meaning)| *meaning)
}

/// Class of the event over which the broker closed, and whether the code is known.
pub(super) fn close_class(code: u16) -> (String, bool) {
    match CLOSE_CODES.iter().find(|(known, ..)| *known == code) {
        Some((_, name, _)) => (format!("rabbitmq.{name}"), true),
        None if code == UNKNOWN_CODE => (CLOSED_UNKNOWN.to_owned(), false),
        None => (format!("rabbitmq.closed-{code}"), false),
    }
}

/// Class of an event that was returned, and what follows for it, where the code is known.
pub(super) fn return_class(code: u16) -> (String, Option<Disposition>) {
    match RETURN_CODES.iter().find(|(known, ..)| *known == code) {
        Some((_, name, disposition)) => (format!("rabbitmq.{name}"), Some(*disposition)),
        None => (format!("rabbitmq.returned-{code}"), None),
    }
}

/// Every answer to a publish, for `docs/errors.md`.
pub(in crate::sink) fn rows() -> Vec<ErrorRow> {
    let row = |code: &str, description: &str, class: &str, disposition| {
        let [code, description, class] = [code, description, class].map(str::to_owned);
        ErrorRow { code, description, class, disposition }
    };
    let returned = RETURN_CODES.iter().map(|(code, name, disposition)| {
        let class = return_class(*code).0;
        row(&code.to_string(), &format!("returned, {name}"), &class, *disposition)
    });
    let closed = CLOSE_CODES.iter().map(|(code, name, meaning)| {
        let (what, disposition) = match meaning {
            BrokerUnwell => ("the broker is unwell", Disposition::Outage),
            LoginRefused => ("the login is refused", Disposition::Outage),
            NotPermitted => ("the login, or a publish of it, is refused", Disposition::Outage),
            BadMessage => ("an event is to blame", Disposition::Terminal),
            NotImplemented => ("the broker cannot do it", Disposition::Halt),
        };
        let description = format!("closed, {name}: {what}");
        row(&code.to_string(), &description, &close_class(*code).0, disposition)
    });
    let returned_unknown = "returned with a code that is not known";
    let others = [
        ("nack", "a queue is full, or failed", NACK, Disposition::Transient),
        ("404", "there is no such exchange", NO_EXCHANGE, Disposition::Transient),
        (
            "any other",
            "closed with a code that is not known",
            CLOSED_UNKNOWN,
            Disposition::Terminal,
        ),
        ("any other", returned_unknown, "rabbitmq.returned-…", Disposition::Terminal),
        ("–", "a name has more than 255 bytes", NAME_TOO_LONG, Disposition::Terminal),
        ("–", "the headers fill more than a frame", HEADERS_TOO_LARGE, Disposition::Terminal),
        ("–", "the connection ended, or was never there", "–", Disposition::Outage),
        ("blocked", "the broker takes nothing for now", "–", Disposition::Outage),
    ];
    let others = others.iter().map(|(code, what, class, it)| row(code, what, class, *it));
    returned.chain(closed).chain(others).collect()
}

/// How lapin ends a channel that the broker closed with a code that it does not know.
const CLOSED_WITHOUT_CODE: &str = "channel.close-ok sent";
/// What the broker says of a queue that is there and does not answer.
const QUEUE_DOWN: &str = "down or inaccessible";

pub(super) type AmqpResult<T> = Result<T, ConnectionLoss>;

/// Why there is no connection (any more).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionLoss {
    /// The reply code, when the broker gave one.
    pub(super) code: Option<u16>,
    /// For people.
    pub(super) text: String,
    /// What is behind it, when that is known better than from the code.
    pub(super) cause: Option<KnownCause>,
    /// What the broker sent is more than the client can read.
    pub(super) is_garbled: bool,
}

/// A cause with a remedy of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownCause {
    /// The fault's code.
    pub(super) code: &'static str,
    pub(super) mend: &'static str,
    /// Another attempt with the same settings would fail in the same way.
    pub(super) is_final: bool,
}

impl From<lapin::Error> for ConnectionLoss {
    fn from(error: lapin::Error) -> ConnectionLoss {
        let text = error.to_string();
        let blamed = |text| ConnectionLoss { code: Some(UNKNOWN_CODE), ..ConnectionLoss::of(text) };
        match error.kind() {
            ErrorKind::ProtocolError(refusal) => {
                ConnectionLoss::refused(refusal.get_id(), refusal.get_message().to_string())
            }
            ErrorKind::InvalidChannelState(ChannelState::Closing, CLOSED_WITHOUT_CODE) => {
                blamed("the channel was closed with a code that is not known".to_owned())
            }
            // A message is to blame, and would be again.
            ErrorKind::SerialisationError(_) => {
                blamed(format!("AMQP cannot carry a message: {text}"))
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
            // The connection is in doubt, whatever else it may be.
            _ => ConnectionLoss::of(text),
        }
    }
}

impl From<TlsFailure> for ConnectionLoss {
    fn from(failure: TlsFailure) -> ConnectionLoss {
        let TlsFailure { text, code, mend } = failure;
        ConnectionLoss::of(text).caused_by(code, mend, true)
    }
}

impl From<std::io::Error> for ConnectionLoss {
    fn from(error: std::io::Error) -> ConnectionLoss {
        let tls = TlsFailure::of(&error).map(ConnectionLoss::from);
        tls.unwrap_or_else(|| ConnectionLoss::of(error.to_string()))
    }
}

impl ConnectionLoss {
    /// Without a reply code.
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

    fn refused(code: u16, text: String) -> ConnectionLoss {
        // A node that starts answers sooner than its queues, and calls them not found.
        if code == NOT_FOUND && text.contains(QUEUE_DOWN) {
            let mend = "wait until the node of the queue has started, or start it: rabbitmqctl cluster_status, rabbitmqctl list_queues name state";
            return ConnectionLoss::of(text).caused_by(UNREACHABLE, mend, false);
        }
        ConnectionLoss { code: Some(code), ..ConnectionLoss::of(text) }
    }

    fn meaning(&self) -> Option<CloseMeaning> {
        self.code.and_then(close_meaning)
    }

    /// Did the broker close over what one message is, and not over its own state?
    pub(super) fn is_over_a_message(&self) -> bool {
        let meaning = self.meaning();
        if let (Some(code), None) = (self.code, meaning) {
            tracing::warn!(code, "a reply code that is not known");
            return true;
        }
        meaning == Some(BadMessage)
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
    pub(super) fn sends_one_at_a_time(&self) -> bool {
        self.meaning() == Some(NotPermitted) || self.is_over_a_message()
    }

    /// Will another attempt with the same settings fail in the same way?
    pub(super) fn is_final(&self) -> bool {
        let known = self.cause.as_ref().is_some_and(|cause| cause.is_final);
        known || matches!(self.meaning(), Some(LoginRefused | NotPermitted))
    }

    /// The failure of every event, when the broker cannot do what each asks of it.
    pub(super) fn halts(&self, settings: &RabbitSettings) -> Option<Failure> {
        (self.meaning() == Some(NotImplemented)).then(|| Failure {
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

    /// Why a connection that was there is lost.
    pub(super) fn interrupted(&self, settings: &RabbitSettings) -> String {
        let text = &self.text;
        match (self.code, &settings.login) {
            (Some(ACCESS_REFUSED), RabbitLogin::Plain(..)) => {
                format!("{text}; to mend it: {}", grant(settings, PUBLISH_ANYWHERE))
            }
            (Some(_), _) => text.clone(),
            (None, _) => format!("{text} ({})", settings.place()),
        }
    }

    /// The broker cannot be used.
    pub(super) fn unreachable(&self, settings: &RabbitSettings) -> Fault {
        let (code, mend) = match (self.code, &self.cause) {
            (_, Some(KnownCause { code, mend, .. })) => (*code, (*mend).to_owned()),
            (Some(ACCESS_REFUSED), _) => ("sink.login", login_mend(&settings.login)),
            (Some(402 | 530), _) => {
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

/// Configure, write, read: the dead letters are read.
const PUBLISH_ANYWHERE: &str = "'' '.*' '.*'";

/// Who logs in, as far as the configuration says.
pub(super) fn user(settings: &RabbitSettings) -> &str {
    match &settings.login {
        RabbitLogin::Plain(user, _) => user,
        RabbitLogin::External => "USER",
    }
}

/// The command that gives that user rights.
pub(super) fn grant(settings: &RabbitSettings, rights: &str) -> String {
    format!("rabbitmqctl set_permissions -p {:?} {:?} {rights}", settings.vhost, user(settings))
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
#[path = "fault_tests.rs"]
mod tests;
