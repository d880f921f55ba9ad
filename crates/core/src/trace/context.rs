//! The W3C trace context: the header `traceparent`, read and written.
//!
//! <https://www.w3.org/TR/trace-context-2/#traceparent-header>

use crate::base::encoding::{hex_digits, push_unhexed};

/// Length of version 00; a later version may append fields.
const TEXT_BYTES: usize = 55;
const SAMPLED: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
}

impl TraceContext {
    /// The context of a span that is recorded.
    pub fn sampled(trace_id: [u8; 16], span_id: [u8; 8]) -> TraceContext {
        TraceContext { trace_id, span_id, flags: SAMPLED }
    }

    /// None for a text that is no trace context, of which then nothing is used.
    pub fn parse(text: &[u8]) -> Option<TraceContext> {
        let (fixed, rest) = text.split_at_checked(TEXT_BYTES)?;
        let mut parts = fixed.split(|byte| *byte == b'-');
        let [version] = unhexed(parts.next()?)?;
        let context = TraceContext {
            trace_id: unhexed(parts.next()?)?,
            span_id: unhexed(parts.next()?)?,
            flags: u8::from_be_bytes(unhexed(parts.next()?)?),
        };
        let ends = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let has_ids = context.trace_id != [0; 16] && context.span_id != [0; 8];
        (parts.next().is_none() && ends && has_ids).then_some(context)
    }

    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The header, of version 00.
    pub fn header(&self) -> [u8; TEXT_BYTES] {
        let mut text = [b'-'; TEXT_BYTES];
        push_hex(&mut text[0..2], &[0]);
        push_hex(&mut text[3..35], &self.trace_id);
        push_hex(&mut text[36..52], &self.span_id);
        push_hex(&mut text[53..55], &[self.flags]);
        text
    }
}

fn push_hex(text: &mut [u8], bytes: &[u8]) {
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&hex_digits(*byte));
    }
}

/// The bytes of exactly so many digits, which must be lowercase.
fn unhexed<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = Vec::with_capacity(N);
    if digits.len() != 2 * N || digits.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    push_unhexed(digits, &mut bytes)?;
    bytes.try_into().ok()
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
