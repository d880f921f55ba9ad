//! Kinds of a metric: a scalar, or one scalar per value of a fixed label.
//!
//! A labelled family registers each child with a constant label, so that all series exist (at 0)
//! from the start and no label value can be made up at run time.

use std::marker::PhantomData;

use super::LabelSet;
use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry, Result,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    /// As Prometheus' text format writes it.
    pub const fn text(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// One entry of the table.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    pub name: &'static str,
    pub kind: MetricKind,
    pub unit: &'static str,
    pub help: &'static str,
    /// Label and all its values.
    pub label: Option<(&'static str, &'static [&'static str])>,
    pub buckets: &'static [f64],
}

impl MetricSpec {
    /// The label as the documentation shows it.
    pub fn label_text(&self) -> String {
        match self.label {
            None => String::new(),
            // The documentation would change with every release.
            Some((name, [version])) if *version == env!("CARGO_PKG_VERSION") => format!("`{name}`"),
            Some((name, values)) => format!("`{name}`: `{}`", values.join("`, `")),
        }
    }
}

/// A metric without a label.
pub trait Scalar: Clone + Collector + Sized + 'static {
    const KIND: MetricKind;
    fn build(opts: Opts, buckets: &[f64]) -> Result<Self>;
}

macro_rules! scalars {
    ($($scalar:ty: $kind:ident),*) => {$(
        impl Scalar for $scalar {
            const KIND: MetricKind = MetricKind::$kind;
            fn build(opts: Opts, _buckets: &[f64]) -> Result<Self> {
                <$scalar>::with_opts(opts)
            }
        }
    )*};
}
scalars!(IntCounter: Counter, Counter: Counter, IntGauge: Gauge, Gauge: Gauge);

impl Scalar for Histogram {
    const KIND: MetricKind = MetricKind::Histogram;
    fn build(opts: Opts, buckets: &[f64]) -> Result<Self> {
        Histogram::with_opts(HistogramOpts { common_opts: opts, buckets: buckets.to_vec() })
    }
}

fn register<S: Scalar>(registry: &Registry, opts: Opts, spec: &MetricSpec) -> Result<S> {
    let scalar = S::build(opts, spec.buckets)?;
    registry.register(Box::new(scalar.clone()))?;
    Ok(scalar)
}

pub trait Instrument: Sized {
    const KIND: MetricKind;
    /// Name and values of the label.
    const LABEL: Option<(&'static str, &'static [&'static str])>;
    fn register(registry: &Registry, spec: &MetricSpec) -> Result<Self>;
}

impl<S: Scalar> Instrument for S {
    const KIND: MetricKind = S::KIND;
    const LABEL: Option<(&'static str, &'static [&'static str])> = None;

    fn register(registry: &Registry, spec: &MetricSpec) -> Result<Self> {
        register(registry, Opts::new(spec.name, spec.help), spec)
    }
}

/// One `S` per value of the label `L`.
#[derive(Debug)]
pub struct Family<S, L> {
    children: Vec<S>,
    label: PhantomData<fn(L)>,
}

impl<S, L: LabelSet> Family<S, L> {
    pub fn at(&self, value: L) -> &S {
        &self.children[value.index()]
    }

    pub fn iter(&self) -> impl Iterator<Item = (L, &S)> {
        L::ALL.iter().copied().zip(&self.children)
    }
}

impl<S: Scalar, L: LabelSet> Instrument for Family<S, L> {
    const KIND: MetricKind = S::KIND;
    const LABEL: Option<(&'static str, &'static [&'static str])> = Some((L::NAME, L::TEXTS));

    fn register(registry: &Registry, spec: &MetricSpec) -> Result<Self> {
        let child = |text: &&str| {
            let opts = Opts::new(spec.name, spec.help).const_label(L::NAME, *text);
            register(registry, opts, spec)
        };
        let children = L::TEXTS.iter().map(child).collect::<Result<_>>()?;
        Ok(Family { children, label: PhantomData })
    }
}
