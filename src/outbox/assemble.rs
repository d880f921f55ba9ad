//! From the values of one row to the event that is published.
//!
//! What must be made (templates, headers out of JSON) is written into the buffers first; the event
//! then only borrows: from the wire, the route, the transaction and the buffers. Nothing is allocated
//! once the buffers have grown to the largest row of usual size; what a larger one needs is given
//! back.

use super::compile::{CompiledRoute, CompiledTemplate, TemplateForm};
use super::error::EventError;
use super::field::{FieldValue, Fields};
use super::row_headers::RowHeaders;
use super::transaction::CommitStamp;
use crate::base::event::{HeaderSlots, Outbound, TooManyHeaders, brief, give_back};

/// Memory that is kept from event to event.
#[derive(Debug, Default)]
pub struct ExtractScratch {
    pub(super) arena: Vec<u8>,
    row_headers: RowHeaders,
    /// Headers of the route that had to be rendered, by place in the route.
    extras: Vec<FieldValue<'static>>,
}

impl ExtractScratch {
    /// Gives memory back that only an unusually large event has needed.
    #[inline]
    pub fn give_back(&mut self) {
        give_back(&mut self.arena);
        self.row_headers.give_back();
    }
}

/// Kafka's limit.
const TOPIC_BYTES_MAX: usize = 249;

/// What had to be rendered.
struct Rendered<'a> {
    exchange: FieldValue<'a>,
    topic: FieldValue<'a>,
    key: FieldValue<'a>,
}

/// The event's id in an error.
#[cold]
pub(super) fn event_name(
    route: &CompiledRoute,
    fields: &Fields<'_>,
    scratch: &ExtractScratch,
) -> String {
    match fields[route.id].bytes(&scratch.arena) {
        Some(id) => brief(&String::from_utf8_lossy(id)).into_owned(),
        None => "(unknown)".to_owned(),
    }
}

/// Makes the event. `scratch` still holds what the fields point to.
pub(super) fn assemble<'a>(
    route: &'a CompiledRoute,
    fields: &Fields<'a>,
    transaction: &'a CommitStamp,
    scratch: &'a mut ExtractScratch,
    slots: &'a mut HeaderSlots<'a>,
) -> Result<Outbound<'a>, EventError> {
    let rendered = render(route, fields, scratch)?;
    // From here on the scratch is only read.
    let scratch: &'a ExtractScratch = scratch;
    let arena = scratch.arena.as_slice();
    let id_column = &route.names[route.id];
    let Some(id) = fields[route.id].bytes(arena) else {
        let problem = "is NULL, and every event needs it";
        return Err(EventError::in_column("null-column", "(unknown)", id_column, problem));
    };
    let id = std::str::from_utf8(id).map_err(|_| {
        let event = event_name(route, fields, scratch);
        EventError::in_column("bad-value", &event, id_column, "does not hold UTF-8 text")
    })?;
    let topic = checked_topic(route, rendered.topic.bytes(arena).unwrap_or_default(), id)?;
    let text = |field: FieldValue<'a>| std::str::from_utf8(field.bytes(arena)?).ok();
    let partition = partition(route, fields, arena, id)?;
    push_headers(route, id, fields, transaction, scratch, slots)
        .map_err(|TooManyHeaders| EventError::too_many_headers(&brief(id)))?;
    Ok(Outbound {
        exchange: text(rendered.exchange).unwrap_or_default(),
        topic,
        key: rendered.key.bytes(arena),
        value: fields[route.payload].bytes(arena),
        id,
        event_type: route.message_type.and_then(|slot| text(fields[slot])),
        content_type: route.content_type,
        headers: slots.as_slice(),
        commit_unix_us: transaction.commit_unix_us(),
        partition,
    })
}

fn render<'a>(
    route: &'a CompiledRoute,
    fields: &Fields<'a>,
    scratch: &mut ExtractScratch,
) -> Result<Rendered<'a>, EventError> {
    let ExtractScratch { arena, row_headers, extras } = scratch;
    let mut unless_null = |template: &'a CompiledTemplate| {
        template.render(fields, arena).map_err(|slot| (slot, template))
    };
    let rendered = unless_null(&route.topic).and_then(|topic| {
        let exchange = route.exchange.as_ref().map_or(Ok(FieldValue::Null), &mut unless_null)?;
        let key = match (unless_null(&route.key), &route.key.form) {
            (Err(_), TemplateForm::Column(_)) => FieldValue::Null,
            (key, _) => key?,
        };
        Ok(Rendered { exchange, topic, key })
    });
    let rendered = match rendered {
        Ok(rendered) => rendered,
        Err((slot, template)) => {
            return Err(null_in_template(route, fields, scratch, slot, template));
        }
    };
    extras.clear();
    for (_, template) in &route.extras {
        extras.push(template.render_mixed(fields, arena).unwrap_or_default());
    }
    row_headers.clear();
    if let Some(slot) = route.headers
        && let Some(json) = fields[slot].bytes(arena)
        && let Err(error) = row_headers.read(json)
    {
        let event = event_name(route, fields, scratch);
        let problem = format_args!("is not a JSON object: {error}");
        let column = &route.names[slot];
        return Err(EventError::in_column("headers-not-object", &event, column, problem));
    }
    Ok(rendered)
}

#[cold]
fn null_in_template(
    route: &CompiledRoute,
    fields: &Fields<'_>,
    scratch: &ExtractScratch,
    slot: usize,
    template: &CompiledTemplate,
) -> EventError {
    let event = event_name(route, fields, scratch);
    let CompiledTemplate { setting, text, .. } = template;
    let problem = format_args!("is NULL, and {setting} = {text:?} needs it");
    EventError::in_column("null-in-template", &event, &route.names[slot], problem)
}

#[inline]
fn checked_topic<'a>(
    route: &CompiledRoute,
    topic: &'a [u8],
    id: &str,
) -> Result<&'a str, EventError> {
    // A routing key is any text; what AMQP cannot carry, its sink refuses.
    let any = route.exchange.is_some();
    let fits = || {
        (1..=TOPIC_BYTES_MAX).contains(&topic.len())
            && topic.iter().all(|byte| TOPIC_BYTES[usize::from(*byte)])
    };
    match std::str::from_utf8(topic) {
        Ok(text) if any || fits() => Ok(text),
        _ => Err(bad_topic(route, topic, id)),
    }
}

#[cold]
fn bad_topic(route: &CompiledRoute, topic: &[u8], id: &str) -> EventError {
    let event = brief(id);
    let topic = String::from_utf8_lossy(&topic[..topic.len().min(300)]);
    let text = &route.topic.text;
    EventError::new(
        "bad-topic",
        format!(
            "event {event}: {topic:?} is not a topic (1 to 249 of letters, digits, \".\", \"_\" and \
             \"-\"); it comes from route.topic = {text:?}"
        ),
    )
}

fn partition(
    route: &CompiledRoute,
    fields: &Fields<'_>,
    arena: &[u8],
    id: &str,
) -> Result<Option<i32>, EventError> {
    let Some(slot) = route.partition else { return Ok(None) };
    let Some(text) = fields[slot].bytes(arena) else { return Ok(None) };
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i32>().ok());
    number.filter(|number| *number >= 0).map(Some).ok_or_else(|| {
        let value = String::from_utf8_lossy(&text[..text.len().min(40)]);
        let problem = format_args!("= {value:?} is not a partition (0 to 2147483647)");
        EventError::in_column("bad-partition", &brief(id), &route.names[slot], problem)
    })
}

/// In order: `id`, the standard headers, those of the row, those of the route. One name comes once:
/// the route's own before the standard ones, and both before the row's.
#[inline]
fn push_headers<'a>(
    route: &'a CompiledRoute,
    id: &'a str,
    fields: &Fields<'a>,
    transaction: &'a CommitStamp,
    scratch: &'a ExtractScratch,
    slots: &mut HeaderSlots<'a>,
) -> Result<(), TooManyHeaders> {
    let arena = scratch.arena.as_slice();
    let column = |slot: Option<usize>| slot.and_then(|slot| fields[slot].bytes(arena));
    slots.push("id", id.as_bytes())?;
    if let Some(event_type) = column(route.event_type) {
        slots.push("event_type", event_type)?;
    }
    if let Some(traceparent) = column(route.traceparent).filter(|text| !text.is_empty()) {
        slots.push("traceparent", traceparent)?;
    }
    if route.commit_ts {
        slots.push("commit_ts", transaction.time_text())?;
    }
    if route.lsn {
        slots.push("lsn", transaction.lsn_text())?;
    }
    for (name, value) in scratch.row_headers.iter() {
        let taken = slots.as_slice().iter().any(|(taken, _)| *taken == name)
            || route.extras.iter().any(|(taken, _)| taken == name);
        if !taken {
            slots.push(name, value)?;
        }
    }
    for ((name, template), rendered) in route.extras.iter().zip(&scratch.extras) {
        let field = match &template.form {
            TemplateForm::Constant(text) => FieldValue::Wire(text),
            TemplateForm::Column(slot) => fields[*slot],
            TemplateForm::Mixed(_) => *rendered,
        };
        if let Some(value) = field.bytes(arena) {
            slots.push(name, value)?;
        }
    }
    Ok(())
}

/// What is known of a row that is not an event, for its dead letter: nothing is checked.
pub(super) fn salvage<'a>(
    route: &'a CompiledRoute,
    fields: &Fields<'a>,
    transaction: &'a CommitStamp,
    scratch: &'a mut ExtractScratch,
    slots: &'a mut HeaderSlots<'a>,
) -> Outbound<'a> {
    let mut render = |template: &'a CompiledTemplate| {
        template.render(fields, &mut scratch.arena).unwrap_or_default()
    };
    let (topic, key) = (render(&route.topic), render(&route.key));
    let exchange = route.exchange.as_ref().map(render).unwrap_or_default();
    let arena = scratch.arena.as_slice();
    let text = |field: FieldValue<'a>| {
        field.bytes(arena).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    };
    let id = text(fields[route.id]);
    // One header always fits.
    slots.push("id", id.as_bytes()).ok();
    Outbound {
        exchange: text(exchange),
        topic: text(topic),
        key: key.bytes(arena),
        value: fields[route.payload].bytes(arena),
        id,
        event_type: None,
        content_type: route.content_type,
        headers: slots.as_slice(),
        commit_unix_us: transaction.commit_unix_us(),
        partition: None,
    }
}

/// Letters, digits, `.`, `_` and `-`.
const TOPIC_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let it = byte as u8;
        allowed[byte] = it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b'-');
        byte += 1;
    }
    allowed
};
