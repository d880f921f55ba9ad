//! Exchanges, queues and bindings that must be there: how they differ from what is configured, and
//! their making, for `init`.

use super::connection::AmqpConnection;
use super::dead_letters;
use super::fault::{AmqpResult, ConnectionLoss};
use super::mend_hints::{MendHints, NOT_A_STREAM, Purpose};
use super::probe::{DeadLetterQueue, ExchangeDifferences, Probe};
use super::settings::RabbitSettings;
use crate::base::error::Fault;
use crate::base::runtime;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::Requirements;

/// Makes what is missing: exchange, queues, bindings, and what dead letters need.
pub(super) fn prepare(
    settings: &RabbitSettings,
    wanted: &Requirements,
) -> Result<Vec<String>, Vec<Fault>> {
    let prepared = runtime::block_on(async {
        let connection = AmqpConnection::open_once(settings).await.map_err(|fault| vec![fault])?;
        let made = Topology::new(settings, &connection.probe).make(wanted).await;
        connection.close().await;
        made
    });
    prepared.unwrap_or_else(|fault| Err(vec![fault]))
}

/// The configuration, and the broker that is asked about it.
pub(super) struct Topology<'a> {
    pub(super) settings: &'a RabbitSettings,
    pub(super) probe: &'a Probe,
    pub(super) hints: MendHints<'a>,
}

impl<'a> Topology<'a> {
    pub(super) fn new(settings: &'a RabbitSettings, probe: &'a Probe) -> Topology<'a> {
        Topology { settings, probe, hints: MendHints(settings) }
    }

    /// In what the exchange, which exists, differs from what is configured.
    pub(super) async fn differences(
        &self,
        purpose: Purpose,
        name: &str,
    ) -> AmqpResult<ExchangeDifferences> {
        let kind = purpose.types(self.settings).0;
        let mut differences = self.probe.differences(name, kind).await?;
        // For dead letters any type will do that lets them through.
        if purpose == Purpose::DeadLetters
            && let Some(kind) = differences.other_type.take()
        {
            differences = self.probe.differences(name, &kind).await?;
        }
        Ok(differences)
    }

    /// What the queue for dead letters is, as far as this login may know, and why it may not be read.
    pub(super) async fn dead_letter_queue(
        &self,
        address: &DeadLetterAddress,
    ) -> AmqpResult<(DeadLetterQueue, Option<Fault>)> {
        let kind = self.probe.queue_kind(&address.topic).await?;
        match dead_letters::can_read(self.probe, &address.topic).await {
            Ok(()) if kind == DeadLetterQueue::Unknown => Ok((DeadLetterQueue::Stream, None)),
            Ok(()) => Ok((kind, None)),
            Err(loss) if loss.code.is_none() => Err(loss),
            Err(loss) => {
                let fault = self.hints.unreadable(address, &loss);
                let kind = match kind {
                    _ if fault.code == NOT_A_STREAM => DeadLetterQueue::NotAStream,
                    // Queues of other types have such limits, too.
                    DeadLetterQueue::TruncatedStream(_) => DeadLetterQueue::Unknown,
                    kind => kind,
                };
                Ok((kind, Some(fault)))
            }
        }
    }

    async fn make(&self, wanted: &Requirements) -> Result<Vec<String>, Vec<Fault>> {
        let mut made = Vec::new();
        let queues = self.settings.queues.iter().collect();
        let exchange = self.settings.exchange.as_deref();
        self.make_all(Purpose::Events, exchange, queues, &mut made).await?;
        if let Some(address) = &wanted.dead_letters {
            let DeadLetterAddress { exchange, topic } = address;
            if self.probe.queue_exists(topic).await.map_err(self.not_made("queue", topic))? {
                let kind = self.dead_letter_queue(address).await;
                if kind.map_err(self.not_made("queue", topic))?.0 == DeadLetterQueue::NotAStream {
                    return Err(vec![self.hints.not_a_stream(topic)]);
                }
            }
            let queues = vec![(topic, topic)];
            self.make_all(Purpose::DeadLetters, Some(exchange), queues, &mut made).await?;
        }
        Ok(made)
    }

    fn not_made(&self, what: &str, name: &str) -> impl Fn(ConnectionLoss) -> Vec<Fault> {
        let subject = format!("{what} {name}");
        move |loss| vec![self.hints.not_made(&subject, &loss)]
    }

    async fn make_all(
        &self,
        purpose: Purpose,
        exchange: Option<&str>,
        queues: Vec<(&String, &String)>,
        made: &mut Vec<String>,
    ) -> Result<(), Vec<Fault>> {
        let (exchange_type, queue_type) = purpose.types(self.settings);
        // The default exchange is always there, and every queue is bound to it.
        let exchange = exchange.filter(|name| !name.is_empty());
        let mut new_exchange = false;
        if let Some(name) = exchange {
            let failed = self.not_made("exchange", name);
            new_exchange = !self.probe.exchange_exists(name).await.map_err(&failed)?;
            if new_exchange {
                self.probe.declare_exchange(name, exchange_type).await.map_err(&failed)?;
                made.push(format!(
                    "{}: {exchange_type}, durable",
                    purpose.object("exchange", name)
                ));
            } else {
                let differences = self.differences(purpose, name).await.map_err(&failed)?;
                let faults = self.hints.exchange_unusable(purpose, name, &differences);
                if !faults.is_empty() {
                    return Err(faults);
                }
            }
        }
        for (queue, key) in queues {
            let failed = self.not_made("queue", queue);
            let new_queue = !self.probe.queue_exists(queue).await.map_err(&failed)?;
            if new_queue {
                self.probe.declare_queue(queue, queue_type).await.map_err(&failed)?;
                let lasts = match purpose {
                    Purpose::Events => "durable",
                    Purpose::DeadLetters => "keeps everything",
                };
                made.push(format!("{}: {queue_type}, {lasts}", purpose.object("queue", queue)));
            }
            let Some(name) = exchange else { continue };
            let binding = format!("of queue {queue} to exchange {name} by {key:?}");
            let bound = self.probe.bind(queue, name, key).await;
            bound.map_err(self.not_made("binding", &binding))?;
            // AMQP does not say whether a binding was there before.
            if new_queue || new_exchange {
                made.push(format!("binding {binding}"));
            }
        }
        Ok(())
    }
}
