//! What each reply code of the broker means: the one place that decides, and from which
//! `docs/errors.md` is written. Pure.

use crate::sink::{Disposition, ErrorRow};

pub(super) const ACCESS_REFUSED: u16 = 403;
pub(super) const NOT_FOUND: u16 = 404;
pub(super) const PRECONDITION_FAILED: u16 = 406;
pub(super) const COMMAND_INVALID: u16 = 503;
pub(super) const NOT_IMPLEMENTED: u16 = 540;
pub(super) const NACK: &str = "rabbitmq.nack";
pub(super) const NO_EXCHANGE: &str = "rabbitmq.not-found";
pub(super) const NAME_TOO_LONG: &str = "rabbitmq.name-too-long";
pub(super) const HEADERS_TOO_LARGE: &str = "rabbitmq.headers-too-large";
const UNTOLD: &str = "rabbitmq.closed-unknown";

/// Stands for a code that lapin does not know, and therefore does not tell.
pub(super) const NOT_TOLD: u16 = 0;

/// What a channel or connection that was closed with a code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// The broker is unwell.
    Unwell,
    /// It will not have us: the same settings would be refused again.
    Refused,
    /// A message under way may not go where it is to go. Who mends that mends it for all.
    Forbidden,
    /// A message under way is to blame. When it was alone, it is that one.
    Message,
    /// It cannot do what we ask of it.
    Unable,
}

/// The name of a code with which AMQP 0-9-1 closes, and what it says.
pub(super) fn closed(code: u16) -> Option<(&'static str, Closed)> {
    Some(match code {
        311 => ("content-too-large", Closed::Message),
        313 => ("no-consumers", Closed::Message),
        320 => ("connection-forced", Closed::Unwell),
        402 => ("invalid-path", Closed::Refused),
        ACCESS_REFUSED => ("access-refused", Closed::Forbidden),
        NOT_FOUND => ("not-found", Closed::Unwell),
        405 => ("resource-locked", Closed::Unwell),
        // A message above the broker's limit, or with headers that it refuses.
        PRECONDITION_FAILED => ("precondition-failed", Closed::Message),
        // What only malformed content can cause.
        501 => ("frame-error", Closed::Message),
        502 => ("syntax-error", Closed::Message),
        COMMAND_INVALID => ("command-invalid", Closed::Message),
        504 => ("channel-error", Closed::Unwell),
        505 => ("unexpected-frame", Closed::Message),
        506 => ("resource-error", Closed::Unwell),
        530 => ("not-allowed", Closed::Refused),
        NOT_IMPLEMENTED => ("not-implemented", Closed::Unable),
        541 => ("internal-error", Closed::Unwell),
        _ => return None,
    })
}

/// The name of a code with which a message comes back, and what follows for it.
pub(super) fn returned(code: u16) -> Option<(&'static str, Disposition)> {
    Some(match code {
        312 => ("no-route", Disposition::Transient),
        313 => ("no-consumers", Disposition::Transient),
        _ => return None,
    })
}

/// Class of the event over which the broker closed.
pub(super) fn closed_class(code: u16) -> String {
    match closed(code) {
        Some((name, _)) => format!("rabbitmq.{name}"),
        None if code == NOT_TOLD => UNTOLD.to_owned(),
        None => format!("rabbitmq.closed-{code}"),
    }
}

/// Class of an event that came back.
pub(super) fn returned_class(code: u16) -> String {
    returned(code)
        .map_or_else(|| format!("rabbitmq.returned-{code}"), |(name, _)| format!("rabbitmq.{name}"))
}

/// The same answers as lines for people.
pub(in crate::sink) fn rows() -> Vec<ErrorRow> {
    let row = |code: String, description: &str, class: String, disposition| {
        let description = description.to_owned();
        ErrorRow { code, description, class, disposition }
    };
    let close = |code: u16| {
        let (name, why) = closed(code)?;
        let (what, disposition) = match why {
            Closed::Unwell => ("the broker is unwell", Disposition::Outage),
            Closed::Refused => ("the login is refused", Disposition::Outage),
            Closed::Forbidden => ("the login, or a publish of it, is refused", Disposition::Outage),
            Closed::Message => ("an event is to blame", Disposition::Terminal),
            Closed::Unable => ("the broker cannot do it", Disposition::Halt),
        };
        let description = format!("closed, {name}: {what}");
        Some(row(code.to_string(), &description, closed_class(code), disposition))
    };
    let back = |code: u16| {
        let (name, disposition) = returned(code)?;
        let description = format!("returned, {name}");
        Some(row(code.to_string(), &description, returned_class(code), disposition))
    };
    let mut rows: Vec<ErrorRow> = (0..1000).filter_map(back).collect();
    rows.extend((0..1000).filter_map(close));
    let others = [
        ("nack", "a queue is full, or failed", NACK, Disposition::Transient),
        ("404", "there is no such exchange", NO_EXCHANGE, Disposition::Transient),
        ("any other", "closed with a code that is not known", UNTOLD, Disposition::Terminal),
        (
            "any other",
            "returned with a code that is not known",
            "rabbitmq.returned-…",
            Disposition::Terminal,
        ),
        ("–", "a name has more than 255 bytes", NAME_TOO_LONG, Disposition::Terminal),
        ("–", "the headers fill more than a frame", HEADERS_TOO_LARGE, Disposition::Terminal),
        ("–", "the connection ended, or was never there", "–", Disposition::Outage),
        ("blocked", "the broker takes nothing for now", "–", Disposition::Outage),
    ];
    rows.extend(
        others.map(|(code, what, class, it)| row(code.to_owned(), what, class.to_owned(), it)),
    );
    rows
}

#[cfg(test)]
#[path = "replies_tests.rs"]
mod tests;
