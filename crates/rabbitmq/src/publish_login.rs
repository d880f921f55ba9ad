//! The login of a connection that is published on. It waits, so it is done on an async runtime; the
//! socket is taken out of that afterwards.

use std::io;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use walrelay_amqp::frame::Frame;
use walrelay_amqp::login::{Login, LoginError, LoginRequest};
use walrelay_amqp::method::Mechanism;
use walrelay_amqp::session::{Event, Session};

use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::dial::{self, Dialled, HostAddress, dial};
use super::fault::COMMAND_INVALID;
use super::limits::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use super::publish_connection::{PublishConnection, unreadable};
use super::settings::{RabbitLogin, RabbitSettings};
use super::tls;
use walrelay_base::transport::Transport;
use walrelay_sink::UNREACHABLE;

/// A connection that is open, before its socket is taken out of the runtime.
struct LoggedIn {
    session: Session,
    /// The channel in confirm mode.
    channel: u16,
    /// The events that the server has sent besides.
    events: Vec<Event>,
    /// The bytes of the next frame that have arrived.
    input: Vec<u8>,
}

/// Connects to the first host that accepts the login, beginning with number `from`.
pub(super) async fn connect(
    settings: &RabbitSettings,
    from: usize,
) -> AmqpResult<PublishConnection> {
    dial::first_host(settings, from, async |at| log_in(settings, at).await).await
}

/// Logs in at one address, and opens a channel in confirm mode.
pub(super) async fn log_in(
    settings: &RabbitSettings,
    at: HostAddress,
) -> AmqpResult<PublishConnection> {
    let request = request(settings)?;
    let (mut stream, socket) = dial(settings, at).await?;
    let mut frame_bytes_offered = 0;
    let opening = async {
        match &mut stream {
            Dialled::Plain(stream) => open(stream, request, &mut frame_bytes_offered).await,
            Dialled::Encrypted(stream) => open(stream, request, &mut frame_bytes_offered).await,
        }
    };
    let opened = dial::in_time(settings, opening).await.and_then(|opened| opened);
    check_frames(settings, frame_bytes_offered as usize)?;
    let LoggedIn { session, channel, events, input } =
        opened.map_err(|loss| likely_cause(settings, loss))?;
    let failed = |error: io::Error| tls::loss_of(&error);
    let transport = match stream {
        Dialled::Plain(stream) => Transport::new(stream.into_std().map_err(failed)?, None),
        Dialled::Encrypted(stream) => {
            let (stream, tls) = stream.into_inner();
            Transport::new(stream.into_std().map_err(failed)?, Some(tls))
        }
    };
    let transport = transport.map_err(failed)?;
    socket.release();
    Ok(PublishConnection::new(transport, session, at.host, channel, events, input))
}

fn request(settings: &RabbitSettings) -> AmqpResult<LoginRequest> {
    let mechanism = match dial::login(settings)? {
        RabbitLogin::Plain(user, password) => Mechanism::Plain(user, password.expose().to_owned()),
        RabbitLogin::External => Mechanism::External,
    };
    Ok(LoginRequest {
        mechanism,
        vhost: settings.vhost.clone(),
        frame_max: FRAME_BYTES_MAX,
        heartbeat_s: dial::heartbeat_s(settings),
        connection_name: "walrelay".to_owned(),
    })
}

async fn open(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: LoginRequest,
    frame_bytes_offered: &mut u32,
) -> AmqpResult<LoggedIn> {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut login = Login::begin(request, &mut out);
    let mut session = loop {
        let agreed =
            next(stream, &mut input, &mut out, |frame, out| login.take(frame, out)).await?;
        *frame_bytes_offered = login.frame_max_offered();
        match agreed {
            Ok(Some(agreed)) => break Session::new(agreed, Instant::now()),
            Ok(None) => {}
            Err(error) => {
                // The answer to a close, which the server may not wait for.
                let _answered = stream.write_all(&out).await.is_ok();
                return Err(refused(error));
            }
        }
    };
    let mut events = Vec::new();
    if !session.open_channel(&mut out) {
        return Err(ConnectionLoss::of("the broker allows no channel"));
    }
    loop {
        let event =
            next(stream, &mut input, &mut out, |frame, out| session.take(frame, out)).await?;
        match event.map_err(unreadable)? {
            Some(Event::ChannelOpened(channel)) => {
                send(stream, &out).await?;
                return Ok(LoggedIn { session, channel, events, input });
            }
            Some(Event::ChannelClosed { code, text } | Event::Closed { code, text }) => {
                let _answered = stream.write_all(&out).await.is_ok();
                return Err(ConnectionLoss::refused(code, &text));
            }
            event => events.extend(event),
        }
    }
}

/// Sends what is to be sent, waits until a whole frame has arrived, and passes it to `take`, which
/// adds its answer to `out`.
async fn next<T>(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    input: &mut Vec<u8>,
    out: &mut Vec<u8>,
    take: impl FnOnce(Frame<'_>, &mut Vec<u8>) -> T,
) -> AmqpResult<T> {
    send(stream, out).await?;
    out.clear();
    loop {
        if let Some((frame, length)) = Frame::split(input).map_err(unreadable)? {
            let taken = take(frame, out);
            input.drain(..length);
            return Ok(taken);
        }
        let read = stream.read_buf(input).await.map_err(|error| tls::loss_of(&error))?;
        if read == 0 {
            return Err(ConnectionLoss::of("the server hung up during the login"));
        }
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> AmqpResult<()> {
    let sent = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| tls::loss_of(&error))
}

fn refused(error: LoginError) -> ConnectionLoss {
    match error {
        LoginError::Refused(code, text) => ConnectionLoss::refused(code, &text),
        LoginError::Malformed(malformed) => unreadable(malformed),
        LoginError::Unexpected(class, method) => {
            ConnectionLoss::of(format!("the server sent method {class}.{method} in a login"))
        }
    }
}

/// A broker whose frames are too small for itself hangs up without a reason.
fn check_frames(settings: &RabbitSettings, offered: usize) -> AmqpResult<()> {
    if !(1..FRAME_BYTES_MIN).contains(&offered) {
        return Ok(());
    }
    let mend = "raise frame_max in rabbitmq.conf to 8192 at least (its default is 131072), and restart the broker";
    let text = format!("its frames have {offered} bytes at most, and {FRAME_BYTES_MIN} are needed");
    // Another host may be good, and away for a while.
    let is_final = settings.hosts.len() == 1;
    Err(ConnectionLoss::of(text).caused_by("sink.frame-max", mend, is_final))
}

/// Adds the likely cause to the loss of a server that closes the connection during the login, or is
/// silent, without a reason.
pub(super) fn likely_cause(settings: &RabbitSettings, loss: ConnectionLoss) -> ConnectionLoss {
    let is_external = settings.login == RabbitLogin::External;
    // The broker's answer to a login mechanism that it does not have.
    if loss.code == Some(COMMAND_INVALID) && is_external {
        let mend = "rabbitmq-plugins enable rabbitmq_auth_mechanism_ssl, and in rabbitmq.conf: auth_mechanisms.1 = EXTERNAL";
        return loss.caused_by("sink.login", mend, true);
    }
    // Some versions close the connection without an answer.
    if loss.code.is_none() && loss.cause.is_none() && is_external {
        let mend = "if the broker does not offer the mechanism EXTERNAL: rabbitmq-plugins enable rabbitmq_auth_mechanism_ssl, and in rabbitmq.conf: auth_mechanisms.1 = EXTERNAL; if it does, see its log, and try: rabbitmq-diagnostics listeners";
        return loss.caused_by(UNREACHABLE, mend, false);
    }
    if loss.code.is_none() && !settings.is_encrypted {
        let mend = "if that is a TLS port, write amqps:// in sink.rabbitmq.url; else see the broker's log, and try: rabbitmq-diagnostics listeners";
        return loss.caused_by(UNREACHABLE, mend, false);
    }
    loss
}

#[cfg(test)]
#[path = "publish_login_tests.rs"]
mod tests;
