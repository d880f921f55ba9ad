//! What a metric can be: a scalar, or one scalar per value of a fixed label.
//!
//! A labelled family registers each child with a constant label, so that all series exist (at 0)
//! from the start and no label value can be made up at run time.

use std::marker::PhantomData;

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry, Result,
};

/// Prometheus' metric types, as far as used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by bucket.
    Histogram,
}

impl Kind {
    /// The word of the text format.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One entry of the table.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Unit, for the documentation.
    pub unit: &'static str,
    /// Help, one sentence.
    pub help: &'static str,
    /// Label and all its values, if it has one.
    pub label: Option<(&'static str, &'static [&'static str])>,
    /// Upper bounds of a histogram's buckets.
    pub buckets: &'static [f64],
}

impl Spec {
    /// The label as the documentation shows it.
    #[must_use]
    pub fn label_text(&self) -> String {
        match self.label {
            None => String::new(),
            // The only open-ended value: the documentation would change with every release.
            Some((name, [version])) if *version == env!("CARGO_PKG_VERSION") => format!("`{name}`"),
            Some((name, values)) => {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                format!("`{name}`: {}", values.join(", "))
            }
        }
    }
}

/// The values of a label.
pub trait LabelSet: Copy + PartialEq + 'static {
    /// The label's name.
    const NAME: &'static str;
    /// Its values as text, in the order of `ALL`.
    const TEXTS: &'static [&'static str];
    /// Its values.
    const ALL: &'static [Self];
    /// Position in `ALL`.
    fn index(self) -> usize;
}

/// A metric without a label.
pub trait Scalar: Clone + Collector + Sized + 'static {
    /// Its type.
    const KIND: Kind;
    /// A new one.
    fn build(opts: Opts, buckets: &[f64]) -> Result<Self>;
}

macro_rules! scalars {
    ($($scalar:ty: $kind:ident),*) => {$(
        impl Scalar for $scalar {
            const KIND: Kind = Kind::$kind;
            fn build(opts: Opts, _buckets: &[f64]) -> Result<Self> {
                <$scalar>::with_opts(opts)
            }
        }
    )*};
}
scalars!(IntCounter: Counter, Counter: Counter, IntGauge: Gauge, Gauge: Gauge);

impl Scalar for Histogram {
    const KIND: Kind = Kind::Histogram;
    fn build(opts: Opts, buckets: &[f64]) -> Result<Self> {
        Histogram::with_opts(HistogramOpts { common_opts: opts, buckets: buckets.to_vec() })
    }
}

/// Whatever a field of the table can be.
pub trait Instrument: Sized {
    /// Its type.
    const KIND: Kind;
    /// Its label and the label's values.
    const LABEL: Option<(&'static str, &'static [&'static str])>;
    /// Makes and registers it.
    fn register(registry: &Registry, spec: &Spec) -> Result<Self>;
}

impl<S: Scalar> Instrument for S {
    const KIND: Kind = S::KIND;
    const LABEL: Option<(&'static str, &'static [&'static str])> = None;

    fn register(registry: &Registry, spec: &Spec) -> Result<Self> {
        let scalar = S::build(Opts::new(spec.name, spec.help), spec.buckets)?;
        registry.register(Box::new(scalar.clone()))?;
        Ok(scalar)
    }
}

/// One `S` per value of the label `L`.
#[derive(Debug)]
pub struct Family<S, L> {
    children: Vec<S>,
    label: PhantomData<fn(L)>,
}

impl<S, L: LabelSet> Family<S, L> {
    /// The child of a label value.
    #[must_use]
    pub fn at(&self, value: L) -> &S {
        &self.children[value.index()]
    }

    /// All children with their label values.
    pub fn iter(&self) -> impl Iterator<Item = (L, &S)> {
        L::ALL.iter().copied().zip(&self.children)
    }
}

impl<S: Scalar, L: LabelSet> Instrument for Family<S, L> {
    const KIND: Kind = S::KIND;
    const LABEL: Option<(&'static str, &'static [&'static str])> = Some((L::NAME, L::TEXTS));

    fn register(registry: &Registry, spec: &Spec) -> Result<Self> {
        let mut children = Vec::with_capacity(L::TEXTS.len());
        for text in L::TEXTS {
            let opts = Opts::new(spec.name, spec.help).const_label(L::NAME, *text);
            let child = S::build(opts, spec.buckets)?;
            registry.register(Box::new(child.clone()))?;
            children.push(child);
        }
        Ok(Family { children, label: PhantomData })
    }
}
