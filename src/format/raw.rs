//! The payload's bytes untouched: nothing is parsed, nothing is copied.

use super::{Context, Format};
use crate::base::event::{HeaderSlots, Outbound};
use crate::outbox::EventError;

#[derive(Debug)]
struct Raw;

pub(super) fn make(_context: &Context) -> Box<dyn Format> {
    Box::new(Raw)
}

impl Format for Raw {
    #[inline]
    fn shape<'a>(
        &'a self,
        event: Outbound<'a>,
        _scratch: &'a mut Vec<u8>,
        _headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, EventError> {
        Ok(event)
    }
}
