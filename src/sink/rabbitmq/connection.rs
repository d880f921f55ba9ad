//! A connection with one confirm channel to publish on, and a [`Probe`] to ask over.
//!
//! The socket is dialled here and handed to lapin: a connection attempt has a deadline, lapin's side
//! can be cut from here, and TLS is ours as well ([`super::tls`]).

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_compat::CompatExt as _;
use async_rs::Runtime;
use futures_util::{Stream, StreamExt as _};
use lapin::options::ConfirmSelectOptions;
use lapin::uri::{
    AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism,
};
use lapin::{AsyncTcpStream, Channel, ConnectionProperties, Error, Event};
use socket2::{SockRef, Socket, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::fault::{AmqpResult, COMMAND_INVALID, ConnectionLoss};
use super::message::FRAME_BYTES_MAX;
use super::probe::Probe;
use super::settings::{RabbitHost, RabbitLogin, RabbitSettings};
use super::tls::{self, TlsBridge};
use crate::base::error::Fault;
use crate::sink::UNREACHABLE;

const CLOSE_WITHIN: Duration = Duration::from_millis(500);

type ConnectionEvents = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// An open connection.
pub(super) struct AmqpConnection {
    pub(super) probe: Probe,
    /// In confirm mode.
    pub(super) channel: Channel,
    /// Which of the hosts it is to.
    pub(super) host: usize,
    events: ConnectionEvents,
    /// Cut with the connection, so that nothing of it is delivered behind what the next one sends.
    _socket: ShutdownOnDrop,
    _tls: Option<TlsBridge>,
}

/// Ends a socket that lapin holds.
#[derive(Debug)]
struct ShutdownOnDrop(Socket);

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        // It may have been closed by the other side.
        let _gone_already = self.0.shutdown(Shutdown::Both).is_err();
    }
}

impl AmqpConnection {
    /// To the first host that lets us in, beginning with number `from`; else what they all said, with
    /// what follows from the most final of them.
    pub(super) async fn open(settings: &RabbitSettings, from: usize) -> AmqpResult<AmqpConnection> {
        let mut losses: Vec<ConnectionLoss> = Vec::new();
        let count = settings.hosts.len();
        for at in (0..count).map(|step| from.wrapping_add(step) % count) {
            let host = &settings.hosts[at];
            match AmqpConnection::log_in(settings, at).await {
                Ok(connection) => return Ok(connection),
                Err(loss) => {
                    losses.push(ConnectionLoss { text: format!("{host}: {}", loss.text), ..loss });
                }
            }
        }
        let text = losses.iter().map(|loss| loss.text.as_str()).collect::<Vec<_>>().join("; ");
        let most_final = losses.iter().position(ConnectionLoss::is_final).or(count.checked_sub(1));
        Err(match most_final {
            Some(at) => ConnectionLoss { text, ..losses.swap_remove(at) },
            None => ConnectionLoss::of("no host is configured"),
        })
    }

    /// The same for a command, which has no other use for the loss than to show it.
    pub(super) async fn open_once(settings: &RabbitSettings) -> Result<AmqpConnection, Fault> {
        let opened = AmqpConnection::open(settings, 0).await;
        opened.map_err(|loss| loss.unreachable(settings))
    }

    async fn log_in(settings: &RabbitSettings, at: usize) -> AmqpResult<AmqpConnection> {
        let host = &settings.hosts[at];
        let limit = settings.connect_timeout;
        let late = || ConnectionLoss::of(format!("no answer within {} s", limit.as_secs_f32()));
        let dialled = timeout(limit, dial(settings, host)).await;
        let (stream, tls) = dialled.map_err(|_| late())??;
        // Cut when the login fails: lapin's thread would wait for ever on a server that is silent.
        let socket = ShutdownOnDrop(SockRef::from(&stream).try_clone()?);
        let opening = async {
            let connection = shake_hands(settings, host, stream).await?;
            let events: ConnectionEvents = Box::pin(connection.events_listener());
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            lapin::Result::Ok((connection, channel, events))
        };
        let opened = match timeout(limit, opening).await {
            Ok(opened) => opened.map_err(ConnectionLoss::from),
            Err(_) => Err(late()),
        };
        let opened = opened.map_err(|loss| likely_cause(settings, loss, tls.as_ref()));
        let (connection, channel, events) = opened?;
        let probe = Probe(Arc::new(connection));
        let connection =
            AmqpConnection { probe, channel, host: at, events, _socket: socket, _tls: tls };
        Ok(connection)
    }

    /// The next event of the connection. The close of a probe's channel is left out: lapin reports
    /// it as if it were the connection's.
    pub(super) async fn event(&mut self) -> Option<Event> {
        loop {
            let event = self.events.next().await;
            if !(matches!(event, Some(Event::Error(_))) && self.is_open()) {
                return event;
            }
        }
    }

    /// Why it ended, if it says so in time.
    pub(super) async fn reason(&mut self, patience: Duration) -> Option<ConnectionLoss> {
        let reason = async {
            loop {
                if let Event::Error(error) = self.event().await? {
                    return Some(error.into());
                }
            }
        };
        timeout(patience, reason).await.ok().flatten()
    }

    /// Can messages be published over it?
    pub(super) fn is_open(&self) -> bool {
        self.probe.0.status().connected() && self.channel.status().connected()
    }

    /// Does the broker take no messages for now?
    pub(super) fn is_blocked(&self) -> bool {
        self.probe.0.status().blocked()
    }

    pub(super) async fn close(&self) {
        let farewell = self.probe.0.close(200, "".into());
        let _in_time = timeout(CLOSE_WITHIN, farewell).await.is_ok();
    }
}

/// What the AMQP client is given, and what carries its bytes when they are encrypted.
async fn dial(
    settings: &RabbitSettings,
    host: &RabbitHost,
) -> io::Result<(TcpStream, Option<TlsBridge>)> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let addresses: Vec<SocketAddr> = lookup_host((host.name.as_str(), host.port)).await?.collect();
    for address in addresses {
        let stream = match TcpStream::connect(address).await {
            Ok(stream) => stream,
            Err(error) => {
                last = error;
                continue;
            }
        };
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        // What a dead connection still holds must not be delivered behind what the next one sends.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(settings.heartbeat))?;
        let Some(tls) = &settings.tls else { return Ok((stream, None)) };
        let (plain, bridge) = TlsBridge::over(tls::connect(stream, &host.name, tls).await?)?;
        return Ok((plain, Some(bridge)));
    }
    Err(last)
}

/// A server that hangs up during the login, or is silent, gives no reason: this adds the likely one.
fn likely_cause(
    settings: &RabbitSettings,
    loss: ConnectionLoss,
    tls: Option<&TlsBridge>,
) -> ConnectionLoss {
    if let Some(failure) = tls.and_then(TlsBridge::failure) {
        return failure.clone().into();
    }
    // What a login mechanism that is not there is answered with.
    if loss.code == Some(COMMAND_INVALID) && settings.login == RabbitLogin::External {
        let mend = "rabbitmq-plugins enable rabbitmq_auth_mechanism_ssl, and in rabbitmq.conf: auth_mechanisms.1 = EXTERNAL";
        return loss.caused_by("sink.login", mend, true);
    }
    if loss.code.is_none() && settings.tls.is_none() {
        let mend = "if that is a TLS port, write amqps:// in sink.rabbitmq.url; else see the broker's log, and try: rabbitmq-diagnostics listeners";
        return loss.caused_by(UNREACHABLE, mend, false);
    }
    loss
}

async fn shake_hands(
    settings: &RabbitSettings,
    host: &RabbitHost,
    stream: TcpStream,
) -> lapin::Result<lapin::Connection> {
    // lapin connects again when the server hangs up before its first frame, and never otherwise.
    let stream = Arc::new(Mutex::new(Some(stream)));
    let connect = async move |_uri: AMQPUri, _runtime: Runtime<async_rs::Tokio>| {
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream = stream.ok_or_else(|| {
            let text = "the server hung up during the login";
            Error::from(io::Error::new(io::ErrorKind::ConnectionAborted, text))
        })?;
        Ok(AsyncTcpStream::Plain(stream.compat()))
    };
    let properties = ConnectionProperties::default().with_connection_name("walrelay".into());
    let runtime = Runtime::tokio_current();
    lapin::Connection::connector(uri(settings, host), runtime, connect, properties).await
}

fn uri(settings: &RabbitSettings, host: &RabbitHost) -> AMQPUri {
    let (userinfo, mechanism) = match &settings.login {
        RabbitLogin::Plain(user, password) => (
            AMQPUserInfo { username: user.clone(), password: password.expose().to_owned() },
            SASLMechanism::Plain,
        ),
        RabbitLogin::External => (AMQPUserInfo::default(), SASLMechanism::External),
    };
    let seconds = u16::try_from(settings.heartbeat.as_secs()).unwrap_or(u16::MAX).max(1);
    AMQPUri {
        scheme: AMQPScheme::AMQP,
        authority: AMQPAuthority { userinfo, host: host.name.clone(), port: host.port },
        vhost: settings.vhost.clone(),
        query: AMQPQueryString {
            frame_max: Some(FRAME_BYTES_MAX),
            heartbeat: Some(seconds),
            auth_mechanism: Some(mechanism),
            ..AMQPQueryString::default()
        },
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
