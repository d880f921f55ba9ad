//! A connection with channels in confirm mode, and a [`Probe`] for questions.
//!
//! The socket is connected here, so that a connection attempt has a deadline, the socket can be
//! shut down whatever lapin does, and TLS is the relay's own ([`super::tls`]).

use std::io;
use std::net::Shutdown;
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

use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::fault::COMMAND_INVALID;
use super::lapin_error::loss_of;
use super::limits::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use super::message::AmqpMessage;
use super::multiplexer::Multiplexer;
use super::port::ConnectionFacts;
use super::probe::Probe;
use super::publish_frames::put_publish;
use super::settings::{RabbitLogin, RabbitSettings};
use super::tls;
use super::uri::RabbitHost;
use crate::base::clock::unix_now_us;
use crate::base::error::Fault;
use crate::base::fingerprint::fingerprint;
use crate::sink::UNREACHABLE;

const CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// The default of RabbitMQ. It delivers the headers of a message in one frame, whatever the reader
/// has asked for: this is what others may have published.
const READ_FRAME_BYTES_MAX: u32 = 128 * 1024;

/// Channels that questions need at the same time.
const PROBE_CHANNELS: u16 = 2;

type ConnectionEvents = Pin<Box<dyn Stream<Item = Event> + Send>>;

pub(super) struct AmqpConnection {
    pub(super) probe: Probe,
    /// In confirm mode. lapin publishes nothing on them, and closes one that is dropped.
    channels: Vec<Channel>,
    /// As agreed with the broker.
    pub(super) frame_bytes_max: usize,
    pub(super) multiplexer: Multiplexer,
    /// Index in [`RabbitSettings::hosts`].
    pub(super) host: usize,
    events: ConnectionEvents,
    /// Shut down with the connection, so that the broker receives nothing of it after what the next
    /// connection sends.
    _socket: ShutdownOnDrop,
}

/// Ends a socket that others hold.
#[derive(Debug)]
struct ShutdownOnDrop(Socket);

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        // The other side may have closed it already.
        let _is_closed = self.0.shutdown(Shutdown::Both).is_err();
    }
}

impl AmqpConnection {
    /// Connects to the first host that accepts the login, beginning with number `from`. The loss
    /// has the texts of all hosts, and the code of one whose refusal is final, if there is one.
    pub(super) async fn open(settings: &RabbitSettings, from: usize) -> AmqpResult<AmqpConnection> {
        AmqpConnection::open_with(settings, from, FRAME_BYTES_MAX).await
    }

    async fn open_with(
        settings: &RabbitSettings,
        from: usize,
        frame_bytes_max: u32,
    ) -> AmqpResult<AmqpConnection> {
        let count = settings.hosts.len();
        let mut losses: Vec<ConnectionLoss> = Vec::with_capacity(count);
        for host in (0..count).map(|step| from.wrapping_add(step) % count) {
            match AmqpConnection::log_in(settings, host, frame_bytes_max).await {
                Ok(connection) => return Ok(connection),
                Err(loss) => {
                    let text = format!("{}: {}", settings.hosts[host], loss.text);
                    losses.push(ConnectionLoss { text, ..loss });
                }
            }
        }
        let texts: Vec<&str> = losses.iter().map(|loss| loss.text.as_str()).collect();
        let text = texts.join("; ");
        let last = count.checked_sub(1);
        Err(match losses.iter().position(ConnectionLoss::is_final).or(last) {
            Some(at) => ConnectionLoss { text, ..losses.swap_remove(at) },
            None => ConnectionLoss::of("no host is configured"),
        })
    }

    /// Connects for a command, which reports the loss as a fault.
    pub(super) async fn open_once(settings: &RabbitSettings) -> Result<AmqpConnection, Fault> {
        let opened = AmqpConnection::open(settings, 0).await;
        opened.map_err(|loss| loss.unreachable(&settings.address()))
    }

    /// Connects to read what anybody has published. Reports the loss as a fault.
    pub(super) async fn open_to_read(settings: &RabbitSettings) -> Result<AmqpConnection, Fault> {
        let opened = AmqpConnection::open_with(settings, 0, READ_FRAME_BYTES_MAX).await;
        opened.map_err(|loss| loss.unreachable(&settings.address()))
    }

    async fn log_in(
        settings: &RabbitSettings,
        host: usize,
        frame_bytes_max: u32,
    ) -> AmqpResult<AmqpConnection> {
        let limit = settings.connect_timeout;
        let late = || ConnectionLoss::of(format!("no answer within {} s", limit.as_secs_f32()));
        let login = settings.current_login().map_err(|unread| {
            let mend = "let the user of the relay read the file of sink.rabbitmq.url; it is read for each connection";
            ConnectionLoss::of(unread).caused_by("sink.login-unread", mend, false)
        })?;
        let dialled = timeout(limit, dial(settings, &settings.hosts[host])).await;
        let (stream, multiplexer, socket) = dialled.map_err(|_| late())??;
        let opening = async {
            let uri = uri(settings, &login, &settings.hosts[host], frame_bytes_max);
            let connection = shake_hands(uri, stream).await.map_err(loss_of)?;
            let events: ConnectionEvents = Box::pin(connection.events_listener());
            let probe = Probe(Arc::new(connection));
            let channel = confirming_channel(probe.clone()).await?;
            AmqpResult::Ok((probe, channel, events))
        };
        let opened = timeout(limit, opening).await.unwrap_or_else(|_| Err(late()));
        // A broker whose frames are too small for itself hangs up without a reason.
        let offered = multiplexer.frame_bytes_offered();
        if (1..FRAME_BYTES_MIN).contains(&offered) {
            let mend = "raise frame_max in rabbitmq.conf to 8192 at least (its default is 131072), and restart the broker";
            let text = format!(
                "its frames have {offered} bytes at most, and {FRAME_BYTES_MIN} are needed"
            );
            // Another host may be good, and away for a while.
            let is_final = settings.hosts.len() == 1;
            return Err(ConnectionLoss::of(text).caused_by("sink.frame-max", mend, is_final));
        }
        let (probe, channel, events) =
            opened.map_err(|loss| likely_cause(settings, loss, &multiplexer))?;
        let frame_bytes_max = match probe.0.configuration().frame_max() {
            0 => frame_bytes_max,
            limit => limit,
        } as usize;
        let (channels, _socket) = (Vec::new(), socket);
        let mut connection =
            AmqpConnection { probe, channels, frame_bytes_max, multiplexer, host, events, _socket };
        connection.add_channel(channel);
        Ok(connection)
    }

    /// How many channels the broker lets a connection publish on, beside those of questions.
    fn channels_max(&self) -> usize {
        let allowed = match self.probe.0.configuration().channel_max() {
            0 => u16::MAX,
            limit => limit,
        };
        usize::from(allowed.saturating_sub(PROBE_CHANNELS))
    }

    /// Opens one more channel, for [`AmqpConnection::add_channel`].
    pub(super) fn open_channel(&self) -> impl Future<Output = AmqpResult<Channel>> + Send + use<> {
        confirming_channel(self.probe.clone())
    }

    /// The channel may be published on from here on.
    pub(super) fn add_channel(&mut self, channel: Channel) {
        self.multiplexer.serve(channel.id());
        self.channels.push(channel);
    }

    /// What the login has agreed on.
    pub(super) fn facts(&self, settings: &RabbitSettings) -> ConnectionFacts {
        let (cluster, vhost) = (self.multiplexer.cluster_name(), &settings.vhost);
        ConnectionFacts {
            broker: fingerprint(&format!("rabbitmq/{cluster}/{vhost}")),
            host: self.host,
            frame_bytes: self.frame_bytes_max,
            channels: self.channels.iter().map(Channel::id).collect(),
            channels_max: self.channels_max(),
        }
    }

    /// Appends the frames of a publish on this channel for [`Multiplexer::publish`].
    pub(super) fn put_publish(&self, message: &AmqpMessage, channel: u16, frames: &mut Vec<u8>) {
        let now_unix_s = u64::try_from(unix_now_us() / 1_000_000).unwrap_or_default();
        put_publish(message, now_unix_s, channel, self.frame_bytes_max, frames);
    }

    /// Returns the next event. Errors of a probe's channel are left out: lapin reports the close of
    /// any channel as an error of the connection.
    pub(super) async fn event(&mut self) -> Option<Event> {
        loop {
            let event = self.events.next().await;
            if !(matches!(event, Some(Event::Error(_))) && self.is_open()) {
                return event;
            }
        }
    }

    /// Returns why the connection ended, if that is reported within `patience`.
    pub(super) async fn reason(&mut self, patience: Duration) -> Option<ConnectionLoss> {
        let reason = async {
            loop {
                if let Event::Error(error) = self.event().await? {
                    return Some(loss_of(error));
                }
            }
        };
        timeout(patience, reason).await.ok().flatten()
    }

    /// True while messages can be published.
    pub(super) fn is_open(&self) -> bool {
        let mut channels = self.channels.iter();
        self.probe.0.status().connected() && channels.all(|it| it.status().connected())
    }

    pub(super) async fn close(&self) {
        let _in_time = timeout(CLOSE_WITHIN, self.probe.0.close(200, "".into())).await.is_ok();
    }
}

/// Connects to the broker. Returns the socket for lapin as the first, and the broker's as the last,
/// which is shut down if the login fails: a silent server would be waited for without end.
async fn dial(
    settings: &RabbitSettings,
    host: &RabbitHost,
) -> AmqpResult<(TcpStream, Multiplexer, ShutdownOnDrop)> {
    let addresses = lookup_host((host.name.as_str(), host.port)).await?;
    let mut connected = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for address in addresses {
        connected = TcpStream::connect(address).await;
        if connected.is_ok() {
            break;
        }
    }
    let stream = connected?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    // The kernel must not send what a dead connection still holds after what the next one sends.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(settings.heartbeat))?;
    let socket = ShutdownOnDrop(socket.try_clone()?);
    let (plain, multiplexer) = if settings.is_encrypted {
        let encrypted = tls::connect(stream, &host.name, &settings.tls_files).await;
        let explain = |error: io::Error| tls::explain(&error).unwrap_or_else(|| error.into());
        Multiplexer::over(encrypted.map_err(explain)?)?
    } else {
        Multiplexer::over(stream)?
    };
    Ok((plain, multiplexer, socket))
}

/// Adds the likely cause to the loss of a server that closes the connection during the login, or is
/// silent, without a reason.
fn likely_cause(
    settings: &RabbitSettings,
    loss: ConnectionLoss,
    multiplexer: &Multiplexer,
) -> ConnectionLoss {
    if let Some(failure) = multiplexer.tls_failure() {
        return failure.clone();
    }
    // The broker's answer to a login mechanism that it does not have.
    if loss.code == Some(COMMAND_INVALID) && settings.login == RabbitLogin::External {
        let mend = "rabbitmq-plugins enable rabbitmq_auth_mechanism_ssl, and in rabbitmq.conf: auth_mechanisms.1 = EXTERNAL";
        return loss.caused_by("sink.login", mend, true);
    }
    if loss.code.is_none() && !settings.is_encrypted {
        let mend = "if that is a TLS port, write amqps:// in sink.rabbitmq.url; else see the broker's log, and try: rabbitmq-diagnostics listeners";
        return loss.caused_by(UNREACHABLE, mend, false);
    }
    loss
}

async fn confirming_channel(probe: Probe) -> AmqpResult<Channel> {
    let channel = probe.new_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(loss_of)?;
    Ok(channel)
}

async fn shake_hands(uri: AMQPUri, stream: TcpStream) -> lapin::Result<lapin::Connection> {
    // lapin connects once more if the server closes the connection before its first frame.
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
    lapin::Connection::connector(uri, runtime, connect, properties).await
}

fn uri(
    settings: &RabbitSettings,
    login: &RabbitLogin,
    host: &RabbitHost,
    frame_bytes_max: u32,
) -> AMQPUri {
    let (userinfo, mechanism) = match login {
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
            frame_max: Some(frame_bytes_max),
            heartbeat: Some(seconds),
            auth_mechanism: Some(mechanism),
            ..AMQPQueryString::default()
        },
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
