//! What is not as it must be at the broker, told with the command that mends it.

use super::fault::{self, Loss, grant, user};
use super::replies::{ACCESS_REFUSED, COMMAND_INVALID, PRECONDITION_FAILED};
use super::settings::RabbitSettings;
use crate::base::error::{Exit, Fault};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::rabbitmq::probe::Shape;

pub(super) fn told(
    settings: &RabbitSettings,
    code: &'static str,
    subject: &str,
    what: String,
    mend: String,
) -> Fault {
    Fault::new(Exit::Sink, code, what, format!("{subject} at {}", settings.place()), mend)
}

/// `rabbitmqadmin`, on the right virtual host.
pub(super) fn admin(settings: &RabbitSettings, words: &str) -> String {
    format!("rabbitmqadmin --vhost={:?} {words}", settings.vhost)
}

/// A pattern that these names match and nothing else does.
fn pattern(names: &[&str]) -> String {
    let escaped = |name: &&str| {
        let mut pattern = String::new();
        for c in name.chars() {
            if !(c.is_alphanumeric() || "_-:/ ".contains(c)) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern
    };
    match names {
        [] => String::new(),
        [name] => format!("^{}$", escaped(name)),
        names => format!("^({})$", names.iter().map(escaped).collect::<Vec<_>>().join("|")),
    }
}

/// The command that gives the relay the rights it needs, and no others.
pub(super) fn grant_all(
    settings: &RabbitSettings,
    dead_letters: Option<&DeadLetterAddress>,
) -> String {
    let exchange = settings.exchange.as_deref();
    let letters = dead_letters.map(|address| address.exchange.as_str());
    // The default exchange is asked for under another name; rows may name any.
    let write = match exchange {
        None | Some("") => ".*".to_owned(),
        Some(exchange) => {
            pattern(&[Some(exchange), letters].into_iter().flatten().collect::<Vec<_>>())
        }
    };
    let read = pattern(
        &dead_letters.map(|address| address.topic.as_str()).into_iter().collect::<Vec<_>>(),
    );
    let command = grant(settings, &format!("'' '{write}' '{read}'"));
    format!("{command} (configure, write, read: this replaces what there is)")
}

pub(super) fn exchange(settings: &RabbitSettings, name: &str) -> Fault {
    let kind = &settings.exchange_type;
    let words = format!("declare exchange name={name:?} type={kind} durable=true");
    let mend = format!("walrelay init, or: {}", admin(settings, &words));
    let what = format!("exchange {name} does not exist");
    told(settings, "sink.exchange-missing", &format!("exchange {name}"), what, mend)
}

pub(super) fn permission(
    settings: &RabbitSettings,
    name: &str,
    dead_letters: Option<&DeadLetterAddress>,
) -> Fault {
    let who = user(settings);
    let mend = grant_all(settings, dead_letters);
    let what = format!("{who} may not publish to exchange {name}");
    told(settings, "sink.exchange-forbidden", &format!("exchange {name}"), what, mend)
}

/// In what an exchange, which `key` names, cannot be used as it is.
pub(super) fn misshapen(
    settings: &RabbitSettings,
    key: &str,
    name: &str,
    shape: &Shape,
) -> Vec<Fault> {
    let wanted = &settings.exchange_type;
    let anew = admin(settings, &format!("delete exchange name={name:?}"));
    let mut faults = Vec::new();
    let mut tell = |code, what: String, mend: String| {
        faults.push(told(settings, code, &format!("exchange {name}"), what, mend));
    };
    if let Some(found) = &shape.other_type {
        tell(
            "sink.exchange-type",
            format!(
                "exchange {name} is of type {found}, and sink.rabbitmq.exchange_type says {wanted}"
            ),
            format!(
                "exchange_type = {found:?} under [sink.rabbitmq]; or make it anew: {anew}, then: walrelay init"
            ),
        );
    }
    if shape.transient {
        tell(
            "sink.exchange-not-durable",
            format!(
                "exchange {name} is not durable: it and its bindings are gone after a restart of the broker"
            ),
            format!("{anew}, then: walrelay init"),
        );
    }
    if shape.internal {
        tell(
            "sink.exchange-internal",
            format!("exchange {name} is internal: nobody can publish to it"),
            format!("name another in {key}; or: {anew}, then: walrelay init"),
        );
    }
    if shape.unknown_type {
        tell(
            "sink.exchange-type",
            format!("the broker knows no exchange type {wanted}"),
            "correct sink.rabbitmq.exchange_type, or enable its plugin: rabbitmq-plugins list"
                .to_owned(),
        );
    }
    faults
}

pub(super) fn queue(settings: &RabbitSettings, name: &str) -> Fault {
    let what = format!("queue {name} does not exist");
    let kind = &settings.queue_type;
    let words = format!("declare queue name={name:?} durable=true queue_type={kind}");
    let by_hand = admin(settings, &words);
    let mend = if settings.queues.contains_key(name) {
        format!("walrelay init, or: {by_hand}")
    } else {
        format!("{by_hand}; or list it in sink.rabbitmq.queues, then: walrelay init")
    };
    told(settings, "sink.queue-missing", &format!("queue {name}"), what, mend)
}

pub(super) fn unusable_queue(settings: &RabbitSettings, name: &str, loss: &Loss) -> Fault {
    let what = format!("queue {name} cannot be used: {}", loss.text);
    let mend = "rabbitmqctl list_queues name durable exclusive state".to_owned();
    told(settings, "sink.queue-unusable", &format!("queue {name}"), what, mend)
}

/// Nothing is bound for the key; with none, nothing at all is bound.
pub(super) fn binding(settings: &RabbitSettings, name: &str, key: Option<&str>) -> Fault {
    let what = match key {
        Some(key) => format!(
            "nothing is bound to exchange {name} for routing key {key}: events would come back"
        ),
        None => format!("nothing is bound to exchange {name}: every event would come back"),
    };
    let key = key.unwrap_or("#");
    let words = format!("declare binding source={name:?} destination=QUEUE routing_key={key:?}");
    let mend = format!(
        "{}; or under [sink.rabbitmq]: queues = {{ \"QUEUE\" = {key:?} }}, then: walrelay init",
        admin(settings, &words)
    );
    told(settings, "sink.unroutable", &format!("exchange {name}"), what, mend)
}

pub(super) fn unbound_queue(
    settings: &RabbitSettings,
    name: &str,
    queue: &str,
    key: &str,
) -> Fault {
    let what = format!("queue {queue} is not bound to exchange {name} by {key:?}");
    let words =
        format!("declare binding source={name:?} destination={queue:?} routing_key={key:?}");
    let mend = format!("walrelay init, or: {}", admin(settings, &words));
    told(settings, "sink.binding-missing", &format!("queue {queue}"), what, mend)
}

/// `init` could not make something.
pub(super) fn not_made(settings: &RabbitSettings, what: &str, loss: &Loss) -> Fault {
    let text = format!("cannot make {what}: {}", loss.text);
    let subject = what.to_owned();
    let (code, mend) = match loss.code {
        Some(ACCESS_REFUSED) => (
            "sink.not-permitted",
            format!(
                "run init as somebody who may: WALRELAY_SINK__RABBITMQ__URL=amqp://ADMIN:PASSWORD@HOST/VHOST walrelay init; or for as long as it takes: {}",
                grant(settings, "'.*' '.*' '.*'")
            ),
        ),
        Some(PRECONDITION_FAILED) => (
            "sink.not-made",
            "it is there with other properties: delete it first, or use it as it is and remove it from sink.rabbitmq.queues"
                .to_owned(),
        ),
        Some(COMMAND_INVALID) => (
            "sink.exchange-type",
            "correct sink.rabbitmq.exchange_type, or enable its plugin: rabbitmq-plugins list"
                .to_owned(),
        ),
        Some(_) => ("sink.not-made", "see the broker's log".to_owned()),
        None => return fault::unreachable(settings, loss),
    };
    told(settings, code, &subject, text, mend)
}

#[cfg(test)]
#[path = "mend_hints_tests.rs"]
mod tests;
