//! A connection with one confirm channel to publish on, and one to ask on.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_compat::CompatExt as _;
use async_rs::Runtime;
use futures_core::Stream;
use lapin::options::ConfirmSelectOptions;
use lapin::uri::{
    AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism,
};
use lapin::{AsyncTcpStream, Channel, ConnectionProperties, Error, Event};
use tokio::net::TcpStream;

use super::fault::{Cause, Loss};
use super::replies::COMMAND_INVALID;
use super::settings::{Host, Login, RabbitSettings};
use super::tls::Carrier;
use super::transport::{self, Cord};
use crate::sink::UNREACHABLE;

/// lapin keeps 32 frames of room in each direction: with the broker's own 128 KiB that would be
/// 8 MiB per connection.
pub(super) const FRAME_BYTES_MAX: u32 = 32 * 1024;
const CLOSE_WITHIN: Duration = Duration::from_millis(500);

type Events = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// The connection as questions need it: each is asked on a channel of its own, because the broker
/// closes the channel of who asks in vain.
#[derive(Clone)]
pub(super) struct Link(Arc<lapin::Connection>);

impl Link {
    /// A channel to ask one question on.
    pub(super) async fn asking(&self) -> Result<Channel, Loss> {
        Ok(self.0.create_channel().await?)
    }
}

/// An open connection.
pub(super) struct Connection {
    pub(super) link: Link,
    /// In confirm mode.
    pub(super) channel: Channel,
    /// Which of the hosts it is to.
    pub(super) host: usize,
    events: Events,
    /// Cut with the connection, so that nothing of it is delivered behind what the next one sends.
    _cord: Cord,
    _carrier: Option<Carrier>,
}

/// The first host that lets us in, beginning with number `from`; else what they all said, with what
/// follows from the most final of them.
pub(super) async fn open(settings: &RabbitSettings, from: usize) -> Result<Connection, Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    let count = settings.hosts.len();
    for at in (0..count).map(|step| from.wrapping_add(step) % count) {
        let host = &settings.hosts[at];
        match log_in(settings, at).await {
            Ok(connection) => return Ok(connection),
            Err(loss) => losses.push(Loss { text: format!("{host}: {}", loss.text), ..loss }),
        }
    }
    let text = losses.iter().map(|loss| loss.text.as_str()).collect::<Vec<_>>().join("; ");
    let telling = losses.iter().position(Loss::is_final);
    let loss = telling.map_or_else(|| losses.last(), |at| losses.get(at)).cloned();
    Err(loss.map_or_else(|| Loss::of("no host is configured"), |loss| Loss { text, ..loss }))
}

async fn log_in(settings: &RabbitSettings, at: usize) -> Result<Connection, Loss> {
    let host = &settings.hosts[at];
    let (stream, carrier) = transport::dial(settings, host).await?;
    // Cut when the login fails: lapin's thread would wait for ever on a server that is silent.
    let cord = Cord::of(&stream)?;
    let opening = async {
        let connection = shake_hands(settings, host, stream).await?;
        let events: Events = Box::pin(connection.events_listener());
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        lapin::Result::Ok((connection, channel, events))
    };
    let opened = tokio::time::timeout(settings.connect_timeout, opening).await;
    match opened {
        Ok(Ok((connection, channel, events))) => Ok(Connection {
            link: Link(Arc::new(connection)),
            channel,
            host: at,
            events,
            _cord: cord,
            _carrier: carrier,
        }),
        Ok(Err(error)) => Err(refused(settings, error.into(), carrier.as_ref())),
        Err(_) => {
            let waited_s = settings.connect_timeout.as_secs_f32();
            let late = Loss::of(format!("no answer within {waited_s} s"));
            Err(refused(settings, late, carrier.as_ref()))
        }
    }
}

/// A server that hangs up during the login, or is silent, gives no reason: the likely one is told.
fn refused(settings: &RabbitSettings, mut loss: Loss, carrier: Option<&Carrier>) -> Loss {
    if let Some(cause) = carrier.and_then(Carrier::end) {
        return cause;
    }
    // What a login mechanism that is not there is answered with.
    if loss.code == Some(COMMAND_INVALID) && settings.login == Login::External {
        let mend = "rabbitmq-plugins enable rabbitmq_auth_mechanism_ssl, and in rabbitmq.conf: auth_mechanisms.1 = EXTERNAL";
        loss.cause = Some(Cause { code: "sink.login", mend: mend.to_owned(), is_final: true });
    } else if loss.code.is_none() && settings.tls.is_none() {
        let mend = "if that is a TLS port, write amqps:// in sink.rabbitmq.url; else see the broker's log, and try: rabbitmq-diagnostics listeners";
        let cause = Cause { code: UNREACHABLE, mend: mend.to_owned(), is_final: false };
        loss.cause = Some(cause);
    }
    loss
}

async fn shake_hands(
    settings: &RabbitSettings,
    host: &Host,
    stream: TcpStream,
) -> lapin::Result<lapin::Connection> {
    // lapin dials again when the server hangs up before its first word, and never otherwise.
    let stream = Arc::new(Mutex::new(Some(stream)));
    let connect = async move |_uri: AMQPUri, _runtime: Runtime<async_rs::Tokio>| {
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream = stream.ok_or_else(|| {
            let text = "the server hung up during the login";
            Error::from(std::io::Error::new(std::io::ErrorKind::ConnectionAborted, text))
        })?;
        Ok(AsyncTcpStream::Plain(stream.compat()))
    };
    let properties = ConnectionProperties::default().with_connection_name("walrelay".into());
    let runtime = Runtime::tokio_current();
    lapin::Connection::connector(uri(settings, host), runtime, connect, properties).await
}

fn uri(settings: &RabbitSettings, host: &Host) -> AMQPUri {
    let (userinfo, mechanism) = match &settings.login {
        Login::Plain { user, password } => (
            AMQPUserInfo { username: user.clone(), password: password.expose().to_owned() },
            SASLMechanism::Plain,
        ),
        Login::External => (AMQPUserInfo::default(), SASLMechanism::External),
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

impl Connection {
    /// The next thing the connection has to tell. A channel that was closed over a question is no
    /// news: lapin tells of any channel as if it were the connection.
    pub(super) async fn event(&mut self) -> Option<Event> {
        loop {
            let event = std::future::poll_fn(|context| self.events.as_mut().poll_next(context));
            let event = event.await;
            if !(matches!(event, Some(Event::Error(_))) && self.is_open()) {
                return event;
            }
        }
    }

    /// Why it ended, if it says so in time.
    pub(super) async fn reason(&mut self, patience: Duration) -> Option<Loss> {
        let reason = async {
            loop {
                match self.event().await? {
                    Event::Error(error) => return Some(error.into()),
                    _ => continue,
                }
            }
        };
        tokio::time::timeout(patience, reason).await.ok().flatten()
    }

    /// Can messages be published over it?
    pub(super) fn is_open(&self) -> bool {
        self.link.0.status().connected() && self.channel.status().connected()
    }

    /// Does the broker take no messages for now?
    pub(super) fn is_blocked(&self) -> bool {
        self.link.0.status().blocked()
    }

    pub(super) async fn close(self) {
        let farewell = self.link.0.close(200, "".into());
        let _in_time = tokio::time::timeout(CLOSE_WITHIN, farewell).await.is_ok();
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
