//! Decides by the trace id which events get a span, as the sampler `traceidratio` of the
//! OpenTelemetry SDKs does: all services that use one ratio record the same traces.

const BITS: u32 = 63;

#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Trace ids whose lower bits are below this number are recorded.
    bound: u64,
}

impl Sampler {
    /// `ratio` is from 0 to 1.
    pub fn new(ratio: f64) -> Sampler {
        Sampler { bound: (ratio * (1_u64 << BITS) as f64) as u64 }
    }

    #[inline]
    pub fn samples(self, trace_id: [u8; 16]) -> bool {
        let low = u128::from_be_bytes(trace_id) as u64;
        low >> (u64::BITS - BITS) < self.bound
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
