//! Scales: from a value to a place on paper. Whatever comes in, a finite place comes out.

/// The smallest value of a logarithmic scale: a hundredth of a millisecond.
const LOG_FLOOR: f64 = 0.01;

/// The largest value of any scale. Nothing measured comes near it; it keeps sums finite.
const CEILING: f64 = 1e12;

/// How values are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Linear,
    /// Equal factors are equally far apart.
    Log,
    /// Logarithmic, with a place for zero: for counts.
    Count,
}

/// From a value between `low` and `high` to a place between `from` and `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// Where an axis has a line; only the major ones say their value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) major: bool,
}

impl Scale {
    /// From zero to `high`.
    pub(super) fn linear(high: f64, (from, to): (f64, f64)) -> Scale {
        let high = if high > 0.0 { high.clamp(1e-12, CEILING) } else { 1.0 };
        Scale { kind: Kind::Linear, low: 0.0, high, from, to }
    }

    /// Over all of these values, rounded outwards, and over a decade at least.
    pub(super) fn log(values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Scale {
        let usable =
            values.filter(|value| value.is_finite()).map(|value| value.clamp(LOG_FLOOR, CEILING));
        let (low, high) = usable
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let low = if low.is_finite() { round_down(low) } else { 1.0 };
        let high = round_up(high.max(low * 10.0));
        Scale { kind: Kind::Log, low, high, from, to }
    }

    /// Counts from zero to `high`, rounded up.
    pub(super) fn count(high: f64, (from, to): (f64, f64)) -> Scale {
        let high = if high > 1.0 { high.min(CEILING) } else { 1.0 };
        Scale { kind: Kind::Count, low: 0.0, high: round_up(high), from, to }
    }

    /// The place of a value; what lies outside is moved to the edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        let share = match self.kind {
            Kind::Linear => value / self.high,
            Kind::Log => (value / self.low).ln() / (self.high / self.low).ln(),
            Kind::Count => value.ln_1p() / self.high.ln_1p(),
        };
        self.from + share * (self.to - self.from)
    }

    /// Round values between both ends.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        match self.kind {
            Kind::Linear => self.linear_ticks(),
            Kind::Log => self.log_ticks(),
            Kind::Count => {
                let zero = Tick { value: 0.0, major: true };
                let decades = decades(1.0, self.high).map(|value| Tick { value, major: true });
                std::iter::once(zero).chain(decades).collect()
            }
        }
    }

    fn linear_ticks(&self) -> Vec<Tick> {
        let step = round_up(self.high / 5.0);
        let steps = (self.high / step + 1e-9) as u32;
        (0..=steps).map(|n| Tick { value: f64::from(n) * step, major: true }).collect()
    }

    fn log_ticks(&self) -> Vec<Tick> {
        // One decade alone would leave an axis with a single word on it.
        let wide = self.high / self.low > 101.0;
        let inside = |tick: &Tick| {
            tick.value >= self.low * (1.0 - 1e-9) && tick.value <= self.high * (1.0 + 1e-9)
        };
        decades(self.low, self.high)
            .flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| (decade, digit)))
            .map(|(decade, digit)| Tick { value: decade * digit, major: !wide || digit < 1.5 })
            .filter(inside)
            .collect()
    }
}

/// The powers of ten from the one at or below `low` up to `high`.
fn decades(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let first = (low.log10() + 1e-9).floor() as i32;
    let last = (high.log10() + 1e-9).floor() as i32;
    (first..=last).map(|exponent| 10_f64.powi(exponent))
}

/// The largest of 1, 2, 5 times a power of ten that is not above; for positive values.
fn round_down(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let digit = [5.0, 2.0, 1.0].into_iter().find(|digit| decade * digit <= value * (1.0 + 1e-9));
    decade * digit.unwrap_or(1.0)
}

/// The smallest of 1, 2, 5 times a power of ten that is not below; for positive values.
fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| decade * digit >= value * (1.0 - 1e-9));
    decade * digit.unwrap_or(10.0)
}
