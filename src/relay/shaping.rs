//! Which payload format each outbox has, and its application.

use super::faults;
use crate::base::error::Fault;
use crate::base::event::{HeaderSlots, Outbound, give_back};
use crate::format::{self, Binding, CloudEvents};
use crate::outbox::EventError;
use crate::outbox::settings::Route;
use crate::source::settings::SourceSettings;

/// The payload format of each outbox; nothing where bytes pass through untouched.
pub(super) struct Shaping {
    tables: Vec<Shape>,
    messages: Shape,
}

#[derive(Default)]
pub(super) struct Shape {
    format: Option<CloudEvents>,
    scratch: Vec<u8>,
}

impl Shaping {
    pub(super) fn new(source: &SourceSettings) -> Result<Shaping, Fault> {
        let tables = source.outboxes.iter().map(|outbox| {
            Shape::new(&outbox.route, &format!("{}.{}", outbox.schema, outbox.table))
        });
        let messages = source.messages.as_ref().map(|it| Shape::new(&it.route, &it.prefix));
        Ok(Shaping {
            tables: tables.collect::<Result<_, Fault>>()?,
            messages: messages.transpose()?.unwrap_or_default(),
        })
    }

    pub(super) fn of_table(&mut self, index: usize) -> &mut Shape {
        &mut self.tables[index]
    }

    pub(super) fn of_messages(&mut self) -> &mut Shape {
        &mut self.messages
    }
}

impl Shape {
    fn new(route: &Route, origin: &str) -> Result<Shape, Fault> {
        let binding = if route.exchange.is_some() { Binding::Amqp } else { Binding::Kafka };
        let format = format::make(&route.format, format!("/walrelay/{origin}"), binding)
            .map_err(|error| faults::format(&error))?;
        Ok(Shape { format, scratch: Vec::new() })
    }

    /// Hands the shaped event to `then`.
    #[inline]
    pub(super) fn shape<T>(
        &mut self,
        event: Outbound<'_>,
        then: impl FnOnce(&Outbound<'_>) -> T,
    ) -> Result<T, EventError> {
        let Shape { format: Some(format), scratch } = self else { return Ok(then(&event)) };
        let mut headers = HeaderSlots::new();
        let outcome = format.shape(event, scratch, &mut headers).map(|event| then(&event));
        give_back(scratch);
        outcome
    }
}
