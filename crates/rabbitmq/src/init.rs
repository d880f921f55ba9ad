//! Creates the exchanges, queues and bindings that are missing.

use super::connection::AmqpConnection;
use super::doctor;
use super::exchanges::Existence;
use super::probe::{DeadLetterQueue, ExchangeDifference, Probe};
use super::settings::RabbitSettings;
use super::setup_faults::{Purpose, SetupFaults};
use walrelay_base::error::Fault;
use walrelay_base::runtime;
use walrelay_core::dead_letter::writer::DeadLetterAddress;
use walrelay_sink::Requirements;

/// Creates what is missing, unless it is a dry run; returns a line for each thing.
pub(super) fn prepare(
    settings: &RabbitSettings,
    required: &Requirements,
    dry_run: bool,
) -> Result<Vec<String>, Vec<Fault>> {
    runtime::block_on(async {
        let connection = AmqpConnection::open_once(settings).await?;
        let (probe, faults) = (&connection.probe, SetupFaults(settings));
        let mut setup = Setup { settings, probe, faults, dry_run, made: Vec::new() };
        let done = setup.make(required).await;
        connection.close().await;
        done.map(|()| setup.made)
    })?
}

struct Setup<'a> {
    settings: &'a RabbitSettings,
    probe: &'a Probe,
    faults: SetupFaults<'a>,
    /// Whether nothing is created or bound.
    dry_run: bool,
    made: Vec<String>,
}

impl Setup<'_> {
    async fn make(&mut self, required: &Requirements) -> Result<(), Vec<Fault>> {
        let settings = self.settings;
        let queues: Vec<_> = settings.queues.iter().collect();
        self.make_all(Purpose::Events, settings.exchange.constant(), &queues).await?;
        let Some(address) = &required.dead_letters else { return Ok(()) };
        let DeadLetterAddress { exchange, topic } = address;
        let failed = self.faults.not_made(format!("queue {topic}"));
        if self.probe.queue_exists(topic).await.map_err(&failed)? == Existence::There {
            let kind = doctor::dead_letter_queue(self.probe, self.faults, address).await;
            if kind.map_err(&failed)?.0 == DeadLetterQueue::NotAStream {
                return Err(vec![self.faults.not_a_stream(topic)]);
            }
        }
        self.make_all(Purpose::DeadLetters, Some(exchange), &[(topic, topic)]).await
    }

    async fn make_all(
        &mut self,
        purpose: Purpose,
        exchange: Option<&str>,
        queues: &[(&String, &String)],
    ) -> Result<(), Vec<Fault>> {
        let (exchange_type, queue_type) = purpose.types(self.settings);
        // The default exchange always exists, and every queue is bound to it.
        let exchange = exchange.filter(|name| !name.is_empty());
        let new_exchange = match exchange {
            Some(name) => self.make_exchange(purpose, name, exchange_type).await?,
            None => false,
        };
        for (queue, key) in queues {
            let failed = self.faults.not_made(format!("queue {queue}"));
            let existence = self.probe.queue_exists(queue).await.map_err(&failed)?;
            let new_queue = existence != Existence::There;
            if new_queue {
                if !self.dry_run {
                    self.probe.declare_queue(queue, queue_type).await.map_err(&failed)?;
                }
                let lasts = if purpose == Purpose::Events { "durable" } else { "keeps everything" };
                let object = purpose.object("queue", queue);
                self.made.push(format!("{object}: {queue_type}, {lasts}"));
            }
            let Some(name) = exchange else { continue };
            let binding = format!("of queue {queue} to exchange {name} by {key:?}");
            if !self.dry_run {
                let bound = self.probe.bind(queue, name, key).await;
                bound.map_err(self.faults.not_made(format!("binding {binding}")))?;
            }
            // AMQP does not say whether the binding existed before.
            if new_queue || new_exchange {
                self.made.push(format!("binding {binding}"));
            }
        }
        Ok(())
    }

    /// Returns false for an exchange that existed before and can be used.
    async fn make_exchange(
        &mut self,
        purpose: Purpose,
        name: &str,
        kind: &str,
    ) -> Result<bool, Vec<Fault>> {
        let failed = self.faults.not_made(format!("exchange {name}"));
        let any_type = purpose == Purpose::DeadLetters;
        let differences = self.probe.exchange(name, kind, any_type).await.map_err(&failed)?;
        if let Some(differences) =
            differences.filter(|found| !found.contains(&ExchangeDifference::Unseen))
        {
            let faults = self.faults.exchange_unusable(purpose, name, &differences);
            return if faults.is_empty() { Ok(false) } else { Err(faults) };
        }
        if !self.dry_run {
            self.probe.declare_exchange(name, kind).await.map_err(&failed)?;
        }
        self.made.push(format!("{}: {kind}, durable", purpose.object("exchange", name)));
        Ok(true)
    }
}
