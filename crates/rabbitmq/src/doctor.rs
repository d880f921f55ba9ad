//! Checks that the configured exchanges and queues exist and can be used.
//!
//! `run` checks at its start, before it connects to publish. `check` does the same and also reports
//! what cannot be known. Neither changes anything. AMQP cannot list bindings: whether a queue is
//! bound for a routing key is seen when an event is published with it.

use std::collections::BTreeSet;

use super::connection::AmqpConnection;
use super::connection_loss::AmqpResult;
use super::dead_letters;
use super::exchanges::{Existence, permission_name};
use super::message::NAME_BYTES_MAX;
use super::probe::{DeadLetterQueue, ExchangeDifference, Probe};
use super::settings::RabbitSettings;
use super::setup_faults::{NOT_A_STREAM, Purpose, SetupFaults};
use walrelay_base::error::Fault;
use walrelay_base::finding::{Finding, is_sound};
use walrelay_base::host;
use walrelay_base::runtime;
use walrelay_core::dead_letter::writer::DeadLetterAddress;
use walrelay_sink::Requirements;

/// Channels that `run` needs at once: one for events, and one for questions. A further one reads the
/// dead letters.
const CHANNELS_MIN: usize = 2;
/// Queues named by rows that are looked at one by one.
const LOOKED_AT_MAX: usize = 100;

/// Whether there is anything to ask the broker for over AMQP.
pub(super) fn asks(settings: &RabbitSettings, required: &Requirements) -> bool {
    let names_exchange = settings.exchange.constant().is_some();
    names_exchange || !settings.queues.is_empty() || required.dead_letters.is_some()
}

/// Checks over an open connection, if there is one. With `thorough` it also reports what a start need
/// not repeat.
pub(super) async fn check(
    settings: &RabbitSettings,
    required: &Requirements,
    connection: Option<&AmqpConnection>,
    thorough: bool,
) -> Vec<Finding> {
    let faults = SetupFaults(settings);
    let mut doctor = Doctor { settings, required, faults, found: Vec::new(), thorough };
    doctor.unencrypted();
    // A fault that was found may have ended the connection.
    if let Some(connection) = connection
        && let Err(loss) = doctor.declared(&connection.probe).await
        && is_sound(&doctor.found)
    {
        doctor.fail(loss.unreachable(&settings.address()));
    }
    doctor.found
}

/// Checks over a connection of its own, for the command `check`.
pub(super) fn inspect(settings: &RabbitSettings, required: &Requirements) -> Vec<Finding> {
    let inspected = runtime::try_block_on(async {
        let connection = AmqpConnection::open_once(settings).await?;
        let (host, vhost) = (&settings.hosts[connection.host], &settings.vhost);
        let answers = format!("rabbitmq answers at {host}, virtual host {vhost}");
        let mut found = vec![Finding::ok("sink", answers)];
        found.extend(check(settings, required, Some(&connection), true).await);
        found.extend(too_few_channels(settings, required, &connection.probe).await);
        connection.close().await;
        Ok(found)
    });
    inspected.unwrap_or_else(|fault| vec![Finding::fail(fault)])
}

/// Reports a limit of the user that is lower than the number of channels that `run` needs at once. A
/// relay that runs may have used up a higher one.
async fn too_few_channels(
    settings: &RabbitSettings,
    required: &Requirements,
    probe: &Probe,
) -> Option<Finding> {
    let needed = CHANNELS_MIN + usize::from(required.dead_letters.is_some());
    // Without its connection, which an earlier fault may have ended, nothing is known.
    let loss = probe.open_channels(needed).await.err()?;
    let is_too_low = loss.channels_max()? < needed;
    is_too_low.then(|| Finding::fail(SetupFaults(settings).too_few_channels(needed, &loss)))
}

/// Finds out what the queue for dead letters is, as far as the login may know, and why the login
/// cannot read it, if it cannot.
pub(super) async fn dead_letter_queue(
    probe: &Probe,
    faults: SetupFaults<'_>,
    address: &DeadLetterAddress,
) -> AmqpResult<(DeadLetterQueue, Option<Fault>)> {
    let kind = probe.queue_kind(&address.topic).await?;
    match dead_letters::can_read(probe, &address.topic).await {
        Ok(()) if kind == DeadLetterQueue::Unknown => Ok((DeadLetterQueue::Stream, None)),
        Ok(()) => Ok((kind, None)),
        Err(loss) if loss.code.is_none() => Err(loss),
        Err(loss) => {
            let fault = faults.unreadable(address, &loss);
            let kind = match kind {
                _ if fault.code == NOT_A_STREAM => DeadLetterQueue::NotAStream,
                // Queues of other types can have such a limit, too.
                DeadLetterQueue::TruncatedStream(_) => DeadLetterQueue::Unknown,
                kind => kind,
            };
            Ok((kind, Some(fault)))
        }
    }
}

struct Doctor<'a> {
    settings: &'a RabbitSettings,
    required: &'a Requirements,
    faults: SetupFaults<'a>,
    found: Vec<Finding>,
    thorough: bool,
}

impl Doctor<'_> {
    fn ok(&mut self, text: String) {
        self.found.push(Finding::ok("sink", text));
    }

    fn fail(&mut self, fault: Fault) {
        self.found.push(Finding::fail(fault));
    }

    fn warn(&mut self, text: String) {
        self.found.push(Finding::warn("sink", text));
    }

    fn warn_if_thorough(&mut self, text: String) {
        if self.thorough {
            self.warn(text);
        }
    }

    /// Warns of a fault that only events of some rows would meet.
    fn warn_of_rows(&mut self, fault: &Fault) {
        let Fault { what, mend, .. } = fault;
        self.warn(format!("{what}, and rows of the outbox lead to it; {mend}"));
    }

    fn unencrypted(&mut self) {
        let settings = self.settings;
        let is_remote = |name: &str| !host::is_own(name);
        let remote = settings.hosts.iter().find(|host| is_remote(&host.name));
        if let Some(host) = remote.filter(|_| !settings.is_encrypted) {
            self.warn(format!(
                "amqp:// to {host} is not encrypted: password and events can be read on the way; write amqps:// in sink.rabbitmq.url"
            ));
        }
    }

    /// Checks exchanges and queues over AMQP.
    async fn declared(&mut self, probe: &Probe) -> AmqpResult<()> {
        let (settings, required) = (self.settings, self.required);
        let exchange = settings.exchange.constant();
        let mut queues: BTreeSet<&String> = settings.queues.keys().collect();
        match exchange {
            None => self.warn_if_thorough(
                "the exchange comes from rows: none can be looked at before the first event"
                    .to_owned(),
            ),
            // The default exchange takes the routing key as the name of a queue.
            Some("") => {
                queues.extend(&required.topics);
                self.may_publish(probe, Purpose::Events, "").await?;
            }
            Some(name) => self.exchange(probe, Purpose::Events, name).await?,
        }
        for queue in &queues {
            match self.queue_exists(probe, Purpose::Events, queue).await? {
                Existence::There => self.ok(format!("queue {queue} is there")),
                Existence::Missing => {}
                Existence::Hidden => self.warn_if_thorough(format!(
                    "whether queue {queue} exists cannot be known: this login has no right on it, which run does not need"
                )),
            }
        }
        if exchange == Some("") {
            let from_rows = required.from_rows.iter().filter(|name| name.len() <= NAME_BYTES_MAX);
            for queue in from_rows.filter(|queue| !queues.contains(queue)).take(LOOKED_AT_MAX) {
                if probe.queue_exists(queue).await? == Existence::Missing {
                    self.warn_of_rows(&self.faults.queue_missing(Purpose::Events, queue));
                }
            }
        }
        let Some(address) = &required.dead_letters else { return Ok(()) };
        // The default exchange always exists, and the broker refuses a question for it.
        match address.exchange.as_str() {
            "" => self.may_publish(probe, Purpose::DeadLetters, "").await?,
            name => self.exchange(probe, Purpose::DeadLetters, name).await?,
        }
        match self.queue_exists(probe, Purpose::DeadLetters, &address.topic).await? {
            Existence::Missing => Ok(()),
            existence => self.stream(probe, address, existence).await,
        }
    }

    async fn may_publish(&mut self, probe: &Probe, purpose: Purpose, name: &str) -> AmqpResult<()> {
        if !probe.may_publish(name).await? {
            let dead_letters = self.required.dead_letters.as_ref();
            let name = permission_name(name);
            self.fail(self.faults.publish_forbidden(purpose, name, dead_letters));
        }
        Ok(())
    }

    async fn exchange(&mut self, probe: &Probe, purpose: Purpose, name: &str) -> AmqpResult<()> {
        let kind = purpose.types(self.settings).0;
        let any_type = purpose == Purpose::DeadLetters;
        let Some(differences) = probe.exchange(name, kind, any_type).await? else {
            self.fail(self.faults.exchange_missing(purpose, name));
            return Ok(());
        };
        let faults = self.faults.exchange_unusable(purpose, name, &differences);
        let is_usable = faults.is_empty();
        // Before the next question: the broker closes the connection over an unknown exchange type.
        self.found.extend(faults.into_iter().map(Finding::fail));
        self.may_publish(probe, purpose, name).await?;
        if !is_usable {
            return Ok(());
        }
        if differences.contains(&ExchangeDifference::Unseen) {
            self.warn_if_thorough(format!(
                "whether exchange {name} exists cannot be known: this RabbitMQ tells only a login that may configure it (4.2.6 and 4.3.0; upgrade it)"
            ));
            return Ok(());
        }
        let is_hidden = differences.contains(&ExchangeDifference::Hidden);
        let subject = purpose.subject("exchange", name);
        let properties = if is_hidden { String::new() } else { format!(": {kind}, durable") };
        self.ok(match purpose {
            Purpose::Events => format!(
                "{subject} is there{properties}; whether a routing key is bound is seen at its first publish"
            ),
            Purpose::DeadLetters => format!("{subject} is there"),
        });
        for difference in differences {
            match difference {
                ExchangeDifference::Hidden if purpose == Purpose::Events => {
                    self.warn_if_thorough(format!(
                        "whether exchange {name} is durable and of type {kind} cannot be known: this login may not declare it, which run does not need"
                    ));
                }
                ExchangeDifference::Alternate(alternate) => self.warn(format!(
                    "exchange {name} has the alternate exchange {alternate}: events that no queue is bound for go there and count as delivered"
                )),
                ExchangeDifference::AutoDelete => {
                    self.warn(format!("exchange {name} deletes itself with its last binding"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A queue that cannot be used counts as missing.
    async fn queue_exists(
        &mut self,
        probe: &Probe,
        purpose: Purpose,
        name: &str,
    ) -> AmqpResult<Existence> {
        let fault = match probe.queue_exists(name).await {
            Ok(Existence::Missing) => self.faults.queue_missing(purpose, name),
            Ok(existence) => return Ok(existence),
            Err(loss) if loss.code.is_some() => self.faults.queue_unusable(name, &loss),
            Err(loss) => return Err(loss),
        };
        self.fail(fault);
        Ok(Existence::Missing)
    }

    async fn stream(
        &mut self,
        probe: &Probe,
        address: &DeadLetterAddress,
        existence: Existence,
    ) -> AmqpResult<()> {
        let name = &address.topic;
        let subject = Purpose::DeadLetters.subject("queue", name);
        let (kind, unreadable) = dead_letter_queue(probe, self.faults, address).await?;
        match kind {
            DeadLetterQueue::NotAStream => {
                self.fail(self.faults.not_a_stream(name));
                return Ok(());
            }
            DeadLetterQueue::Stream => self.ok(format!("{subject} is there: a stream")),
            DeadLetterQueue::TruncatedStream(limit) => self.warn(format!(
                "queue {name} is a stream that forgets dead letters, open ones too ({limit})"
            )),
            DeadLetterQueue::Unknown => {
                if existence == Existence::There {
                    self.ok(format!("{subject} is there"));
                }
                self.warn_if_thorough(format!(
                    "whether queue {name} is a stream cannot be known: this login may neither declare nor read it"
                ));
            }
        }
        if let Some(Fault { what, mend, .. }) = unreadable {
            self.warn_if_thorough(format!(
                "{what}: walrelay dlq needs it, and so do parked keys after a restart; help: {mend}"
            ));
        }
        Ok(())
    }
}
