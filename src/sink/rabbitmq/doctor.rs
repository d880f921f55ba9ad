//! What must be there before the first event, and its making.
//!
//! At the start AMQP is asked, over the connection that events will take, and the management API
//! where there is one. `check` asks the same, and says what cannot be known. Neither changes
//! anything.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::bindings::{self, Binding, Reach};
use super::connection::{self, Connection};
use super::dead_letters;
use super::fault::{self, Loss};
use super::management::{Management, NoAnswer};
use super::message::NAME_BYTES_MAX;
use super::settings::RabbitSettings;
use crate::base::error::Fault;
use crate::base::runtime;
use crate::sink::rabbitmq::mend_hints;
use crate::sink::rabbitmq::probe::{self as ask, Shape};
use crate::sink::{Inspection, Wanted};

const EXCHANGE_KEY: &str = "sink.rabbitmq.exchange";
/// Queues that are looked at one by one.
const QUEUES_MAX: usize = 100;

/// Looks at what is wanted over an open connection.
pub(super) async fn look(
    settings: &RabbitSettings,
    wanted: &Wanted,
    connection: &Connection,
) -> Inspection {
    let mut survey = Survey { settings, wanted, found: Inspection::default(), thorough: false };
    survey.exposed();
    survey.run(connection).await;
    if survey.found.faults.is_empty() {
        survey.routes().await;
    }
    survey.found
}

/// The same over a connection of its own, and more, for `check`.
pub(super) fn inspect(settings: &RabbitSettings, wanted: &Wanted) -> Inspection {
    let mut survey = Survey { settings, wanted, found: Inspection::default(), thorough: true };
    let looked = runtime::block_on(async {
        let connection = match connection::open(settings, 0).await {
            Ok(connection) => connection,
            Err(loss) => return survey.found.faults.push(fault::unreachable(settings, &loss)),
        };
        let at = connection.host;
        survey.well(format!(
            "rabbitmq answers at {}, virtual host {}",
            settings.hosts[at], settings.vhost
        ));
        survey.exposed();
        survey.run(&connection).await;
        connection.close().await;
        if survey.found.faults.is_empty() {
            survey.routes().await;
        }
    });
    match looked {
        Ok(()) => survey.found,
        Err(fault) => Inspection { faults: vec![fault], ..Inspection::default() },
    }
}

/// Makes what is missing, for `init`: exchange, queues, bindings, and what dead letters need.
pub(super) fn prepare(
    settings: &RabbitSettings,
    wanted: &Wanted,
) -> Result<Vec<String>, Vec<Fault>> {
    let made = runtime::block_on(async {
        let connection = connection::open(settings, 0).await;
        let connection = connection.map_err(|loss| vec![fault::unreachable(settings, &loss)])?;
        let made = async {
            let mut made = make(settings, &connection).await?;
            if let Some(address) = &wanted.dead_letters {
                made.extend(dead_letters::make(settings, &connection.link, address).await?);
            }
            Ok(made)
        };
        let made = made.await;
        connection.close().await;
        made
    });
    made.unwrap_or_else(|fault| Err(vec![fault]))
}

async fn make(
    settings: &RabbitSettings,
    connection: &Connection,
) -> Result<Vec<String>, Vec<Fault>> {
    let mut made = Vec::new();
    let exchange = settings.exchange.as_deref().filter(|name| !name.is_empty());
    let mut new_exchange = false;
    if let Some(name) = exchange {
        let failed =
            |loss: Loss| vec![mend_hints::not_made(settings, &format!("exchange {name}"), &loss)];
        new_exchange = !ask::exchange_exists(&connection.link, name).await.map_err(failed)?;
        let kind = &settings.exchange_type;
        if new_exchange {
            ask::declare_exchange(&connection.link, name, kind, false, false)
                .await
                .map_err(failed)?;
            made.push(format!("exchange {name}: {kind}, durable"));
        } else {
            let shape = ask::shape(&connection.link, name, kind).await.map_err(failed)?;
            let faults = mend_hints::misshapen(settings, EXCHANGE_KEY, name, &shape);
            if !faults.is_empty() {
                return Err(faults);
            }
        }
    }
    for (queue, key) in &settings.queues {
        let failed =
            |loss: Loss| vec![mend_hints::not_made(settings, &format!("queue {queue}"), &loss)];
        let new_queue = !ask::queue_exists(&connection.link, queue).await.map_err(failed)?;
        if new_queue {
            let kind = &settings.queue_type;
            ask::declare_queue(&connection.link, queue, kind).await.map_err(failed)?;
            made.push(format!("queue {queue}: {kind}, durable"));
        }
        let Some(name) = exchange else { continue };
        let what = format!("binding of queue {queue} to exchange {name} by {key:?}");
        let bound = ask::bind(&connection.link, queue, name, key).await;
        bound.map_err(|loss| vec![mend_hints::not_made(settings, &what, &loss)])?;
        // AMQP does not say whether a binding was there before.
        if new_queue || new_exchange {
            made.push(what);
        }
    }
    Ok(made)
}

/// Gathers what is found.
struct Survey<'a> {
    settings: &'a RabbitSettings,
    wanted: &'a Wanted,
    found: Inspection,
    /// For a person who asks, and not only at the start.
    thorough: bool,
}

impl Survey<'_> {
    fn well(&mut self, text: String) {
        self.found.well.push(text);
    }

    fn doubt(&mut self, text: String) {
        self.found.doubtful.push(text);
    }

    /// A remark that only a person who asks wants to hear each time.
    fn remark(&mut self, text: String) {
        if self.thorough {
            self.doubt(text);
        }
    }

    /// What goes over the wire can be read on the way.
    fn exposed(&mut self) {
        let local = |name: &str| {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        };
        let away = self.settings.hosts.iter().find(|host| !local(&host.name));
        if let (None, Some(host)) = (&self.settings.tls, away) {
            let text = format!(
                "amqp:// to {host} is not encrypted: password and events can be read on the way; write amqps:// in sink.rabbitmq.url"
            );
            self.doubt(text);
        }
        if let Some(api) = &self.settings.management
            && let Some(host) = api.unencrypted().filter(|host| !local(host))
        {
            self.doubt(format!(
                "http:// to {host} is not encrypted: the password can be read on the way; write https:// in sink.rabbitmq.management_url"
            ));
        }
    }

    async fn run(&mut self, connection: &Connection) {
        // A fault that was found may have ended the connection.
        if let Err(loss) = self.ask(connection).await
            && self.found.faults.is_empty()
        {
            self.found.faults.push(fault::unreachable(self.settings, &loss));
        }
    }

    async fn ask(&mut self, connection: &Connection) -> Result<(), Loss> {
        let mut queues: BTreeSet<&String> = self.settings.queues.keys().collect();
        match self.settings.exchange.as_deref() {
            None => self.remark(
                "the exchange comes from rows: none can be looked at before the first event"
                    .to_owned(),
            ),
            // There, a routing key is the name of a queue.
            Some("") => queues.extend(&self.wanted.topics),
            Some(name) => self.exchange(connection, name).await?,
        }
        for queue in &queues {
            self.queue(connection, queue).await?;
        }
        // On the default exchange.
        let direct = self.settings.exchange.as_deref() == Some("");
        let from_rows = self.wanted.from_rows.iter();
        let from_rows = from_rows.filter(|name| direct && name.len() <= NAME_BYTES_MAX);
        for queue in from_rows.filter(|queue| !queues.contains(queue)).take(QUEUES_MAX) {
            if !ask::queue_exists(&connection.link, queue).await? {
                self.doubt(of_rows(&mend_hints::queue(self.settings, queue)));
            }
        }
        if let Some(address) = &self.wanted.dead_letters {
            let (settings, thorough) = (self.settings, self.thorough);
            dead_letters::look(settings, &connection.link, address, thorough, &mut self.found)
                .await?;
        }
        Ok(())
    }

    async fn exchange(&mut self, connection: &Connection, name: &str) -> Result<(), Loss> {
        let settings = self.settings;
        if !ask::exchange_exists(&connection.link, name).await? {
            self.found.faults.push(mend_hints::exchange(settings, name));
            return Ok(());
        }
        if !ask::may_publish(&connection.link, name).await? {
            self.found.faults.push(mend_hints::permission(
                settings,
                name,
                self.wanted.dead_letters.as_ref(),
            ));
        }
        let kind = &settings.exchange_type;
        let shape = ask::shape(&connection.link, name, kind).await?;
        let faults = mend_hints::misshapen(settings, EXCHANGE_KEY, name, &shape);
        if faults.is_empty() {
            self.sound_exchange(name, &shape);
        }
        self.found.faults.extend(faults);
        Ok(())
    }

    fn sound_exchange(&mut self, name: &str, shape: &Shape) {
        if shape.hidden {
            self.well(format!("exchange {name} is there"));
            self.remark(format!(
                "whether exchange {name} is durable and of type {} cannot be known: this login may not declare it, which run does not need",
                self.settings.exchange_type
            ));
        } else {
            self.well(format!(
                "exchange {name} is there: {}, durable",
                self.settings.exchange_type
            ));
        }
        if let Some(alternate) = &shape.alternate {
            self.doubt(alternate_doubt(name, alternate));
        }
        if shape.auto_delete {
            self.doubt(format!("exchange {name} deletes itself with its last binding"));
        }
    }

    async fn queue(&mut self, connection: &Connection, name: &str) -> Result<(), Loss> {
        match ask::queue_exists(&connection.link, name).await {
            Ok(true) => self.well(format!("queue {name} is there")),
            Ok(false) => self.found.faults.push(mend_hints::queue(self.settings, name)),
            Err(loss) if loss.code.is_some() => {
                self.found.faults.push(mend_hints::unusable_queue(self.settings, name, &loss));
            }
            Err(loss) => return Err(loss),
        }
        Ok(())
    }

    /// Whether something is bound, as far as that can be known.
    async fn routes(&mut self) {
        let exchange = self.settings.exchange.as_deref().filter(|name| !name.is_empty());
        let letters = self.wanted.dead_letters.as_ref().filter(|it| !it.exchange.is_empty());
        let Some(api) = &self.settings.management else {
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
            && let Err((what, error)) = self.bindings(api, name).await
        {
            self.doubt(format!("the management API at {api} was asked for {what}: {error}"));
        }
        if let Some(address) = letters {
            dead_letters::bound(self.settings, api, address, &mut self.found).await;
        }
    }

    async fn bindings(&mut self, api: &Management, name: &str) -> Result<(), (String, NoAnswer)> {
        let vhost = self.settings.vhost.as_str();
        let login = self.settings.login.password();
        let told = |what: &str| {
            let what = what.to_owned();
            move |error| (what, error)
        };
        let exchange = api.get(&["exchanges", vhost, name], login).await;
        let exchange = exchange.map_err(told("the exchange"))?;
        let mut alternate = exchange["arguments"]["alternate-exchange"].as_str().map(str::to_owned);
        if let Some(policy) = exchange["policy"].as_str().filter(|policy| !policy.is_empty()) {
            match api.get(&["policies", vhost, policy], login).await {
                Ok(policy) => {
                    let by_policy = policy["definition"]["alternate-exchange"].as_str();
                    alternate = alternate.or(by_policy.map(str::to_owned));
                }
                Err(error) => self.doubt(format!(
                    "exchange {name} is under policy {policy}, which may send what is unroutable elsewhere; it cannot be read: {error}"
                )),
            }
        }
        if let Some(alternate) = &alternate {
            let text = alternate_doubt(name, alternate);
            if !self.found.doubtful.contains(&text) {
                self.doubt(text);
            }
        }
        let listed = api.get(&["exchanges", vhost, name, "bindings", "source"], login).await;
        let bindings = bindings::read(&listed.map_err(told("its bindings"))?);
        let kind = exchange["type"].as_str().unwrap_or(&self.settings.exchange_type);
        self.reached(name, kind, &bindings, alternate.is_some());
        self.insisted(name, &bindings);
        let mut queues: Vec<&str> =
            bindings.iter().filter(|it| it.to_queue).map(|it| it.destination.as_str()).collect();
        queues.sort_unstable();
        queues.dedup();
        for queue in queues.into_iter().take(QUEUES_MAX) {
            let queue = api.get(&["queues", vhost, queue], login).await.map_err(told("a queue"))?;
            self.found.doubtful.extend(bindings::doubts(&queue));
        }
        Ok(())
    }

    fn reached(&mut self, name: &str, kind: &str, bindings: &[Binding], alternate: bool) {
        if self.wanted.topics.is_empty() {
            match bindings.len() {
                0 if !alternate => self.found.faults.push(mend_hints::binding(self.settings, name, None)),
                count => self.well(format!(
                    "{count} bindings to exchange {name}; routing keys come from rows, so whether each is bound is seen event by event"
                )),
            }
        }
        let from_rows = self.wanted.from_rows.iter().filter(|_| !alternate).take(QUEUES_MAX);
        for key in from_rows {
            if bindings::reach(kind, bindings, key) == Reach::Unbound {
                self.doubt(of_rows(&mend_hints::binding(self.settings, name, Some(key))));
            }
        }
        for key in &self.wanted.topics {
            match bindings::reach(kind, bindings, key) {
                Reach::Bound => self.well(format!("routing key {key} is bound")),
                // Told already, as something that hides this.
                Reach::Unbound if alternate => {}
                Reach::Unbound => {
                    self.found.faults.push(mend_hints::binding(self.settings, name, Some(key)));
                }
                Reach::Unknown => self.doubt(format!(
                    "whether routing key {key} is bound cannot be known for an exchange of type {kind}"
                )),
            }
        }
    }

    /// The queues of the configuration are bound as it says.
    fn insisted(&mut self, name: &str, bindings: &[Binding]) {
        for (queue, key) in &self.settings.queues {
            let bound = |it: &Binding| it.to_queue && it.destination == *queue && it.key == *key;
            if !bindings.iter().any(bound) {
                let fault = mend_hints::unbound_queue(self.settings, name, queue, key);
                self.found.faults.push(fault);
            }
        }
    }
}

/// What only events of some rows would miss.
fn of_rows(fault: &Fault) -> String {
    format!("{}, and rows of the outbox lead to it; {}", fault.what, fault.mend.replace('\n', "; "))
}

pub(super) fn alternate_doubt(name: &str, alternate: &str) -> String {
    format!(
        "exchange {name} has the alternate exchange {alternate}: events that no queue is bound for go there and count as delivered"
    )
}
