//! Begins and ends the spans of sampled events.
//!
//! A span begins when its event is first handed to a sink, and ends when the broker has confirmed the
//! event or its dead letter. Until then it is kept with the event. A sink that is rebuilt gets the
//! events in flight again, and their spans go on.
//!
//! The trace id follows from the event, so that a process which publishes it again makes the same
//! decision, and both spans are in one trace. Span ids are drawn.

use std::hash::BuildHasher as _;

use sha2::{Digest as _, Sha256};

use super::context::TraceContext;
use super::sampler::Sampler;
use super::span::{FinishedSpan, PublishSpan};
use crate::base::event::{HeaderSlots, Outbound, Position, TRACEPARENT};
use crate::base::random::{Random, Salt};

type ExportSpan = Box<dyn FnMut(FinishedSpan) + Send>;

/// The spans of events; empty while traces are off.
#[derive(Default)]
pub struct EventSpans {
    tracer: Option<Box<Tracer>>,
}

struct Tracer {
    sampler: Sampler,
    span_ids: Salt,
    spans: u64,
    export: ExportSpan,
}

/// The part of its span that the hand-over of a sampled event needs.
pub struct SpanStart {
    /// The span, if the event was not handed over before.
    pub span: Option<Box<PublishSpan>>,
    traceparent: [u8; 55],
}

/// A larger event gets no context, which could make it too large for its topic.
const CONTEXT_EVENT_BYTES_MAX: usize = 256 << 10;

impl SpanStart {
    /// The event with this span as its context, unless it has one.
    pub fn add_to<'a>(
        &'a self,
        event: &Outbound<'a>,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Outbound<'a> {
        if event.header(TRACEPARENT).is_some() || event.size_bytes() > CONTEXT_EVENT_BYTES_MAX {
            return *event;
        }
        let mut own = event.headers.iter().copied().chain([(TRACEPARENT, &self.traceparent[..])]);
        // The context is not worth a dead letter.
        if own.any(|(name, value)| headers.push(name, value).is_err()) {
            return *event;
        }
        Outbound { headers: headers.as_slice(), ..*event }
    }
}

impl EventSpans {
    pub fn new(ratio: f64, export: ExportSpan, seed: u64) -> EventSpans {
        let tracer = Tracer {
            sampler: Sampler::new(ratio),
            span_ids: Random::new(seed).salt(),
            spans: 0,
            export,
        };
        EventSpans { tracer: Some(Box::new(tracer)) }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.tracer.is_some()
    }

    /// The event is about to be handed to the sink, which had it before in the span `known`. None if it
    /// is not sampled.
    pub fn begin(
        &mut self,
        known: Option<&PublishSpan>,
        position: Position,
        event: &Outbound<'_>,
        now_unix_us: i64,
    ) -> Option<SpanStart> {
        let Tracer { sampler, span_ids, spans, .. } = self.tracer.as_deref_mut()?;
        if let Some(known) = known {
            return Some(SpanStart { span: None, traceparent: known.context.header() });
        }
        let row = event.header(TRACEPARENT).and_then(TraceContext::parse);
        let trace_id = trace_id_of(event);
        // Where the application has recorded the trace, so that the two have the same traces.
        let decides = row.filter(TraceContext::is_sampled).map_or(trace_id, |row| row.trace_id);
        if !sampler.samples(decides) {
            return None;
        }
        *spans += 1;
        let span_id = span_ids.hash_one(*spans).max(1).to_be_bytes();
        let context = TraceContext::sampled(trace_id, span_id);
        let span = PublishSpan::of(event, position.commit_lsn, context, row, now_unix_us);
        Some(SpanStart { span: Some(Box::new(span)), traceparent: context.header() })
    }

    /// The event is settled. `dead_letter` is the class of its error, if it became a dead letter.
    pub fn end(
        &mut self,
        span: PublishSpan,
        retries: u32,
        dead_letter: Option<&str>,
        now_unix_us: i64,
    ) {
        let Some(tracer) = &mut self.tracer else { return };
        // The clock may have been set back.
        let end_unix_us = now_unix_us.max(span.start_unix_us);
        let dead_letter = dead_letter.map(Box::from);
        (tracer.export)(FinishedSpan { span, end_unix_us, retries, dead_letter });
    }
}

/// The trace id of an event; the same in every process of every version.
fn trace_id_of(event: &Outbound<'_>) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in [event.id, event.exchange, event.topic].map(str::as_bytes) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(event.commit_unix_us.to_be_bytes());
    hash.update(event.key.unwrap_or_default());
    let digest: [u8; 32] = hash.finalize().into();
    // Sixteen zeros, which are no trace id, do not occur.
    std::array::from_fn(|at| digest[at])
}

#[cfg(test)]
#[path = "event_spans_tests.rs"]
mod tests;
