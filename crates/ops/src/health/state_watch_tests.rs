use super::super::facts::facts;
use super::super::{IntakeHold, Pass, Phase};
use super::*;

#[test]
fn the_metrics_follow_the_state() {
    // GIVEN a process that began at 1,000 s of the epoch
    let metrics = Arc::new(Metrics::new());
    let watch = StateWatch::new(Arc::clone(&metrics), 1_000_000_000);
    let up = || {
        let up = metrics.state.iter().filter(|(_, gauge)| gauge.get() == 1);
        up.map(|(state, _)| state).collect::<Vec<_>>()
    };
    let since = || metrics.state_since_timestamp_seconds.get();
    assert_eq!((up(), since()), (vec![HealthState::Starting], 1_000.0));
    // WHEN it streams two and a half seconds later, and is judged again
    let (mut recorder, facts) = facts(0);
    recorder
        .pass(&Pass { phase: Phase::Streaming, sink_reachable: true, ..Pass::default() }, 2_500);
    watch.judge(&facts.snapshot(), 2_500);
    let held = || {
        let up = metrics.intake_held.iter().filter(|(_, gauge)| gauge.get() == 1);
        up.map(|(reason, _)| reason).collect::<Vec<_>>()
    };
    assert_eq!(held(), []);
    let health = watch.judge(&facts.snapshot(), 4_000);
    // THEN one gauge is up, since the change
    assert_eq!((up(), since()), (vec![HealthState::Streaming], 1_002.5));
    assert_eq!(watch.unix_us(health.since_ms), 1_002_500_000);
    // WHEN the broker client takes no more events THEN the gauge of that reason is up
    recorder.pass(&Pass { hold: Some(IntakeHold::SinkFull), ..Pass::default() }, 5_000);
    watch.judge(&facts.snapshot(), 5_000);
    assert_eq!(held(), [IntakeHold::SinkFull]);
}
