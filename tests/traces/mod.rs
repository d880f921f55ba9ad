//! Spans of published events, as a collector gets them from a relay on real services.

mod failing;
pub(crate) mod fixture;
mod off;
mod published;
