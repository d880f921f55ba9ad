//! Meanings of RabbitMQ's answers to a publish for the event; `docs/errors.md` is written from
//! here.

use crate::sink::{Disposition, ErrorRow};

/// A node closes its connections with it when it is stopped.
pub const CONNECTION_FORCED: u16 = 320;
pub const ACCESS_REFUSED: u16 = 403;
pub const NOT_FOUND: u16 = 404;
pub const PRECONDITION_FAILED: u16 = 406;
pub const FRAME_ERROR: u16 = 501;
pub const COMMAND_INVALID: u16 = 503;
pub const RESOURCE_ERROR: u16 = 506;
pub const NOT_ALLOWED: u16 = 530;
pub const NOT_IMPLEMENTED: u16 = 540;
/// Stands for the code of a close over a question or a declaration that lapin does not know and
/// therefore does not pass on. Closes over publishes have their codes.
pub const UNKNOWN_CODE: u16 = 0;

pub const NACK: &str = "rabbitmq.nack";
pub const NO_EXCHANGE: &str = "rabbitmq.not-found";
pub const NAME_TOO_LONG: &str = "rabbitmq.name-too-long";
pub const HEADERS_TOO_LARGE: &str = "rabbitmq.headers-too-large";
pub const MESSAGE_TOO_LARGE: &str = "rabbitmq.message-too-large";

/// Why a broker closes a channel or a connection with a reply code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMeaning {
    BrokerFailure,
    /// Another login with the same settings would be refused, too.
    LoginRefused,
    /// The login lacks a right; granting it mends all events.
    NotPermitted,
    /// Caused by a message in flight.
    BadMessage,
    /// A queue that a message in flight leads to cannot take any: a stream without its coordinator, or one that
    /// the coordinator does not know.
    QueueFailed,
    NotImplemented,
}

use CloseMeaning::{
    BadMessage, BrokerFailure, LoginRefused, NotImplemented, NotPermitted, QueueFailed,
};

/// The reply codes of AMQP 0-9-1 for a close.
const CLOSE_CODES: [(u16, &str, CloseMeaning); 17] = [
    (311, "content-too-large", BadMessage),
    (313, "no-consumers", BadMessage),
    (CONNECTION_FORCED, "connection-forced", BrokerFailure),
    (402, "invalid-path", LoginRefused),
    (ACCESS_REFUSED, "access-refused", NotPermitted),
    (NOT_FOUND, "not-found", BrokerFailure),
    (405, "resource-locked", BrokerFailure),
    // Headers that the broker refuses; also a message above max_message_size, which is not sent
    // again.
    (PRECONDITION_FAILED, "precondition-failed", BadMessage),
    // 501 to 503 and 505 can only be caused by malformed content.
    (FRAME_ERROR, "frame-error", BadMessage),
    (502, "syntax-error", BadMessage),
    (COMMAND_INVALID, "command-invalid", BadMessage),
    (504, "channel-error", BrokerFailure),
    (505, "unexpected-frame", BadMessage),
    (RESOURCE_ERROR, "resource-error", QueueFailed),
    (NOT_ALLOWED, "not-allowed", LoginRefused),
    (NOT_IMPLEMENTED, "not-implemented", NotImplemented),
    (541, "internal-error", BrokerFailure),
];

/// The reply codes with which a message is returned.
const RETURN_CODES: [(u16, &str); 2] = [(312, "no-route"), (313, "no-consumers")];

/// A code that is not known counts as caused by a message: what was in flight is then sent one by
/// one, and only a message over which the broker closes again becomes a dead letter.
pub fn close_meaning(code: u16) -> CloseMeaning {
    let known = CLOSE_CODES.iter().find(|(known, ..)| *known == code);
    known.map_or(BadMessage, |(.., meaning)| *meaning)
}

/// The class of an event over which the broker closed, and whether the code is known.
pub fn close_class(code: u16) -> (String, bool) {
    match CLOSE_CODES.iter().find(|(known, ..)| *known == code) {
        Some((_, name, _)) => (format!("rabbitmq.{name}"), true),
        None => (format!("rabbitmq.closed-{code}"), false),
    }
}

/// The class of an event that was returned, and whether the code is known.
pub fn return_class(code: u16) -> (String, bool) {
    match RETURN_CODES.iter().find(|(known, _)| *known == code) {
        Some((_, name)) => (format!("rabbitmq.{name}"), true),
        None => (format!("rabbitmq.returned-{code}"), false),
    }
}

/// Every answer to a publish.
pub fn rows() -> Vec<ErrorRow> {
    use Disposition::{Delayed, Halt, Outage, Terminal, Transient};
    let row = |code: &str, description: &str, class: &str, disposition| {
        let [code, description, class] = [code, description, class].map(str::to_owned);
        ErrorRow { code, description, class, disposition }
    };
    let returned = RETURN_CODES.iter().map(|(code, name)| {
        row(&code.to_string(), &format!("returned, {name}"), &return_class(*code).0, Transient)
    });
    let closed = CLOSE_CODES.iter().map(|(code, name, meaning)| {
        let (what, disposition) = match meaning {
            BrokerFailure => ("the broker failed", Outage),
            LoginRefused => ("the login is refused", Outage),
            NotPermitted => ("the login may not publish there", Transient),
            BadMessage => ("an event caused it", Terminal),
            QueueFailed => ("a queue that the event leads to has failed", Delayed),
            NotImplemented => ("the broker cannot do it", Halt),
        };
        let description = format!("closed, {name}: {what}");
        row(&code.to_string(), &description, &close_class(*code).0, disposition)
    });
    let others = [
        ("nack", "a queue is full, or failed", NACK, Transient),
        ("404", "there is no such exchange", NO_EXCHANGE, Transient),
        ("403", "a connection is refused: the login is wrong", "–", Outage),
        ("any other", "closed with a code that is not known", "rabbitmq.closed-…", Terminal),
        ("any other", "returned with a code that is not known", "rabbitmq.returned-…", Terminal),
        ("–", "a name has more than 255 bytes", NAME_TOO_LONG, Terminal),
        ("–", "the headers fill more than a frame", HEADERS_TOO_LARGE, Terminal),
        ("–", "the body is larger than the broker takes", MESSAGE_TOO_LARGE, Terminal),
        ("–", "the connection ended, or was never there", "–", Outage),
        ("blocked", "the broker accepts no messages for now", "–", Outage),
    ];
    let others = others.iter().map(|(code, what, class, it)| row(code, what, class, *it));
    returned.chain(closed).chain(others).collect()
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
