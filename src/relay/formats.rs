//! The payload format of each outbox, and how an event gets it.

use crate::base::event::{HeaderSlots, Outbound, give_back};
use crate::format::{self, CloudEvents};
use crate::outbox::EventError;
use crate::outbox::settings::Route;
use crate::source::settings::SourceSettings;

/// The formats of all outboxes.
pub(super) struct Formats {
    tables: Vec<EventFormat>,
    messages: EventFormat,
}

/// One format; none where payloads pass through unchanged.
#[derive(Default)]
pub(super) struct EventFormat {
    format: Option<CloudEvents>,
    buffer: Vec<u8>,
}

impl Formats {
    pub(super) fn new(source: &SourceSettings) -> Formats {
        let tables = source.outboxes.iter().map(|outbox| {
            EventFormat::new(&outbox.route, &format!("{}.{}", outbox.schema, outbox.table))
        });
        let messages = source.messages.as_ref().map(|it| EventFormat::new(&it.route, &it.prefix));
        Formats { tables: tables.collect(), messages: messages.unwrap_or_default() }
    }

    pub(super) fn of_table(&mut self, index: usize) -> &mut EventFormat {
        &mut self.tables[index]
    }

    pub(super) fn of_messages(&mut self) -> &mut EventFormat {
        &mut self.messages
    }
}

impl EventFormat {
    fn new(route: &Route, origin: &str) -> EventFormat {
        let format = format::make(route.format, format!("/walrelay/{origin}"), route.binding);
        EventFormat { format, buffer: Vec::new() }
    }

    /// Passes the shaped event to `publish`.
    #[inline]
    pub(super) fn shape<T>(
        &mut self,
        event: Outbound<'_>,
        publish: impl FnOnce(&Outbound<'_>) -> T,
    ) -> Result<T, EventError> {
        let EventFormat { format: Some(format), buffer } = self else { return Ok(publish(&event)) };
        let mut headers = HeaderSlots::new();
        let outcome = format.shape(event, buffer, &mut headers).map(|event| publish(&event));
        give_back(buffer);
        outcome
    }
}
