use crate::health::tests::streaming;
use crate::health::{Facts, HealthState, Judge, Pass, Phase, StateReason, facts};
use walrelay_base::lsn::Lsn;

/// Judges once a second from second 1 to `seconds`; `now` changes the pass and the server for it.
fn watched(
    seconds: u64,
    mut now: impl FnMut(u64, &mut Pass) -> (u64, u64),
) -> Vec<(u64, StateReason)> {
    let (mut recorder, facts) = facts(0);
    let mut judge = Judge::default();
    let mut seen = Vec::new();
    for second in 1..=seconds {
        let mut pass = streaming();
        let (server, slot_confirmed) = now(second, &mut pass);
        facts.server_at(Lsn::from_wire(server), Lsn::from_wire(slot_confirmed));
        recorder.pass(&pass, second * 1_000);
        let health = judge.judge(&facts.snapshot(), second * 1_000).0;
        assert!(health.reasons.len() <= 1, "one explanation is enough: {:?}", health.reasons);
        seen.extend(health.reason.map(|reason| (second, reason)));
    }
    seen
}

#[test]
fn wal_that_grows_while_the_confirmed_lsn_stands_is_a_stall() {
    // GIVEN everything confirmed for a while, then WAL and no progress
    let seen = watched(60, |second, _| (100 + 10 * second.saturating_sub(10), 100));
    // THEN after 3 s that is a stall
    let first = StateReason::WalUnconfirmed { for_ms: 4_000, bytes: 40 };
    assert_eq!(seen.first(), Some(&(14, first)));
    assert_eq!(seen.len(), 47);
    assert_eq!(first.code(), "wal_unconfirmed");
    // AND a confirmed position ends it
    let seen = watched(48, |second, _| (100 + 10 * second, if second < 45 { 100 } else { 200 }));
    assert_eq!(seen.last().map(|(second, _)| *second), Some(44));
}

#[test]
fn a_stall_of_the_confirmed_lsn_speaks_against_readiness_after_30_s() {
    let (mut recorder, facts) = facts(0);
    let mut judge = Judge::default();
    let mut seen = Vec::new();
    for second in 1..=40 {
        facts.server_at(Lsn::from_wire(100 + second), Lsn::from_wire(100));
        recorder.pass(&streaming(), second * 1_000);
        let health = judge.judge(&facts.snapshot(), second * 1_000).0;
        seen.push((health.state, health.reasons.is_empty()));
    }
    let count = |wanted| seen.iter().filter(|it| **it == wanted).count();
    assert_eq!(count((HealthState::Streaming, true)), 4);
    assert_eq!(count((HealthState::Stalled, true)), 27);
    assert_eq!(count((HealthState::Stalled, false)), 9);
}

#[test]
fn an_idle_database_is_not_stalled() {
    // GIVEN no WAL at all behind a position that is not confirmed, or WAL that is confirmed
    assert_eq!(watched(600, |_, _| (200, 100)), []);
    assert_eq!(watched(600, |second, _| (100 + second, 100 + second)), []);
    // AND WAL of which a part is confirmed now and then
    assert_eq!(watched(600, |second, _| (100 + second, 100 + second / 3 * 3)), []);
}

#[test]
fn a_transaction_that_is_received_or_settles_is_not_stalled() {
    let long = |second, pass: &mut Pass| {
        pass.settled_events = second * 100_000;
        pass.in_flight_events = 16_384;
        (100 + second * 1_000, 100)
    };
    assert_eq!(watched(600, long), []);
    // AND rows of other tables are received, of which none settles
    let ignored = |second, pass: &mut Pass| {
        pass.received_lsn = Lsn::from_wire(300 + second);
        (100 + second * 1_000, 100)
    };
    assert_eq!(watched(600, ignored), []);
}

#[test]
fn what_explains_the_standstill_better_leads() {
    let down = |second, pass: &mut Pass| {
        pass.sink_reachable = false;
        (100 + second, 100)
    };
    let seen = watched(60, down);
    assert_eq!(seen.last(), Some(&(60, StateReason::SinkDown(59_000))));
    let connecting = |second, pass: &mut Pass| {
        pass.phase = Phase::Connecting;
        (100 + second, 100)
    };
    assert_eq!(watched(60, connecting).last(), Some(&(60, StateReason::NotStreaming(59_000))));
}

#[test]
fn a_postgres_that_answers_neither_the_stream_nor_the_slot_watch_is_a_stall_of_an_idle_relay() {
    let (mut recorder, facts) = facts(0);
    let mut judge = Judge::default();
    let mut look = |facts: &Facts, pass: &Pass, now_ms| {
        recorder.pass(pass, now_ms);
        judge.judge(&facts.snapshot(), now_ms).0
    };
    // GIVEN an idle relay whose slot watch has its answers
    look(&facts, &streaming(), 1_000);
    facts.postgres_asked(50_000);
    facts.postgres_answered();
    assert_eq!(look(&facts, &streaming(), 60_000).state, HealthState::Streaming);
    // WHEN it has none any more, however often it asks THEN that is a stall after 3 s
    facts.postgres_asked(61_000);
    facts.postgres_asked(63_000);
    assert_eq!(look(&facts, &streaming(), 64_000).state, HealthState::Streaming);
    let health = look(&facts, &streaming(), 64_001);
    assert_eq!((health.state, health.reasons), (HealthState::Stalled, vec![]));
    assert_eq!(health.reason, Some(StateReason::PostgresSilent(3_001)));
    assert_eq!(health.reason.unwrap().code(), "postgres_silent");
    // AND after 30 s it is not ready
    assert_eq!(look(&facts, &streaming(), 91_000).reasons, []);
    let health = look(&facts, &streaming(), 91_001);
    assert_eq!(health.reasons, [StateReason::PostgresSilent(30_001)]);
    // WHEN the stream brings something THEN only the slot watch is cut off
    let received = Pass { received_lsn: Lsn::from_wire(301), ..streaming() };
    assert_eq!(look(&facts, &received, 92_000).state, HealthState::Streaming);
    assert_eq!(look(&facts, &received, 95_001).state, HealthState::Stalled);
    // AND an answer ends it
    facts.postgres_answered();
    assert_eq!(look(&facts, &received, 98_000).state, HealthState::Streaming);
}

#[test]
fn a_postgres_that_is_silent_is_told_before_wal_that_was_seen_to_grow() {
    let (mut recorder, facts) = facts(0);
    let mut judge = Judge::default();
    let mut reason = None;
    for second in 1..=60 {
        facts.server_at(Lsn::from_wire(100 + second.min(20)), Lsn::from_wire(100));
        if second == 20 {
            facts.postgres_asked(20_000);
        }
        recorder.pass(&streaming(), second * 1_000);
        reason = judge.judge(&facts.snapshot(), second * 1_000).0.reason;
    }
    assert_eq!(reason, Some(StateReason::PostgresSilent(40_000)));
}

#[test]
fn a_relay_without_a_stream_is_not_said_to_hear_nothing_of_postgres() {
    let (mut recorder, facts) = facts(0);
    facts.postgres_asked(1_000);
    let mut judge = Judge::default();
    for phase in [Phase::Standby, Phase::Connecting, Phase::Polling, Phase::Draining] {
        recorder.phase(phase, 50_000);
        let health = judge.judge(&facts.snapshot(), 50_000).0;
        assert_ne!(health.state, HealthState::Stalled, "{phase:?}");
    }
}
