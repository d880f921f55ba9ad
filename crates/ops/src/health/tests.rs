use std::time::Duration;

use super::judge::StateChange;
use super::*;
use walrelay_base::lsn::Lsn;
use walrelay_postgres::idle_timeout::IdleTimeout;

pub(super) fn streaming() -> Pass {
    Pass {
        phase: Phase::Streaming,
        sink_reachable: true,
        received_lsn: Lsn::from_wire(300),
        sent_lsn: Lsn::from_wire(200),
        confirmed_lsn: Lsn::from_wire(100),
        ..Pass::default()
    }
}

fn judged(facts: &Facts, now_ms: u64) -> Health {
    Judge::default().judge(&facts.snapshot(), now_ms).0
}

#[test]
fn facts_come_out_as_they_went_in() {
    let (mut recorder, facts) = facts(5);
    recorder.pass(&Pass { in_flight_events: 7, in_flight_bytes: 70, ..streaming() }, 10);
    assert_eq!(
        facts.snapshot(),
        Snapshot {
            pass: Pass { in_flight_events: 7, in_flight_bytes: 70, ..streaming() },
            phase_since_ms: 10,
            progress_ms: 10,
            sink_down_since_ms: None,
            hold_since_ms: None,
            decoding_since_ms: None,
            heartbeat_ms: 10,
            ..Snapshot::default()
        }
    );
}

#[test]
fn what_must_be_read_first_is_read_by_a_relay_that_has_the_slot_and_not_by_a_standby() {
    let unread = Pass { hold: Some(IntakeHold::DeadLettersUnread), ..streaming() };
    let standby = Pass { phase: Phase::Standby, ..unread };
    let (mut recorder, facts) = facts(0);
    recorder.phase(Phase::Standby, 0);
    for at_ms in [0, 60_000] {
        recorder.pass(&standby, at_ms);
        let health = judged(&facts, at_ms);
        assert_eq!(
            (health.state, health.reasons),
            (HealthState::Standby, vec![StateReason::SlotBusy])
        );
    }
    recorder.phase(Phase::Streaming, 60_500);
    recorder.pass(&unread, 60_500);
    assert_eq!(judged(&facts, 61_000).reasons, []);
    recorder.pass(&unread, 91_000);
    assert_eq!(judged(&facts, 91_000).state, HealthState::Held);
}

#[test]
fn each_phase_has_its_state_and_its_reason() {
    let cases = [
        (Phase::Starting, HealthState::Starting, Some("starting")),
        (Phase::Standby, HealthState::Standby, Some("slot_busy")),
        (Phase::Connecting, HealthState::Connecting, Some("not_streaming")),
        (Phase::LoginRefused, HealthState::Connecting, Some("login_refused")),
        (Phase::AwaitingPrimary, HealthState::Connecting, Some("waiting_for_primary")),
        (Phase::Streaming, HealthState::Streaming, None),
        (Phase::Draining, HealthState::Draining, Some("draining")),
        (Phase::Stopped, HealthState::Halted, Some("stopped")),
        (Phase::Halted("slot.moved"), HealthState::Halted, Some("halted")),
    ];
    for (phase, state, reason) in cases {
        let (mut recorder, facts) = facts(0);
        recorder.phase(phase, 1_000);
        let health = judged(&facts, 2_000);
        assert_eq!(health.state, state);
        let codes: Vec<_> = health.reasons.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes, Vec::from_iter(reason), "{phase:?}");
        assert_eq!(health.reasons.is_empty(), reason.is_none());
        assert_eq!(health.stuck(), None);
    }
}

#[test]
fn an_idle_relay_is_ready_for_ever() {
    let (mut recorder, facts) = facts(0);
    for minute in 0..600 {
        recorder.pass(&streaming(), minute * 60_000);
        assert_eq!(judged(&facts, minute * 60_000 + 30_000).reasons, []);
    }
}

#[test]
fn the_first_event_after_an_idle_hour_is_not_a_stall() {
    // GIVEN an hour without events
    let (mut recorder, facts) = facts(0);
    recorder.pass(&streaming(), 1_000);
    recorder.pass(&streaming(), 3_600_000);
    // WHEN one is admitted
    let busy = Pass { in_flight_events: 1, ..streaming() };
    recorder.pass(&busy, 3_600_100);
    // THEN its time to settle begins now
    assert_eq!(judged(&facts, 3_600_200).state, HealthState::Streaming);
    recorder.pass(&busy, 3_630_000);
    assert_eq!(judged(&facts, 3_630_000).reasons, []);
    recorder.pass(&busy, 3_630_001);
    let health = judged(&facts, 3_630_001);
    assert_eq!(health.state, HealthState::Blocked);
    assert_eq!(health.reasons, [StateReason::BrokerSilent { for_ms: 30_001, events: 1 }]);
    assert_eq!(health.stuck(), None, "a restart would not help");
}

#[test]
fn a_destination_that_is_silent_is_named_while_others_settle() {
    // GIVEN events that settle, and one destination that confirms nothing
    let (mut recorder, facts) = facts(0);
    let name = walrelay_base::text::ShortText::new("partition 3 of topic t\n");
    let silent = SilentDestination { name, events: 12, waits_for: Duration::ZERO };
    for second in 0..=31_u64 {
        let busy = Pass { in_flight_events: 12, settled_events: second, ..streaming() };
        recorder.pass(&Pass { silent: Some(silent), ..busy }, second * 1_000);
    }
    // THEN it is a reason after a while, and against readiness after thirty seconds
    let reason = |for_ms| StateReason::DestinationSilent { for_ms, silent };
    let health = judged(&facts, 6_000);
    assert_eq!((health.state, health.reason), (HealthState::Blocked, Some(reason(6_000))));
    assert_eq!(health.reasons, []);
    assert_eq!(judged(&facts, 31_000).reasons, [reason(31_000)]);
    let text = reason(31_000).to_string();
    assert!(text.starts_with("partition 3 of topic t\\n confirms nothing"), "{text}");
    // WHEN it answers THEN it is none any more
    recorder.pass(&Pass { in_flight_events: 12, settled_events: 40, ..streaming() }, 32_000);
    assert_eq!(judged(&facts, 32_000).reason, None);
}

#[test]
fn another_silent_destination_begins_anew_and_more_events_of_one_do_not() {
    let (mut recorder, facts) = facts(0);
    let silent = |name: &str, events| {
        let name = walrelay_base::text::ShortText::new(name);
        SilentDestination { name, events, waits_for: Duration::from_secs(40) }
    };
    let mut pass = |silent, at_ms| {
        let busy = Pass { in_flight_events: 40, settled_events: at_ms, ..streaming() };
        recorder.pass(&Pass { silent: Some(silent), ..busy }, at_ms);
    };
    // GIVEN a destination behind which events gather, and had gathered before others answered
    pass(silent("partition 3", 12), 41_000);
    pass(silent("partition 3", 30), 68_000);
    let reason = |silent, for_ms| Some(StateReason::DestinationSilent { for_ms, silent });
    assert_eq!(judged(&facts, 69_000).reason, reason(silent("partition 3", 30), 68_000));
    // WHEN it answers, and another one is silent THEN that is so from then on
    pass(silent("partition 4", 5), 69_000);
    let health = judged(&facts, 72_000);
    assert_eq!((health.state, health.reason), (HealthState::Streaming, None));
    let health = judged(&facts, 72_001);
    assert_eq!(health.reason, reason(silent("partition 4", 5), 3_001));
    assert_eq!(health.reasons, []);
}

#[test]
fn a_long_transaction_that_settles_event_by_event_is_no_stall() {
    let (mut recorder, facts) = facts(0);
    for second in 0..300_u64 {
        let busy = Pass { in_flight_events: 16_384, settled_events: second, ..streaming() };
        recorder.pass(&busy, second * 1_000);
        assert_eq!(judged(&facts, second * 1_000).state, HealthState::Streaming);
    }
}

#[test]
fn a_standstill_ends_when_the_confirmed_position_moves() {
    let (mut recorder, facts) = facts(0);
    let busy = Pass { in_flight_events: 2, ..streaming() };
    recorder.pass(&busy, 0);
    recorder.pass(&busy, 40_000);
    assert_eq!(judged(&facts, 40_000).state, HealthState::Blocked);
    recorder.pass(&Pass { confirmed_lsn: Lsn::from_wire(150), ..busy }, 41_000);
    assert_eq!(judged(&facts, 41_000).reasons, []);
}

#[test]
fn an_unreachable_broker_is_not_ready_from_the_first_pass_and_live_for_ever() {
    let (mut recorder, facts) = facts(0);
    let down = Pass { sink_reachable: false, ..streaming() };
    recorder.pass(&down, 10_000);
    recorder.pass(&down, 14_000);
    let health = judged(&facts, 14_000);
    assert_eq!(health.state, HealthState::Blocked);
    assert_eq!(health.reasons, [StateReason::SinkDown(4_000)]);
    assert_eq!(health.stuck(), None);
    recorder.pass(&streaming(), 15_000);
    assert_eq!(judged(&facts, 15_000).reasons, []);
}

#[test]
fn a_broker_that_refuses_the_login_is_told_from_one_that_is_away() {
    let (mut recorder, facts) = facts(0);
    let down = Pass { sink_reachable: false, sink_login_refused: true, ..streaming() };
    recorder.pass(&down, 10_000);
    let health = judged(&facts, 14_000);
    let refused = StateReason::LoginRefused { by: "the broker", for_ms: 4_000 };
    assert_eq!((health.state, health.reasons), (HealthState::Blocked, vec![refused]));
    assert_eq!(refused.to_string(), "the broker has refused the login for 4 s");
}

fn unread(hold: IntakeHold, for_ms: u64) -> StateReason {
    StateReason::Unread { hold, for_ms }
}

fn full(hold: IntakeHold, for_ms: u64) -> StateReason {
    StateReason::Full { hold, for_ms, events: 256 }
}

#[test]
fn a_relay_that_takes_in_nothing_is_held_and_after_long_not_ready_although_nothing_is_in_flight() {
    let (mut recorder, facts) = facts(0);
    let held = Pass { hold: Some(IntakeHold::DeadLettersUnread), ..streaming() };
    recorder.pass(&held, 1_000);
    recorder.pass(&held, 31_001);
    assert_eq!(judged(&facts, 4_000).state, HealthState::Streaming);
    let health = judged(&facts, 31_000);
    assert_eq!((health.state, health.reasons), (HealthState::Held, vec![]));
    assert_eq!(health.reason, Some(unread(IntakeHold::DeadLettersUnread, 30_000)));
    let health = judged(&facts, 31_001);
    assert_eq!(health.state, HealthState::Held);
    assert_eq!(health.reasons, [unread(IntakeHold::DeadLettersUnread, 30_001)]);
    recorder.pass(&streaming(), 32_000);
    assert_eq!(judged(&facts, 70_000).reasons, []);
}

#[test]
fn a_full_window_that_settles_is_streaming_and_one_that_does_not_is_held() {
    let window_full = Pass {
        hold: Some(IntakeHold::WindowFull),
        in_flight_events: 256,
        in_flight_limit: 256,
        ..streaming()
    };
    // GIVEN a backlog: the window is full for a minute, and each second something settles
    let (mut recorder, facts) = facts(0);
    for second in 0..60 {
        recorder.pass(&Pass { settled_events: second, ..window_full }, second * 1_000);
        assert_eq!(judged(&facts, second * 1_000 + 999).state, HealthState::Streaming);
    }
    // WHEN nothing settles any more
    let stands = Pass { settled_events: 59, ..window_full };
    recorder.pass(&stands, 62_001);
    assert_eq!(judged(&facts, 62_000).state, HealthState::Streaming);
    // THEN it is held after 3 s, still ready, and not ready after 30 s
    let health = judged(&facts, 62_001);
    assert_eq!((health.state, health.reasons), (HealthState::Held, vec![]));
    assert_eq!(health.reason, Some(full(IntakeHold::WindowFull, 3_001)));
    recorder.pass(&stands, 89_001);
    let health = judged(&facts, 89_001);
    assert_eq!(health.state, HealthState::Held);
    assert_eq!(health.reasons, [full(IntakeHold::WindowFull, 30_001)]);
}

#[test]
fn a_broker_that_confirms_nothing_blocks_the_relay_although_there_is_room() {
    let (mut recorder, facts) = facts(0);
    let busy = Pass { in_flight_events: 3, ..streaming() };
    recorder.pass(&streaming(), 0);
    recorder.pass(&busy, 1_000);
    assert_eq!(judged(&facts, 3_000).state, HealthState::Streaming);
    let health = judged(&facts, 3_001);
    assert_eq!((health.state, health.reasons), (HealthState::Blocked, vec![]));
    assert_eq!(health.reason, Some(StateReason::BrokerSilent { for_ms: 3_001, events: 3 }));
}

#[test]
fn another_hold_begins_anew() {
    let (mut recorder, facts) = facts(0);
    let hold = |hold| Pass { hold: Some(hold), ..streaming() };
    recorder.pass(&hold(IntakeHold::CatalogUnread), 1_000);
    recorder.pass(&hold(IntakeHold::DeadLettersUnread), 5_000);
    assert_eq!(judged(&facts, 8_000).state, HealthState::Streaming);
    let health = judged(&facts, 8_001);
    assert_eq!(health.reason, Some(unread(IntakeHold::DeadLettersUnread, 3_001)));
    recorder.pass(&hold(IntakeHold::CatalogUnread), 11_000);
    let health = judged(&facts, 14_001);
    assert_eq!(health.reason, Some(unread(IntakeHold::CatalogUnread, 3_001)));
}

#[test]
fn a_state_is_remembered_since_it_began() {
    let (mut recorder, facts) = facts(0);
    let mut judge = Judge::default();
    let mut look = |facts: &Facts, now_ms| judge.judge(&facts.snapshot(), now_ms);
    // GIVEN a relay that streams from the second second on
    let (health, change) = look(&facts, 1_000);
    assert_eq!((health.state, health.since_ms, change), (HealthState::Starting, 0, None));
    recorder.pass(&streaming(), 2_000);
    let (health, change) = look(&facts, 2_000);
    assert_eq!((health.state, health.since_ms), (HealthState::Streaming, 2_000));
    assert_eq!(change, Some(StateChange { from: HealthState::Starting, lasted_ms: 2_000 }));
    assert_eq!(look(&facts, 9_000).1, None);
    // WHEN its broker goes, and then its loop does not come round
    recorder.pass(&Pass { sink_reachable: false, ..streaming() }, 10_000);
    let (health, change) = look(&facts, 10_000);
    assert_eq!((health.state, health.since_ms), (HealthState::Blocked, 10_000));
    assert_eq!(change, Some(StateChange { from: HealthState::Streaming, lasted_ms: 8_000 }));
    // THEN the cause that leads is that of the state
    let (health, change) = look(&facts, 80_000);
    assert_eq!((health.state, health.since_ms), (HealthState::Stalled, 80_000));
    assert_eq!(health.reason, Some(StateReason::LoopStuck(70_000)));
    assert_eq!(change, Some(StateChange { from: HealthState::Blocked, lasted_ms: 70_000 }));
}

#[test]
fn every_reason_is_told_when_several_hold() {
    let (mut recorder, facts) = facts(0);
    recorder.pass(&Pass { in_flight_events: 3, sink_reachable: false, ..streaming() }, 0);
    recorder.phase(Phase::Connecting, 40_000);
    let health = judged(&facts, 45_000);
    assert_eq!(health.state, HealthState::Connecting);
    assert_eq!(
        health.reasons,
        [
            StateReason::NotStreaming(5_000),
            StateReason::SinkDown(45_000),
            StateReason::BrokerSilent { for_ms: 45_000, events: 3 },
        ]
    );
}

#[test]
fn a_loop_that_stops_turning_is_stalled_and_not_live() {
    for phase in [Phase::Starting, Phase::Standby, Phase::Connecting, Phase::Streaming] {
        let (mut recorder, facts) = facts(0);
        recorder.phase(phase, 1_000);
        assert_eq!(judged(&facts, 61_000).stuck(), None);
        let health = judged(&facts, 61_001);
        assert_eq!(health.state, HealthState::Stalled);
        assert_eq!(health.stuck(), Some(StateReason::LoopStuck(60_001)));
        assert!(!health.reasons.is_empty());
    }
}

#[test]
fn a_stopped_relay_is_not_called_stuck() {
    let (mut recorder, facts) = facts(0);
    recorder.phase(Phase::Stopped, 1_000);
    let health = judged(&facts, 10_000_000);
    assert_eq!((health.state, health.stuck()), (HealthState::Halted, None));
    assert_eq!(health.reasons, [StateReason::Stopped]);
}

#[test]
fn a_data_thread_that_is_gone_is_stopped() {
    let (mut recorder, facts) = facts(0);
    recorder.pass(&streaming(), 1_000);
    drop(recorder);
    assert_eq!(judged(&facts, 1_001).state, HealthState::Halted);
}

#[test]
fn a_reader_whose_clock_is_behind_sees_no_huge_ages() {
    let (mut recorder, facts) = facts(0);
    recorder.pass(&Pass { in_flight_events: 1, ..streaming() }, 5_000);
    assert_eq!(judged(&facts, 4_999).reasons, []);
}

#[test]
fn a_note_is_kept_replaced_and_bounded() {
    let (mut recorder, facts) = facts(0);
    assert_eq!(facts.note(), "");
    recorder.note("connection refused");
    assert_eq!(facts.note(), "connection refused");
    recorder.note(&"é".repeat(1_000));
    assert_eq!(facts.note().len(), 500);
    // GIVEN a lock that polling waits for THEN the note of the loop comes first
    facts.set_lock_wait("another session has locked public.outbox");
    assert_eq!(facts.note().len(), 500);
    recorder.note("");
    assert_eq!(facts.note(), "another session has locked public.outbox");
    facts.set_lock_wait("");
    assert_eq!(facts.note(), "");
}

#[test]
fn reasons_read_as_sentences() {
    let reason = StateReason::BrokerSilent { for_ms: 31_999, events: 12 };
    assert_eq!(reason.to_string(), "the broker has not confirmed 12 events for 31 s");
    let reason = StateReason::BrokerSilent { for_ms: 31_999, events: 1 };
    assert_eq!(reason.to_string(), "the broker has not confirmed 1 event for 31 s");
    assert_eq!(StateReason::SinkDown(500).to_string(), "the sink has taken no event for 0 s");
}

#[test]
fn a_relay_that_waits_to_be_resumed_is_alive_and_says_why_it_is_not_ready() {
    let (mut recorder, facts) = facts(0);
    recorder.phase(Phase::Halted("slot.moved"), 1_000);
    // However late its last heartbeat is: no loop runs.
    let health = judged(&facts, 10_000_000);
    assert_eq!((health.state, health.stuck()), (HealthState::Halted, None));
    assert_eq!(health.reasons, [StateReason::Halted("slot.moved")]);
    assert!(health.reasons[0].to_string().contains("slot.moved"));
    // WHEN the next loop begins THEN nothing is left of it
    drop(recorder);
    let _recorder = facts.recorder(10_000_000);
    assert_eq!(facts.snapshot().pass.phase, Phase::Starting);
}

#[test]
fn a_relay_that_waits_for_its_slot_does_not_have_it() {
    use Phase::{
        AwaitingPrimary, Connecting, Draining, Polling, Standby, Starting, Stopped, Streaming,
    };
    let without = [Starting, Standby, Connecting, AwaitingPrimary, Phase::Halted("slot.moved")];
    assert!(!without.iter().any(|it| it.has_source()));
    assert!([Streaming, Polling, Draining, Stopped].iter().all(|it| it.has_source()));
}

#[test]
fn a_slot_is_without_a_reader_while_its_relay_has_no_session() {
    let seconds = Duration::from_secs;
    let (mut recorder, facts) = facts(0);
    assert_eq!(facts.idle_timeout(1_000), None);
    recorder.pass(&streaming(), 1_000);
    let read = IdleTimeout { timeout: seconds(60), idle: None };
    facts.set_idle_timeout(Some(read), 1_000);
    assert_eq!(facts.idle_timeout(9_000), Some(read));
    for phase in [Phase::Halted("slot.moved"), Phase::LoginRefused] {
        recorder.phase(phase, 2_000);
        let idle = IdleTimeout { idle: Some(seconds(8)), ..read };
        assert_eq!(facts.idle_timeout(9_000), Some(idle), "{phase:?}");
    }
    // WHEN Postgres says that nobody reads it THEN it counts from there, whatever this relay does
    recorder.phase(Phase::Standby, 9_000);
    facts.set_idle_timeout(Some(IdleTimeout { idle: Some(seconds(10)), ..read }), 9_000);
    assert_eq!(facts.idle_timeout(12_000).unwrap().left(), Some(seconds(47)));
}
