//! Targets of the figures, and whether they are reached.

use serde::Serialize;
use walrelay_measure::numbers::median;

use crate::broker::Queue;
use crate::drain::{Contender, Run};
use crate::growth::{Axis, Cost};
use crate::latency::Rate;

/// One requirement with its figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) limit: Limit,
    pub(crate) unit: &'static str,
    pub(crate) measured: f64,
    pub(crate) met: bool,
}

/// Which side of a number is good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn new(what: impl Into<String>, measured: f64, unit: &'static str, limit: Limit) -> Target {
        let met = match limit {
            Limit::AtLeast(least) => measured >= least,
            Limit::AtMost(most) => measured <= most,
        };
        Target { what: what.into(), limit, unit, measured, met }
    }
}

/// The median of one figure of one contender.
pub(crate) fn of(runs: &[Run], contender: Contender, figure: impl Fn(&Run) -> f64) -> Option<f64> {
    let own = runs.iter().filter(|run| run.contender == contender);
    median(own.map(figure).collect())
}

/// The median over the rounds of one contender's figure over another's in the same round.
fn ratio(runs: &[Run], above: Contender, below: Contender, figure: fn(&Run) -> f64) -> Option<f64> {
    let of = |contender, round| {
        let mut found = runs.iter().filter(|run| run.contender == contender && run.round == round);
        found.next().map(figure)
    };
    let rounds = runs.iter().map(|run| run.round).max().unwrap_or(0);
    let ratios = (1..=rounds).filter_map(|round| Some(of(above, round)? / of(below, round)?));
    median(ratios.collect())
}

/// The targets of the drain.
pub(crate) fn drain(runs: &[Run]) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut add = |what: String, figure: Option<f64>, unit, limit| {
        targets.extend(figure.map(|figure| Target::new(what, figure, unit, limit)));
    };
    let faster = |above, below| ratio(runs, above, below, |run| run.events_per_s);
    let null = faster(Contender::NullSink, Contender::LazyReader);
    add("null sink over the lazy reader".into(), null, "×", Limit::AtLeast(0.9));
    let (quorum, classic) = (Queue::Quorum, Queue::Classic);
    for (contender, name) in [
        (Contender::Kafka, "Kafka"),
        (Contender::KafkaDebezium, "Kafka, preset debezium"),
        (Contender::Rabbitmq(quorum), "RabbitMQ, quorum queue"),
        (Contender::Rabbitmq(classic), "RabbitMQ, classic queue"),
    ] {
        if let Contender::Rabbitmq(queue) = contender {
            let bare = faster(contender, Contender::Bare(queue));
            add(format!("{name} over the bare publisher"), bare, "×", Limit::AtLeast(0.9));
        } else {
            let eager = faster(contender, Contender::PgRecvlogical);
            add(format!("{name} over pg_recvlogical"), eager, "×", Limit::AtLeast(1.6));
            let bare = Contender::BarePipeline;
            let speed = faster(contender, bare);
            add(format!("{name} over the bare pipeline"), speed, "×", Limit::AtLeast(0.9));
            let cpu = ratio(runs, contender, bare, |run| run.cpu_s_per_million);
            add(format!("{name}: CPU over the bare pipeline"), cpu, "×", Limit::AtMost(1.3));
            if contender == Contender::Kafka {
                let bare = Contender::BarePipelineHeaders;
                let speed = faster(contender, bare);
                let what = "Kafka over the bare pipeline with headers";
                add(what.into(), speed, "×", Limit::AtLeast(0.9));
                let cpu = ratio(runs, contender, bare, |run| run.cpu_s_per_million);
                let what = "Kafka: CPU over the bare pipeline with headers";
                add(what.into(), cpu, "×", Limit::AtMost(1.3));
            }
        }
        let peak = of(runs, contender, |run| run.peak_rss_bytes.unwrap_or(0) as f64 / 1e6);
        add(format!("{name}: peak memory in the drain"), peak, "MB", Limit::AtMost(32.0));
        let first = of(runs, contender, |run| run.first_event_ms);
        // A relay that starts before a backlog looks what of it the topics hold already.
        let most_ms = if matches!(contender, Contender::Rabbitmq(_)) { 100.0 } else { 150.0 };
        add(format!("{name}: start to first confirmed"), first, "ms", Limit::AtMost(most_ms));
        let watched = ratio(runs, Contender::Watched, contender, |run| run.cpu_s_per_million);
        add(format!("{name}: CPU when watched"), watched, "×", Limit::AtMost(1.02));
        for against in (0..).map(Contender::Against) {
            let Some(speed) = faster(contender, against) else { break };
            let what = format!("{name} over {}", against.name());
            add(what, Some(speed), "×", Limit::AtLeast(0.97));
        }
    }
    targets
}

/// The targets of the latencies: multiples of the sum of the two legs.
pub(crate) fn latency(rates: &[Rate]) -> Vec<Target> {
    let mut targets = Vec::new();
    for rate in rates {
        let (Some(legs), Some(relay)) = (rate.legs, rate.relays.first()) else { continue };
        let at = rate.events_per_s;
        // At the highest rate the load itself saturates two cores.
        let p50_most = if at >= 5_000 { 4.0 } else { 1.5 };
        let p50 = relay.ms.p50_ms / (legs.source_ms.p50_ms + legs.sink_ms.p50_ms);
        let p99 = relay.ms.p99_ms / (legs.source_ms.p99_ms + legs.sink_ms.p99_ms);
        let what = |point| format!("{at} events/s: {point} over the two legs");
        targets.push(Target::new(what("p50"), p50, "×", Limit::AtMost(p50_most)));
        targets.push(Target::new(what("p99"), p99, "×", Limit::AtMost(2.0)));
        if at == 1_000 {
            let rss = relay.rss_bytes as f64 / 1e6;
            let what = "1000 events/s: memory";
            targets.push(Target::new(what, rss, "MB", Limit::AtMost(16.0)));
        }
    }
    targets
}

/// The targets of growth: the dearest event over the cheapest, along each axis.
pub(crate) fn growth(costs: &[Cost]) -> Vec<Target> {
    let spread = |axis: Axis| {
        let own = costs.iter().filter(|cost| cost.case.axis == axis);
        let own: Vec<f64> = own.map(|cost| cost.cpu_us_per_event).collect();
        let most = own.iter().copied().reduce(f64::max)?;
        let least = own.iter().copied().reduce(f64::min)?;
        let what = format!("CPU per event along {}: most over least", axis.name());
        Some(Target::new(what, most / least, "×", Limit::AtMost(1.5)))
    };
    let axes = [Axis::Backlog, Axis::RowsPerTransaction, Axis::Keys];
    axes.into_iter().filter_map(spread).collect()
}
