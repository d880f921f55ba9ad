//! A connection with one confirm channel to publish on, and one to ask on.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_compat::CompatExt as _;
use async_rs::Runtime;
use futures_core::Stream;
use lapin::options::{ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::FieldTable;
use lapin::uri::{
    AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism,
};
use lapin::{AsyncTcpStream, Channel, ConnectionProperties, Error, Event, ExchangeKind};
use tokio::net::TcpStream;

use super::fault::Loss;
use super::message::short;
use super::settings::{Host, Login, RabbitSettings};
use super::transport;

/// lapin keeps 32 frames of room in each direction: with the broker's own 128 KiB that would be
/// 8 MiB per connection.
const FRAME_BYTES_MAX: u32 = 32 * 1024;
/// Exchanges that are remembered to exist; a template can name any number.
const KNOWN_EXCHANGES_MAX: usize = 1024;
const CLOSE_WITHIN: Duration = Duration::from_millis(500);

/// An open connection.
pub(super) struct Connection {
    connection: lapin::Connection,
    /// In confirm mode.
    pub(super) channel: Channel,
    /// Exchanges that were there when they were asked for.
    known: BTreeSet<String>,
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
}

/// The first host that lets us in; else what the last one said.
pub(super) async fn open(settings: &RabbitSettings) -> Result<Connection, Loss> {
    let mut last = Loss { code: None, text: "no host is configured".to_owned() };
    for host in &settings.hosts {
        match log_in(settings, host).await {
            Ok(connection) => return Ok(connection),
            Err(loss) => {
                last = Loss { text: format!("{}:{}: {}", host.name, host.port, loss.text), ..loss }
            }
        }
    }
    Err(last)
}

async fn log_in(settings: &RabbitSettings, host: &Host) -> Result<Connection, Loss> {
    let stream = transport::dial(settings, host).await?;
    let opening = async {
        let connection = shake_hands(settings, host, stream).await?;
        let events = Box::pin(connection.events_listener());
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Connection { connection, channel, known: BTreeSet::new(), events })
    };
    let late = || Loss {
        code: None,
        text: format!("no answer within {} s", settings.connect_timeout.as_secs_f32()),
    };
    tokio::time::timeout(settings.connect_timeout, opening).await.unwrap_or_else(|_| Err(late()))
}

async fn shake_hands(
    settings: &RabbitSettings,
    host: &Host,
    stream: TcpStream,
) -> lapin::Result<lapin::Connection> {
    // lapin asks once: its own reconnecting is not used.
    let stream = Arc::new(Mutex::new(Some(stream)));
    let connect = async move |_uri: AMQPUri, _runtime: Runtime<async_rs::Tokio>| {
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream = stream.ok_or_else(|| Error::from(std::io::Error::other("dialled twice")))?;
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
    /// Is there such an exchange? Asked once per connection, on a channel of its own: the broker
    /// closes the channel of who asks in vain.
    pub(super) async fn has_exchange(&mut self, name: &str) -> Result<(), Loss> {
        // The default exchange is always there, and may not be asked for.
        if name.is_empty() || self.known.contains(name) {
            return Ok(());
        }
        let channel = self.connection.create_channel().await?;
        let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let kind = ExchangeKind::Topic;
        channel.exchange_declare(short(name), kind, options, FieldTable::default()).await?;
        let _closed = channel.close(200, "".into()).await.is_ok();
        if self.known.len() >= KNOWN_EXCHANGES_MAX {
            self.known.clear();
        }
        self.known.insert(name.to_owned());
        Ok(())
    }

    /// Is it known without asking?
    pub(super) fn knows_exchange(&self, name: &str) -> bool {
        name.is_empty() || self.known.contains(name)
    }

    /// The next thing the connection has to tell.
    pub(super) async fn event(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.events.as_mut().poll_next(context)).await
    }

    /// Why it ended, if it says so in time.
    pub(super) async fn reason(&mut self, patience: Duration) -> Option<Loss> {
        match tokio::time::timeout(patience, self.event()).await {
            Ok(Some(Event::Error(error))) => Some(error.into()),
            Ok(_) | Err(_) => None,
        }
    }

    /// Can messages be published over it?
    pub(super) fn is_open(&self) -> bool {
        self.connection.status().connected() && self.channel.status().connected()
    }

    /// Does the broker take no messages for now?
    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    pub(super) async fn close(self) {
        let farewell = self.connection.close(200, "".into());
        let _in_time = tokio::time::timeout(CLOSE_WITHIN, farewell).await.is_ok();
    }
}
