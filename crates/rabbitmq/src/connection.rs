//! A connection for questions, declarations and streams, which lapin holds. Nothing is published on it
//! ([`super::publish_connection`]).

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_compat::CompatExt as _;
use async_rs::Runtime;
use futures_util::{Stream, StreamExt as _};
use lapin::uri::{
    AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism,
};
use lapin::{AsyncTcpStream, ConnectionProperties, Error, Event};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::dial::{self, Dialled, HostAddress, ShutdownOnDrop, dial};
use super::lapin_error::loss_of;
use super::limits::FRAME_BYTES_MAX;
use super::probe::Probe;
use super::publish_login;
use super::settings::{RabbitLogin, RabbitSettings};
use super::uri::RabbitHost;
use walrelay_base::error::Fault;
use walrelay_base::lock::locked;

const CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// The default of RabbitMQ. It delivers the headers of a message in one frame, whatever the reader
/// has asked for: this is what others may have published.
const READ_FRAME_BYTES_MAX: u32 = 128 * 1024;

type ConnectionEvents = Pin<Box<dyn Stream<Item = Event> + Send>>;

pub(super) struct AmqpConnection {
    pub(super) probe: Probe,
    /// Index in [`RabbitSettings::hosts`].
    pub(super) host: usize,
    events: ConnectionEvents,
    /// Shut down with the connection, whatever lapin does.
    _socket: ShutdownOnDrop,
}

impl AmqpConnection {
    /// Connects to the first host that accepts the login. The loss has the texts of all hosts, and the
    /// code of one whose refusal is final, if there is one.
    pub(super) async fn open(settings: &RabbitSettings) -> AmqpResult<AmqpConnection> {
        AmqpConnection::open_with(settings, FRAME_BYTES_MAX).await
    }

    async fn open_with(
        settings: &RabbitSettings,
        frame_bytes_max: u32,
    ) -> AmqpResult<AmqpConnection> {
        let log_in = async |at| AmqpConnection::log_in(settings, at, frame_bytes_max).await;
        dial::first_host(settings, 0, log_in).await
    }

    /// Connects for a command, which reports the loss as a fault.
    pub(super) async fn open_once(settings: &RabbitSettings) -> Result<AmqpConnection, Fault> {
        let opened = AmqpConnection::open(settings).await;
        opened.map_err(|loss| loss.unreachable(&settings.address()))
    }

    /// Connects to read what anybody has published. Reports the loss as a fault.
    pub(super) async fn open_to_read(settings: &RabbitSettings) -> Result<AmqpConnection, Fault> {
        let opened = AmqpConnection::open_with(settings, READ_FRAME_BYTES_MAX).await;
        opened.map_err(|loss| loss.unreachable(&settings.address()))
    }

    async fn log_in(
        settings: &RabbitSettings,
        at: HostAddress,
        frame_bytes_max: u32,
    ) -> AmqpResult<AmqpConnection> {
        let login = dial::login(settings)?;
        let (stream, _socket) = dial(settings, at).await?;
        let host = at.host;
        let uri = uri(settings, &login, &settings.hosts[host], frame_bytes_max);
        let opening = async {
            let connection = shake_hands(uri, plain(stream)?).await.map_err(loss_of)?;
            let events: ConnectionEvents = Box::pin(connection.events_listener());
            let node = settings.hosts[host].to_string();
            AmqpResult::Ok((Probe { connection: Arc::new(connection), node }, events))
        };
        match dial::in_time(settings, opening).await? {
            Ok((probe, events)) => Ok(AmqpConnection { probe, host, events, _socket }),
            Err(loss) if loss.code.is_some() => Err(publish_login::likely_cause(settings, loss)),
            // The login of the other connection knows more of why it fails without a reason.
            Err(loss) => Err(match publish_login::log_in(settings, at).await {
                Ok(_) => loss,
                Err(explained) => explained,
            }),
        }
    }

    /// Returns why the connection ended, if that is reported within `patience`. Errors of a probe's channel
    /// are left out: lapin reports the close of any channel as an error of the connection.
    pub(super) async fn reason(&mut self, patience: Duration) -> Option<ConnectionLoss> {
        let reason = async {
            loop {
                if let Event::Error(error) = self.events.next().await?
                    && !self.probe.connection.status().connected()
                {
                    return Some(loss_of(error));
                }
            }
        };
        timeout(patience, reason).await.ok().flatten()
    }

    pub(super) async fn close(&self) {
        let _in_time =
            timeout(CLOSE_WITHIN, self.probe.connection.close(200, "".into())).await.is_ok();
    }
}

/// Returns the socket for lapin, which does no TLS: a task passes its bytes to that of the relay.
fn plain(stream: Dialled) -> io::Result<TcpStream> {
    let mut encrypted = match stream {
        Dialled::Plain(stream) => return Ok(stream),
        Dialled::Encrypted(stream) => stream,
    };
    let (theirs, ours) = StdUnixStream::pair()?;
    for end in [&theirs, &ours] {
        end.set_nonblocking(true)?;
    }
    let mut ours = UnixStream::from_std(ours)?;
    tokio::spawn(async move {
        // The end of either side ends the other, and lapin reports that.
        let _ended = tokio::io::copy_bidirectional(&mut ours, &mut encrypted).await.is_ok();
    });
    TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(theirs)))
}

async fn shake_hands(uri: AMQPUri, stream: TcpStream) -> lapin::Result<lapin::Connection> {
    // lapin connects once more if the server closes the connection before its first frame.
    let stream = Arc::new(Mutex::new(Some(stream)));
    let connect = async move |_uri: AMQPUri, _runtime: Runtime<async_rs::Tokio>| {
        let stream = locked(&stream).take();
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
    AMQPUri {
        scheme: AMQPScheme::AMQP,
        authority: AMQPAuthority { userinfo, host: host.name.clone(), port: host.port },
        vhost: settings.vhost.clone(),
        query: AMQPQueryString {
            frame_max: Some(frame_bytes_max),
            heartbeat: Some(dial::heartbeat_s(settings)),
            auth_mechanism: Some(mechanism),
            ..AMQPQueryString::default()
        },
    }
}
