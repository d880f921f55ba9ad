//! The port of a publisher on the data thread: one connection that is published on, or the attempt to
//! make one, which has a thread of its own.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::message::AmqpMessage;
use super::port::{AmqpEvent, AmqpPort};
use super::publish_connection::PublishConnection;
use super::publish_login;
use super::settings::RabbitSettings;
use walrelay_base::readiness::Readiness;
use walrelay_base::runtime;

pub(super) struct PublishPort {
    settings: RabbitSettings,
    pub(super) connection: Option<PublishConnection>,
    connecting: Option<Receiver<AmqpResult<PublishConnection>>>,
    /// Events of no connection.
    events: VecDeque<AmqpEvent>,
    publish_until: Option<Instant>,
}

impl PublishPort {
    /// With a connection that is open, if there is one.
    pub(super) fn new(
        settings: RabbitSettings,
        connection: Option<PublishConnection>,
    ) -> PublishPort {
        PublishPort {
            settings,
            connection,
            connecting: None,
            events: VecDeque::new(),
            publish_until: None,
        }
    }

    /// Takes the outcome of the attempt to connect.
    fn end_attempt(&mut self, outcome: AmqpResult<PublishConnection>) {
        self.connecting = None;
        self.events.push_back(match outcome {
            Ok(connection) => {
                let facts = connection.facts(&self.settings.vhost);
                self.connection = Some(connection);
                AmqpEvent::Connected(facts)
            }
            Err(loss) => AmqpEvent::ConnectFailed(loss),
        });
    }

    /// Ends an attempt whose thread has ended without an outcome.
    fn fail_attempt(&mut self) {
        self.end_attempt(Err(ConnectionLoss::of("the attempt to connect ended")));
    }
}

impl AmqpPort for PublishPort {
    fn connect(&mut self, from: usize) {
        let (done, connecting) = sync_channel(1);
        let settings = self.settings.clone();
        let spawned = runtime::current_thread().and_then(|runtime| {
            runtime::spawn("rabbitmq-login", move || {
                let outcome = runtime.block_on(publish_login::connect(&settings, from));
                // Does not wait for a name that is being resolved.
                runtime.shutdown_background();
                let _sink_is_gone = done.send(outcome).is_err();
            })
        });
        match spawned {
            Ok(_thread) => self.connecting = Some(connecting),
            Err(fault) => self.end_attempt(Err(ConnectionLoss::of(fault.what))),
        }
    }

    fn disconnect(&mut self) {
        self.events.clear();
        if let Some(connection) = self.connection.take() {
            connection.abandon();
        }
    }

    fn send(&mut self, channel: u16, message: &AmqpMessage) {
        if let Some(connection) = &mut self.connection {
            connection.publish(channel, message);
        }
    }

    fn ask_exchange(&mut self, name: &str) {
        if let Some(connection) = &mut self.connection {
            connection.ask(name);
        }
    }

    fn open_channel(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.open_channel();
        }
    }

    fn poll(&mut self, _now: Instant) -> Option<AmqpEvent> {
        match self.connecting.as_ref().map(Receiver::try_recv) {
            Some(Ok(outcome)) => self.end_attempt(outcome),
            Some(Err(TryRecvError::Disconnected)) => self.fail_attempt(),
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        let event = self.events.pop_front();
        event.or_else(|| self.connection.as_mut()?.next_event())
    }

    fn publish_until(&mut self, until: Instant) {
        self.publish_until = Some(until);
    }

    fn flush(&mut self, _now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.write(self.publish_until);
        }
    }

    fn readiness(&self) -> Option<Readiness<'_>> {
        self.connection.as_ref()?.readiness()
    }

    fn wait(&mut self, patience: Duration) -> Option<Instant> {
        if self.events.is_empty() {
            match (&self.connection, &self.connecting) {
                (Some(connection), _) => connection.wait(patience),
                (None, Some(connecting)) => match connecting.recv_timeout(patience) {
                    Ok(outcome) => self.end_attempt(outcome),
                    Err(RecvTimeoutError::Disconnected) => self.fail_attempt(),
                    Err(RecvTimeoutError::Timeout) => {}
                },
                (None, None) => std::thread::sleep(patience),
            }
        }
        Some(Instant::now())
    }

    fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close();
        }
    }
}
