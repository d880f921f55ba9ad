//! The spans of the sampled events in flight, by the number of the event: at most one for each event
//! in the window.
//!
//! A span begins when its event is first handed to a sink, and ends when the broker has confirmed the
//! event or its dead letter. A sink that is rebuilt gets the events in flight again, and their spans
//! go on.
//!
//! The trace id follows from the event, so that a process which publishes it again makes the same
//! decision, and both spans are in one trace. Span ids are drawn.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher as _;

use sha2::{Digest as _, Sha256};

use super::context::TraceContext;
use super::sampler::Sampler;
use super::span::{FinishedSpan, PublishSpan};
use crate::base::encoding::hex;
use crate::base::event::{HeaderSlots, Outbound, Position, Sequence, TRACEPARENT};
use crate::base::hash::HashMap;
use crate::base::random::{Random, Salt};

type ExportSpan = Box<dyn FnMut(FinishedSpan) + Send>;

/// Nothing while traces are off.
#[derive(Default)]
pub struct EventSpans {
    tracer: Option<Box<Tracer>>,
}

struct Tracer {
    sampler: Sampler,
    in_flight: HashMap<Sequence, PublishSpan>,
    span_ids: Salt,
    spans: u64,
    export: ExportSpan,
}

/// What the hand-over of a sampled event needs of its span.
pub struct SpanStart {
    /// The event was not handed over before.
    pub is_new: bool,
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
        if header_of(event).is_some() || event.size_bytes() > CONTEXT_EVENT_BYTES_MAX {
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
            in_flight: HashMap::default(),
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

    /// The event is about to be handed to the sink. None if it is not sampled.
    pub fn begin(
        &mut self,
        sequence: Sequence,
        position: Position,
        event: &Outbound<'_>,
        now_unix_us: i64,
    ) -> Option<SpanStart> {
        let Tracer { sampler, in_flight, span_ids, spans, .. } = self.tracer.as_deref_mut()?;
        let entry = match in_flight.entry(sequence) {
            Entry::Occupied(known) => {
                let traceparent = known.get().context.header();
                return Some(SpanStart { is_new: false, traceparent });
            }
            Entry::Vacant(entry) => entry,
        };
        let row = header_of(event).and_then(TraceContext::parse);
        let trace_id = trace_id_of(event);
        // Where the application has recorded the trace, so that the two have the same traces.
        let decides = row.filter(TraceContext::is_sampled).map_or(trace_id, |row| row.trace_id);
        if !sampler.samples(decides) {
            return None;
        }
        *spans += 1;
        let span_id = span_ids.hash_one(*spans).max(1).to_be_bytes();
        let context = TraceContext::sampled(trace_id, span_id);
        entry.insert(PublishSpan::of(event, position.commit_lsn, context, row, now_unix_us));
        Some(SpanStart { is_new: true, traceparent: context.header() })
    }

    /// The sink has not taken the event: its span begins when it is offered again.
    pub fn withdraw(&mut self, sequence: Sequence) {
        if let Some(tracer) = &mut self.tracer {
            tracer.in_flight.remove(&sequence);
        }
    }

    /// The event is settled. `dead_letter` is the class of its error, if it became a dead letter.
    pub fn end(
        &mut self,
        sequence: Sequence,
        retries: u32,
        dead_letter: Option<&str>,
        now_unix_us: i64,
    ) {
        let Some(tracer) = &mut self.tracer else { return };
        let Some(span) = tracer.in_flight.remove(&sequence) else { return };
        // The clock may have been set back.
        let end_unix_us = now_unix_us.max(span.start_unix_us);
        let dead_letter = dead_letter.map(Box::from);
        (tracer.export)(FinishedSpan { span, end_unix_us, retries, dead_letter });
    }

    /// For log lines about an event.
    pub fn trace_id(&self, sequence: Sequence) -> Option<String> {
        let span = self.tracer.as_ref()?.in_flight.get(&sequence)?;
        Some(hex(&span.context.trace_id))
    }

    /// Numbers from `next` on will be given to other events than before.
    pub fn forget(&mut self, next: Sequence) {
        if let Some(tracer) = &mut self.tracer {
            tracer.in_flight.retain(|sequence, _| *sequence < next);
        }
    }
}

fn header_of<'a>(event: &Outbound<'a>) -> Option<&'a [u8]> {
    event.headers.iter().find(|(name, _)| *name == TRACEPARENT).map(|(_, value)| *value)
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
