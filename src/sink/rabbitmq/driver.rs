//! The connection's thread: moves what the publisher decides to lapin and the multiplexer, and what
//! those hear to the publisher.

use std::pin::{Pin, pin};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use lapin::{Channel, Event};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Sleep, sleep_until};

use super::answer::Answer;
use super::connection::AmqpConnection;
use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::deadline::PublishDeadline;
use super::exchanges::Existence;
use super::lapin_error::loss_of;
use super::message::AmqpMessage;
use super::port::{AmqpEvent, AmqpPort};
use super::publisher::{PublishOrder, Publisher, PublisherStatus};
use super::settings::RabbitSettings;
use crate::sink::SinkReport;

/// What is awaited, if anything is.
type Awaited<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// What the sink and its thread share.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    pub(super) deadline: PublishDeadline,
    status: Arc<Mutex<PublisherStatus>>,
}

impl Shared {
    pub(super) fn status<T>(&self, read: impl FnOnce(&PublisherStatus) -> T) -> T {
        read(&self.status.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_status(&self, status: &PublisherStatus) {
        let mut known = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != *status {
            known.clone_from(status);
        }
    }
}

pub(super) struct Driver {
    /// Closed when the sink is dropped.
    orders: UnboundedReceiver<Vec<PublishOrder>>,
    reports: Sender<Vec<SinkReport>>,
    shared: Shared,
    publisher: Publisher,
    port: LapinPort,
}

impl Driver {
    pub(super) fn new(
        publisher: Publisher,
        port: LapinPort,
        orders: UnboundedReceiver<Vec<PublishOrder>>,
        reports: Sender<Vec<SinkReport>>,
    ) -> Driver {
        let mut driver = Driver { orders, reports, shared: Shared::default(), publisher, port };
        if let Some(connection) = &driver.port.connection {
            let connected = AmqpEvent::Connected(connection.facts(&driver.port.settings));
            driver.publisher.handle(connected, Instant::now());
        }
        driver.report();
        driver
    }

    pub(super) fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// Runs until the sink is dropped.
    pub(super) async fn run(mut self) {
        let mut timer = pin!(sleep_until(Instant::now().into()));
        loop {
            while let Ok(orders) = self.orders.try_recv() {
                orders.into_iter().for_each(|order| self.publisher.take(order));
            }
            self.collect();
            if self.orders.is_closed() {
                break;
            }
            self.advance();
            if let Some(event) = self.event(timer.as_mut()).await {
                // What has arrived before it counts before it.
                self.collect();
                self.publisher.handle(event, Instant::now());
            }
        }
        // What waits to be written must not be published any more.
        if let Some(connection) = self.port.connection.filter(|_| self.publisher.is_empty()) {
            connection.close().await;
        }
    }

    /// Hands over what the multiplexer has heard.
    fn collect(&mut self) {
        if let Some(AmqpConnection { multiplexer, .. }) = &self.port.connection {
            let now = Instant::now();
            self.publisher.set_blocked(multiplexer.is_blocked(), now);
            self.publisher.handle(AmqpEvent::Answers(multiplexer.answers()), now);
        }
    }

    fn advance(&mut self) {
        if let Some(limits) = self.shared.deadline.get() {
            self.publisher.publish_until(limits);
        }
        if let Some(connection) = &self.port.connection {
            connection.multiplexer.publish_until(&self.shared.deadline);
        }
        self.publisher.advance(Instant::now(), &mut self.port);
        self.port.flush();
        self.report();
    }

    /// What the sink knows is true when it reads the reports.
    fn report(&mut self) {
        self.shared.set_status(self.publisher.status());
        let reports = self.publisher.reports();
        if !reports.is_empty() {
            let _sink_is_gone = self.reports.send(reports).is_err();
        }
    }

    /// Waits for an event, or for anything else that there is to do.
    async fn event(&mut self, mut timer: Pin<&mut Sleep>) -> Option<AmqpEvent> {
        let wake_at = self.publisher.wake_at();
        if let Some(at) = wake_at.filter(|at| timer.deadline() != (*at).into()) {
            timer.as_mut().reset(at.into());
        }
        let LapinPort { settings, connection, connecting, question, opening, .. } = &mut self.port;
        let answers = connection.as_ref().map(|connection| connection.multiplexer.answered());
        tokio::select! {
            orders = self.orders.recv() => {
                orders?.into_iter().for_each(|order| self.publisher.take(order));
                None
            }
            () = outcome(answers) => None,
            event = next(connection) => match event {
                Some(Event::Error(error)) => Some(AmqpEvent::Lost(loss_of(error))),
                Some(Event::ConnectionBlocked(reason)) => Some(AmqpEvent::Blocked(reason)),
                Some(_) => None,
                None => Some(AmqpEvent::Lost(ConnectionLoss::of("the connection ended"))),
            },
            opened = awaited(connecting) => Some(match opened {
                Ok(opened) => AmqpEvent::Connected(connection.insert(opened).facts(settings)),
                Err(loss) => AmqpEvent::ConnectFailed(loss),
            }),
            answer = awaited(question) => Some(AmqpEvent::ExchangeAnswered(answer)),
            channel = awaited(opening) => Some(match (channel, connection) {
                (Ok(channel), Some(connection)) => {
                    let number = channel.id();
                    connection.add_channel(channel);
                    AmqpEvent::ChannelOpened(number)
                }
                _ => AmqpEvent::ChannelRefused,
            }),
            () = timer, if wake_at.is_some() => {
                // A connection may end without an event.
                let has_ended = connection.as_ref().is_some_and(|connection| !connection.is_open());
                let loss = || AmqpEvent::Lost(ConnectionLoss::of("the channel is closed"));
                has_ended.then(loss)
            }
        }
    }
}

/// Waits for what there is; for ever if there is nothing.
async fn outcome<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// The same with what is awaited once.
async fn awaited<T>(awaited: &mut Awaited<T>) -> T {
    let done = outcome(awaited.as_mut()).await;
    *awaited = None;
    done
}

async fn next(connection: &mut Option<AmqpConnection>) -> Option<Event> {
    outcome(connection.as_mut().map(AmqpConnection::event)).await
}

pub(super) struct LapinPort {
    settings: RabbitSettings,
    connection: Option<AmqpConnection>,
    connecting: Awaited<AmqpResult<AmqpConnection>>,
    question: Awaited<AmqpResult<Existence>>,
    opening: Awaited<AmqpResult<Channel>>,
    /// Frames that are not yet handed to the connection.
    frames: Vec<u8>,
}

impl LapinPort {
    pub(super) fn new(settings: RabbitSettings, connection: Option<AmqpConnection>) -> LapinPort {
        let (connecting, question, opening, frames) = (None, None, None, Vec::new());
        LapinPort { settings, connection, connecting, question, opening, frames }
    }

    fn flush(&mut self) {
        if let Some(connection) = self.connection.as_ref().filter(|_| !self.frames.is_empty()) {
            connection.multiplexer.publish(&mut self.frames);
        }
    }
}

impl AmqpPort for LapinPort {
    fn connect(&mut self, from: usize) {
        let settings = self.settings.clone();
        let connecting = async move { AmqpConnection::open(&settings, from).await };
        self.connecting = Some(Box::pin(connecting));
    }

    fn disconnect(&mut self) -> Vec<(u16, Answer)> {
        (self.question, self.opening) = (None, None);
        self.frames.clear();
        self.connection.take().map(|it| it.multiplexer.answers()).unwrap_or_default()
    }

    fn send(&mut self, channel: u16, message: &AmqpMessage) {
        if let Some(connection) = &self.connection {
            connection.put_publish(message, channel, &mut self.frames);
        }
    }

    fn ask_exchange(&mut self, name: &str) {
        let Some(AmqpConnection { probe, .. }) = &self.connection else { return };
        let (probe, name) = (probe.clone(), name.to_owned());
        self.question = Some(Box::pin(async move {
            match name.as_str() {
                "" => probe.is_answered().await.map(|()| Existence::There),
                name => probe.exchange_exists(name).await,
            }
        }));
    }

    fn open_channel(&mut self) {
        let connection = self.connection.as_ref();
        self.opening = connection.map(|connection| Box::pin(connection.open_channel()) as _);
    }
}
