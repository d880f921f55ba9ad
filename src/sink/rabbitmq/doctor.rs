//! What must be there before the first event.
//!
//! At the start AMQP is asked, over the connection that events will take, and the management API
//! where there is one. `check` asks the same, and says what cannot be known. Neither changes
//! anything.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value as Json;

use super::connection::AmqpConnection;
use super::fault::AmqpResult;
use super::management::{ExchangeBinding, ManagementApi, Routability, queue_doubts, routability};
use super::mend_hints::{DIRECT, Purpose};
use super::probe::DeadLetterQueue;
use super::settings::RabbitSettings;
use super::topology::Topology;
use super::uri::NAME_BYTES_MAX;
use crate::base::error::Fault;
use crate::base::finding::{Finding, is_sound};
use crate::base::runtime;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::Requirements;

/// Queues that are looked at one by one.
const QUEUES_MAX: usize = 100;

/// Looks at what is wanted over an open connection; more thoroughly for a person who asks than at
/// each start.
pub(super) async fn look(
    settings: &RabbitSettings,
    wanted: &Requirements,
    connection: &AmqpConnection,
    thorough: bool,
) -> Vec<Finding> {
    let broker = Topology::new(settings, &connection.probe);
    let mut doctor = Doctor { settings, wanted, broker, found: Vec::new(), thorough };
    doctor.unencrypted();
    // A fault that was found may have ended the connection.
    if let Err(loss) = doctor.declared().await
        && is_sound(&doctor.found)
    {
        doctor.fault(loss.unreachable(settings));
    }
    if is_sound(&doctor.found) {
        doctor.bindings().await;
    }
    doctor.found
}

/// The same over a connection of its own, for `check`.
pub(super) fn inspect(settings: &RabbitSettings, wanted: &Requirements) -> Vec<Finding> {
    let looked = runtime::block_on(async {
        let connection = AmqpConnection::open_once(settings).await?;
        let (host, vhost) = (&settings.hosts[connection.host], &settings.vhost);
        let answers = format!("rabbitmq answers at {host}, virtual host {vhost}");
        let mut found = vec![Finding::ok("sink", answers)];
        found.extend(look(settings, wanted, &connection, true).await);
        connection.close().await;
        Ok(found)
    });
    let failed = |fault| vec![Finding::fail(fault)];
    looked.and_then(|found| found).unwrap_or_else(failed)
}

struct Doctor<'a> {
    settings: &'a RabbitSettings,
    wanted: &'a Requirements,
    broker: Topology<'a>,
    found: Vec<Finding>,
    thorough: bool,
}

impl Doctor<'_> {
    fn well(&mut self, text: String) {
        self.found.push(Finding::ok("sink", text));
    }

    fn doubt(&mut self, text: String) {
        let finding = Finding::warn("sink", text);
        if !self.found.contains(&finding) {
            self.found.push(finding);
        }
    }

    /// A doubt that only a person who asks wants to read each time.
    fn remark(&mut self, text: String) {
        if self.thorough {
            self.doubt(text);
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.found.push(Finding::fail(fault));
    }

    fn unencrypted(&mut self) {
        let local = |name: &str| {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        };
        let settings = self.settings;
        let remote = settings.hosts.iter().find(|host| !local(&host.name));
        if let (None, Some(host)) = (&settings.tls, remote) {
            self.doubt(format!(
                "amqp:// to {host} is not encrypted: password and events can be read on the way; write amqps:// in sink.rabbitmq.url"
            ));
        }
        let api = settings.management.as_ref().and_then(|api| api.unencrypted());
        if let Some(host) = api.filter(|host| !local(host)) {
            self.doubt(format!(
                "http:// to {host} is not encrypted: the password can be read on the way; write https:// in sink.rabbitmq.management_url"
            ));
        }
    }

    /// Exchanges and queues, as AMQP knows them.
    async fn declared(&mut self) -> AmqpResult<()> {
        let (settings, wanted) = (self.settings, self.wanted);
        let mut queues: BTreeSet<&String> = settings.queues.keys().collect();
        match settings.exchange.as_deref() {
            None => self.remark(
                "the exchange comes from rows: none can be looked at before the first event"
                    .to_owned(),
            ),
            // There, a routing key is the name of a queue.
            Some("") => queues.extend(&wanted.topics),
            Some(name) => self.exchange(Purpose::Events, name).await?,
        }
        for queue in &queues {
            if self.queue_exists(Purpose::Events, queue).await? {
                self.well(format!("queue {queue} is there"));
            }
        }
        let direct = settings.exchange.as_deref() == Some("");
        let of_rows = wanted.from_rows.iter().filter(|name| direct && name.len() <= NAME_BYTES_MAX);
        for queue in of_rows.filter(|queue| !queues.contains(queue)).take(QUEUES_MAX) {
            if !self.broker.probe.queue_exists(queue).await? {
                self.doubt(of_some_rows(&self.broker.hints.queue_missing(Purpose::Events, queue)));
            }
        }
        let Some(address) = &wanted.dead_letters else { return Ok(()) };
        // The default exchange is always there, and may not be asked for.
        if !address.exchange.is_empty() {
            self.exchange(Purpose::DeadLetters, &address.exchange).await?;
        }
        if self.queue_exists(Purpose::DeadLetters, &address.topic).await? {
            self.stream(address).await?;
        }
        Ok(())
    }

    async fn exchange(&mut self, purpose: Purpose, name: &str) -> AmqpResult<()> {
        let (settings, dead_letters) = (self.settings, self.wanted.dead_letters.as_ref());
        if !self.broker.probe.exchange_exists(name).await? {
            self.fault(self.broker.hints.exchange_missing(purpose, name));
            return Ok(());
        }
        if !self.broker.probe.may_publish(name).await? {
            self.fault(self.broker.hints.publish_forbidden(purpose, name, dead_letters));
        }
        let differences = self.broker.differences(purpose, name).await?;
        let faults = self.broker.hints.exchange_unusable(purpose, name, &differences);
        if faults.is_empty() {
            let (kind, subject) = (&settings.exchange_type, purpose.subject("exchange", name));
            if purpose == Purpose::DeadLetters {
                self.well(format!("{subject} is there"));
            } else if differences.hidden {
                self.well(format!("{subject} is there"));
                self.remark(format!(
                    "whether exchange {name} is durable and of type {kind} cannot be known: this login may not declare it, which run does not need"
                ));
            } else {
                self.well(format!("{subject} is there: {kind}, durable"));
            }
            if let Some(alternate) = &differences.alternate {
                self.alternate(name, alternate);
            }
            if differences.auto_delete {
                self.doubt(format!("exchange {name} deletes itself with its last binding"));
            }
        }
        self.found.extend(faults.into_iter().map(Finding::fail));
        Ok(())
    }

    fn alternate(&mut self, name: &str, alternate: &str) {
        self.doubt(format!(
            "exchange {name} has the alternate exchange {alternate}: events that no queue is bound for go there and count as delivered"
        ));
    }

    async fn queue_exists(&mut self, purpose: Purpose, name: &str) -> AmqpResult<bool> {
        let fault = match self.broker.probe.queue_exists(name).await {
            Ok(true) => return Ok(true),
            Ok(false) => self.broker.hints.queue_missing(purpose, name),
            Err(loss) if loss.code.is_some() => self.broker.hints.queue_unusable(name, &loss),
            Err(loss) => return Err(loss),
        };
        self.fault(fault);
        Ok(false)
    }

    async fn stream(&mut self, address: &DeadLetterAddress) -> AmqpResult<()> {
        let name = &address.topic;
        let subject = Purpose::DeadLetters.subject("queue", name);
        let (kind, unreadable) = self.broker.dead_letter_queue(address).await?;
        match kind {
            DeadLetterQueue::NotAStream => {
                self.fault(self.broker.hints.not_a_stream(name));
                return Ok(());
            }
            DeadLetterQueue::Stream => self.well(format!("{subject} is there: a stream")),
            DeadLetterQueue::TruncatedStream(limit) => self.doubt(format!(
                "queue {name} is a stream that forgets dead letters, open ones too ({limit})"
            )),
            DeadLetterQueue::Unknown => {
                self.well(format!("{subject} is there"));
                self.remark(format!(
                    "whether queue {name} is a stream cannot be known: this login may neither declare nor read it"
                ));
            }
        }
        if let Some(Fault { what, mend, .. }) = unreadable {
            self.remark(format!(
                "{what}: walrelay dlq needs it, and so do parked keys after a restart; to mend it: {mend}"
            ));
        }
        Ok(())
    }

    /// Whether something is bound, as far as that can be known.
    async fn bindings(&mut self) {
        let (settings, wanted) = (self.settings, self.wanted);
        let exchange = settings.exchange.as_deref().filter(|name| !name.is_empty());
        let letters = wanted.dead_letters.as_ref().filter(|it| !it.exchange.is_empty());
        let Some(api) = ManagementApi::of(settings) else {
            let names = exchange.into_iter().chain(letters.map(|it| it.exchange.as_str()));
            let names = names.collect::<Vec<_>>().join(" and ");
            if !names.is_empty() {
                self.remark(format!(
                    "what is bound to exchange {names} cannot be seen over AMQP: set sink.rabbitmq.management_url to have it looked at"
                ));
            }
            return;
        };
        if let Some(name) = exchange
            && let Err(error) = self.event_bindings(&api, name).await
        {
            self.doubt(error);
        }
        if let Some(address) = letters
            && let Err(error) = self.dead_letter_binding(&api, address).await
        {
            self.doubt(error);
        }
    }

    async fn event_bindings(&mut self, api: &ManagementApi<'_>, name: &str) -> Result<(), String> {
        let (exchange, bindings) = api.exchange(name).await?;
        let alternate = self.alternate_exchange(api, name, &exchange).await;
        if let Some(alternate) = &alternate {
            self.alternate(name, alternate);
        }
        let kind = exchange["type"].as_str().unwrap_or(&self.settings.exchange_type);
        self.routes(name, kind, &bindings, alternate.is_some());
        // The queues of the configuration are bound as it says.
        for (queue, key) in &self.settings.queues {
            let wanted =
                |it: &ExchangeBinding| it.to_queue && it.destination == *queue && it.key == *key;
            if !bindings.iter().any(wanted) {
                self.fault(self.broker.hints.queue_unbound(Purpose::Events, name, queue, key));
            }
        }
        let queues = bindings.iter().filter(|it| it.to_queue).map(|it| it.destination.as_str());
        for queue in queues.collect::<BTreeSet<_>>().into_iter().take(QUEUES_MAX) {
            for text in queue_doubts(&api.get("queues", &[queue]).await?) {
                self.found.push(Finding::warn("sink", text));
            }
        }
        Ok(())
    }

    /// Of the exchange itself, or by its policy.
    async fn alternate_exchange(
        &mut self,
        api: &ManagementApi<'_>,
        name: &str,
        exchange: &Json,
    ) -> Option<String> {
        let text = |value: &Json| value["alternate-exchange"].as_str().map(str::to_owned);
        let own = text(&exchange["arguments"]);
        let policy = exchange["policy"].as_str().filter(|policy| !policy.is_empty());
        let Some(policy) = policy.filter(|_| own.is_none()) else { return own };
        match api.get("policies", &[policy]).await {
            Ok(policy) => text(&policy["definition"]),
            Err(error) => {
                self.doubt(format!(
                    "exchange {name} is under policy {policy}, which may send what is unroutable elsewhere; it cannot be read: {error}"
                ));
                None
            }
        }
    }

    fn routes(&mut self, name: &str, kind: &str, bindings: &[ExchangeBinding], alternate: bool) {
        let wanted = self.wanted;
        if wanted.topics.is_empty() {
            match bindings.len() {
                0 if !alternate => self.fault(self.broker.hints.unroutable(name, None)),
                count => self.well(format!(
                    "{count} bindings to exchange {name}; routing keys come from rows, so whether each is bound is seen event by event"
                )),
            }
        }
        for key in wanted.from_rows.iter().filter(|_| !alternate).take(QUEUES_MAX) {
            if routability(kind, bindings, key) == Routability::Unbound {
                self.doubt(of_some_rows(&self.broker.hints.unroutable(name, Some(key))));
            }
        }
        for key in &wanted.topics {
            match routability(kind, bindings, key) {
                Routability::Bound => self.well(format!("routing key {key} is bound")),
                // The alternate exchange has been pointed out.
                Routability::Unbound if alternate => {}
                Routability::Unbound => {
                    self.fault(self.broker.hints.unroutable(name, Some(key)));
                }
                Routability::Unknown => self.doubt(format!(
                    "whether routing key {key} is bound cannot be known for an exchange of type {kind}"
                )),
            }
        }
    }

    /// Whether dead letters reach the stream.
    async fn dead_letter_binding(
        &mut self,
        api: &ManagementApi<'_>,
        address: &DeadLetterAddress,
    ) -> Result<(), String> {
        let DeadLetterAddress { exchange: name, topic: queue } = address;
        let (exchange, mut bindings) = api.exchange(name).await?;
        bindings.retain(|it| it.to_queue && it.destination == *queue);
        let kind = exchange["type"].as_str().unwrap_or(DIRECT);
        match routability(kind, &bindings, queue) {
            Routability::Bound => self.well(format!("queue {queue} is bound to exchange {name}")),
            Routability::Unbound => {
                self.fault(self.broker.hints.queue_unbound(Purpose::DeadLetters, name, queue, queue));
            }
            Routability::Unknown => self.doubt(format!(
                "whether dead letters reach queue {queue} cannot be known for the type of exchange {name}"
            )),
        }
        Ok(())
    }
}

/// What only events of some rows would miss.
fn of_some_rows(fault: &Fault) -> String {
    format!("{}, and rows of the outbox lead to it; {}", fault.what, fault.mend.replace('\n', "; "))
}
