//! What dead letters need at the broker: an exchange, and behind it a stream. Looked at, made, and
//! told with the command that mends it.
//!
//! `run` writes to the exchange. The stream is read by `walrelay dlq`, and for parked keys: who may
//! only write is told, and not refused.

use super::bindings::{self, Reach};
use super::connection::Link;
use super::fault::{self, Loss, user};
use super::log;
use super::management::Management;
use super::replies::{ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED};
use super::settings::RabbitSettings;
use crate::base::error::Fault;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::Inspection;
use crate::sink::rabbitmq::doctor::alternate_doubt;
use crate::sink::rabbitmq::mend_hints::{self, admin, grant_all};
use crate::sink::rabbitmq::probe::{self as ask, QueueKind, STREAM};

const EXCHANGE_KEY: &str = "dead_letter.exchange";
/// Of the exchange that `init` makes.
const DIRECT: &str = "direct";

/// Makes exchange, stream and binding, where they are missing.
pub(super) async fn make(
    settings: &RabbitSettings,
    link: &Link,
    address: &DeadLetterAddress,
) -> Result<Vec<String>, Vec<Fault>> {
    let DeadLetterAddress { exchange, topic: queue } = address;
    let failed = |what: &str| {
        let what = what.to_owned();
        move |loss: Loss| vec![mend_hints::not_made(settings, &what, &loss)]
    };
    let mut made = Vec::new();
    let what = format!("exchange {exchange}");
    let default = exchange.is_empty();
    let exists = default || ask::exchange_exists(link, exchange).await.map_err(failed(&what))?;
    if !exists {
        let making = ask::declare_exchange(link, exchange, DIRECT, false, false).await;
        making.map_err(failed(&what))?;
        made.push(format!("{what}, for dead letters: {DIRECT}, durable"));
    }
    let what = format!("queue {queue}");
    let new_queue = !ask::queue_exists(link, queue).await.map_err(failed(&what))?;
    if new_queue {
        ask::declare_queue(link, queue, STREAM).await.map_err(failed(&what))?;
        made.push(format!("{what}, for dead letters: {STREAM}, keeps everything"));
    } else if examine(settings, link, address).await.map_err(failed(&what))?.0 == QueueKind::Other {
        return Err(vec![not_a_stream(settings, address)]);
    }
    if !default {
        let what = format!("binding of queue {queue} to exchange {exchange} by {queue:?}");
        ask::bind(link, queue, exchange, queue).await.map_err(failed(&what))?;
        // AMQP does not say whether a binding was there before.
        if new_queue || !exists {
            made.push(what);
        }
    }
    Ok(made)
}

/// Looks at exchange and stream; a person who asks hears what cannot be known, too.
pub(super) async fn look(
    settings: &RabbitSettings,
    link: &Link,
    address: &DeadLetterAddress,
    thorough: bool,
    found: &mut Inspection,
) -> Result<(), Loss> {
    let name = &address.exchange;
    // The default exchange is always there, and may not be asked for.
    if !name.is_empty() {
        if !ask::exchange_exists(link, name).await? {
            found.faults.push(exchange(settings, name));
        } else {
            look_at_exchange(settings, link, address, found).await?;
        }
    }
    let name = &address.topic;
    match ask::queue_exists(link, name).await {
        Ok(true) => look_at_stream(settings, link, address, thorough, found).await,
        Ok(false) => {
            found.faults.push(queue(settings, name));
            Ok(())
        }
        Err(loss) if loss.code.is_some() => {
            found.faults.push(mend_hints::unusable_queue(settings, name, &loss));
            Ok(())
        }
        Err(loss) => Err(loss),
    }
}

async fn look_at_exchange(
    settings: &RabbitSettings,
    link: &Link,
    address: &DeadLetterAddress,
    found: &mut Inspection,
) -> Result<(), Loss> {
    let name = &address.exchange;
    if !ask::may_publish(link, name).await? {
        found.faults.push(forbidden(settings, address));
    }
    let mut shape = ask::shape(link, name, DIRECT).await?;
    // Any type will do that lets letters through.
    if let Some(kind) = shape.other_type.take() {
        shape = ask::shape(link, name, &kind).await?;
    }
    if let Some(alternate) = &shape.alternate {
        found.doubtful.push(alternate_doubt(name, alternate));
    }
    let faults = mend_hints::misshapen(settings, EXCHANGE_KEY, name, &shape);
    if faults.is_empty() {
        found.well.push(format!("exchange {name}, for dead letters, is there"));
    }
    found.faults.extend(faults);
    Ok(())
}

/// What the queue is, as far as this login may know, and why it may not be read.
async fn examine(
    settings: &RabbitSettings,
    link: &Link,
    address: &DeadLetterAddress,
) -> Result<(QueueKind, Option<Fault>), Loss> {
    let kind = ask::queue_kind(link, &address.topic).await?;
    match log::probe(link, &address.topic).await {
        Ok(()) if kind == QueueKind::Hidden => Ok((QueueKind::Stream, None)),
        Ok(()) => Ok((kind, None)),
        Err(loss) if loss.code.is_none() => Err(loss),
        Err(loss) => {
            let fault = unreadable(settings, address, &loss);
            let kind = match kind {
                _ if fault.code == NOT_A_STREAM => QueueKind::Other,
                // Queues of other types have such limits, too.
                QueueKind::Forgetful(_) => QueueKind::Hidden,
                kind => kind,
            };
            Ok((kind, Some(fault)))
        }
    }
}

async fn look_at_stream(
    settings: &RabbitSettings,
    link: &Link,
    address: &DeadLetterAddress,
    thorough: bool,
    found: &mut Inspection,
) -> Result<(), Loss> {
    let name = &address.topic;
    let (kind, unreadable) = examine(settings, link, address).await?;
    match kind {
        QueueKind::Other => {
            found.faults.push(not_a_stream(settings, address));
            return Ok(());
        }
        QueueKind::Stream => {
            found.well.push(format!("queue {name}, for dead letters, is there: a stream"));
        }
        QueueKind::Forgetful(limit) => found.doubtful.push(format!(
            "queue {name} is a stream that forgets dead letters, open ones too ({limit})"
        )),
        QueueKind::Hidden => {
            found.well.push(format!("queue {name}, for dead letters, is there"));
            if thorough {
                found.doubtful.push(format!(
                    "whether queue {name} is a stream cannot be known: this login may neither declare nor read it"
                ));
            }
        }
    }
    if let Some(fault) = unreadable.filter(|_| thorough) {
        found.doubtful.push(format!(
            "{}: walrelay dlq needs it, and so do parked keys after a restart; to mend it: {}",
            fault.what, fault.mend
        ));
    }
    Ok(())
}

/// Whether letters reach the stream, asked of the management API.
pub(super) async fn bound(
    settings: &RabbitSettings,
    api: &Management,
    address: &DeadLetterAddress,
    found: &mut Inspection,
) {
    let (vhost, login) = (settings.vhost.as_str(), settings.login.password());
    let DeadLetterAddress { exchange, topic: queue } = address;
    let asked = async {
        let described = api.get(&["exchanges", vhost, exchange], login).await?;
        let listed = api.get(&["exchanges", vhost, exchange, "bindings", "source"], login).await?;
        Ok((described, listed))
    };
    let (described, listed) = match asked.await {
        Ok(answers) => answers,
        Err(error) => {
            let error: super::management::NoAnswer = error;
            return found.doubtful.push(format!(
                "the management API at {api} was asked for exchange {exchange}: {error}"
            ));
        }
    };
    let mut bindings = bindings::read(&listed);
    bindings.retain(|it| it.to_queue && it.destination == *queue);
    match bindings::reach(described["type"].as_str().unwrap_or(DIRECT), &bindings, queue) {
        Reach::Bound => {
            found.well.push(format!("queue {queue} is bound to exchange {exchange}"));
        }
        Reach::Unbound => found.faults.push(unbound(settings, address)),
        Reach::Unknown => found.doubtful.push(format!(
            "whether dead letters reach queue {queue} cannot be known for the type of exchange {exchange}"
        )),
    }
}

const MISSING: &str = "sink.dead-letter-missing";
const FORBIDDEN: &str = "sink.dead-letter-forbidden";
const UNREADABLE: &str = "sink.dead-letter-unreadable";
const NOT_A_STREAM: &str = "sink.dead-letter-not-a-stream";

fn exchange(settings: &RabbitSettings, name: &str) -> Fault {
    let what = format!("exchange {name}, for dead letters, does not exist");
    let words = format!("declare exchange name={name:?} type={DIRECT} durable=true");
    let mend = format!("walrelay init, or: {}", admin(settings, &words));
    mend_hints::told(settings, MISSING, &format!("exchange {name}"), what, mend)
}

fn queue(settings: &RabbitSettings, name: &str) -> Fault {
    let what = format!("queue {name}, for dead letters, does not exist");
    let words = format!("declare queue name={name:?} durable=true queue_type={STREAM}");
    let mend = format!("walrelay init, or: {}", admin(settings, &words));
    mend_hints::told(settings, MISSING, &format!("queue {name}"), what, mend)
}

fn unbound(settings: &RabbitSettings, address: &DeadLetterAddress) -> Fault {
    let DeadLetterAddress { exchange, topic: queue } = address;
    let what = format!(
        "queue {queue} is not bound to exchange {exchange} by {queue:?}: dead letters would come back"
    );
    let words =
        format!("declare binding source={exchange:?} destination={queue:?} routing_key={queue:?}");
    let mend = format!("walrelay init, or: {}", admin(settings, &words));
    mend_hints::told(settings, MISSING, &format!("queue {queue}"), what, mend)
}

fn forbidden(settings: &RabbitSettings, address: &DeadLetterAddress) -> Fault {
    let name = &address.exchange;
    let what = format!("{} may not publish dead letters to exchange {name}", user(settings));
    let mend = grant_all(settings, Some(address));
    mend_hints::told(settings, FORBIDDEN, &format!("exchange {name}"), what, mend)
}

/// The queue is there and holds letters in a way that reading would undo.
pub(super) fn not_a_stream(settings: &RabbitSettings, address: &DeadLetterAddress) -> Fault {
    let name = &address.topic;
    let what = format!(
        "queue {name}, for dead letters, is not a stream: reading would take them out of it"
    );
    let mend = format!(
        "name another in dead_letter.topic, then: walrelay init; or, when nothing in it is needed any more: {}, then: walrelay init",
        admin(settings, &format!("delete queue name={name:?}"))
    );
    mend_hints::told(settings, NOT_A_STREAM, &format!("queue {name}"), what, mend)
}

/// Behind the record at `last` there is too much that cannot be read.
pub(super) fn garbled(
    settings: &RabbitSettings,
    address: &DeadLetterAddress,
    last: Option<i64>,
) -> Fault {
    let DeadLetterAddress { exchange, topic: name } = address;
    let offset = last.map_or(0, |last| last + 1);
    let what = format!(
        "queue {name} holds records of others, from offset {offset} on, that are no AMQP this client can read"
    );
    let mend = format!(
        "let nobody else write to queue {name} and exchange {exchange:?}; then name another queue in dead_letter.topic, and: walrelay init"
    );
    mend_hints::told(settings, UNREADABLE, &format!("queue {name}"), what, mend)
}

/// The stream cannot be read.
pub(super) fn unreadable(
    settings: &RabbitSettings,
    address: &DeadLetterAddress,
    loss: &Loss,
) -> Fault {
    let name = &address.topic;
    let subject = format!("queue {name}");
    let tell = |code, what, mend| mend_hints::told(settings, code, &subject, what, mend);
    match loss.code {
        None => fault::unreachable(settings, loss),
        Some(NOT_FOUND) => queue(settings, name),
        Some(ACCESS_REFUSED) => tell(
            FORBIDDEN,
            format!("{} may not read dead letters from queue {name}", user(settings)),
            grant_all(settings, Some(address)),
        ),
        // What a queue of another type says of where to begin.
        Some(PRECONDITION_FAILED) if loss.text.contains(log::OFFSET) => {
            not_a_stream(settings, address)
        }
        Some(PRECONDITION_FAILED) if loss.text.contains("replica") => tell(
            UNREADABLE,
            format!("queue {name} cannot be read over this host: {}", loss.text),
            format!(
                "name a host first that has a replica, in sink.rabbitmq.url; or there: rabbitmq-streams add_replica --vhost {:?} {name:?} NODE",
                settings.vhost
            ),
        ),
        Some(_) => tell(
            UNREADABLE,
            format!("queue {name} cannot be read: {}", loss.text),
            "see the broker's log, and: rabbitmqctl list_queues name type state".to_owned(),
        ),
    }
}
