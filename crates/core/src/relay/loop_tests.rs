//! The loop, over a feed and surroundings in memory.

#[path = "loop_world_tests.rs"]
mod world;

use self::world::{Bench, HOUR};
use super::*;
use crate::base::error::Exit;
use crate::base::lsn::Lsn;
use crate::base::stop::BREAKER_OPEN;
use crate::delivery::prefix::ConfirmedPrefix;
use crate::relay::state_file::header::PREFIX_COPY;
use crate::relay::testing::BROKER;
use crate::sink::Disposition;

fn moved() -> Fault {
    Fault::new(Exit::Slot, "slot.moved", "it was moved", "", "").standing(Lsn::ZERO, Lsn::ZERO)
}

#[test]
fn a_pass_measures_its_stages_and_shows_the_loop_in_metrics_and_status() {
    let mut bench = Bench::<true>::new(2);
    assert_eq!(bench.facts().stages, [Stage::Publish, Stage::Confirm]);
    assert_eq!(bench.count("flush"), 1);
    for shown in [
        (Gauge::BreakerOpen, 0),
        (Gauge::Connected, 1),
        (Gauge::InFlightEvents, 2),
        (Gauge::InFlightBytes, 20),
        (Gauge::InFlightLimit, 300),
    ] {
        let times = bench.facts().gauges.iter().filter(|it| **it == shown).count();
        assert_eq!(times, 1, "{shown:?}");
    }
    bench.report(SinkReport::Confirmed(0));
    assert_eq!(bench.pass().settled_events, 1);
}

#[test]
fn the_reason_for_which_events_wait_is_noted_until_it_is_over() {
    let mut bench = Bench::<true>::new(1);
    // Whether the broker is reachable, and whether it refuses the login.
    for (report, note, facts) in [
        (SinkReport::Unreachable("it is away".to_owned()), "it is away", (false, false)),
        (SinkReport::LoginRefused("no login".to_owned()), "no login", (false, true)),
        (SinkReport::Reachable, "", (true, false)),
        (SinkReport::Broken("it is lost".to_owned()), "it is lost", (false, false)),
    ] {
        bench.report(report);
        let pass = bench.pass();
        assert_eq!((pass.sink_reachable, pass.sink_login_refused), facts, "{note}");
        assert_eq!(bench.last_note(), note);
    }
    // WHEN there is a new sink
    bench.clock.sleep(Duration::from_secs(1));
    assert!(bench.pass().sink_reachable);
    assert_eq!((bench.last_note().as_str(), bench.count("publish 0")), ("", 2));
    // WHEN a dead letter cannot be written, and is written after all
    bench.fail(0, Disposition::Terminal);
    bench.pass();
    bench.fail(0, Disposition::Delayed);
    assert!(bench.pass().dead_letter_unwritten);
    assert!(bench.last_note().starts_with("a dead letter cannot be written"));
    bench.report(SinkReport::Confirmed(0));
    assert!(!bench.pass().dead_letter_unwritten);
    assert_eq!((bench.last_note().as_str(), bench.count("dead-lettered")), ("", 1));
}

#[test]
fn after_a_confirm_the_next_sink_is_built_without_a_long_wait() {
    let mut bench = Bench::<true>::new(2);
    let broken = || SinkReport::Broken("it is lost".to_owned());
    // GIVEN waits that have doubled again and again
    for _ in 0..20 {
        bench.report(broken());
        bench.pass();
        bench.clock.sleep(HOUR);
        bench.pass();
    }
    bench.report(SinkReport::Confirmed(0));
    bench.pass();
    bench.report(broken());
    bench.pass();
    // WHEN the loop waits meanwhile THEN it sleeps
    let began = bench.clock.instant();
    bench.relay.rest().unwrap();
    assert_eq!(bench.clock.instant() - began, Duration::from_millis(5));
    bench.clock.sleep(Duration::from_millis(95));
    bench.pass();
    assert!(bench.relay.down.driver.sink.is_some());
}

#[test]
fn confirmed_events_are_marked_and_no_prefix_outlives_the_broker_that_has_it() {
    let mut bench = Bench::<true>::new(2);
    bench.report(SinkReport::Confirmed(0));
    bench.world().prefix = Some(ConfirmedPrefix::default());
    bench.pass();
    assert_eq!((bench.marks(), bench.file.bytes().load(PREFIX_COPY)), (1, 1));
    assert_eq!(bench.count("forget prefix"), 0);
    bench.world().broker = BROKER + 1;
    bench.report(SinkReport::Confirmed(1));
    bench.pass();
    assert_eq!((bench.marks(), bench.count("forget prefix")), (0, 1));
}

#[test]
fn an_event_that_a_sink_has_confirmed_when_it_was_withdrawn_is_marked_before_the_end() {
    let mut bench = Bench::<true>::new(2);
    {
        let mut world = bench.world();
        world.withdrawal = Some("there is a peer".to_owned());
        world.withdrawn.push(SinkReport::Confirmed(0));
    }
    assert_eq!(bench.end(), (0, Some("stop.unsettled")));
    assert_eq!(bench.marks(), 1);
}

fn count_suspects<const OF_SLOT: bool>() -> usize {
    let mut bench = Bench::<OF_SLOT>::new(1);
    bench.report(SinkReport::Suspect(0));
    bench.report(SinkReport::Confirmed(0));
    bench.pass();
    bench.relay.down.policy.suspects.len()
}

#[test]
fn an_event_that_was_refused_with_others_is_remembered_while_it_may_be_received_again() {
    assert_eq!((count_suspects::<true>(), count_suspects::<false>()), (1, 0));
}

#[test]
fn an_event_that_has_failed_is_tried_again_but_not_while_a_peer_may_publish() {
    let mut bench = Bench::<true>::new(1);
    bench.fail(0, Disposition::Transient);
    bench.pass();
    assert_eq!(bench.count("retrying 0"), 1);
    bench.world().sends_for = Duration::ZERO;
    bench.clock.sleep(Duration::from_secs(1));
    bench.pass();
    assert_eq!((bench.count("retry 0"), bench.count("retried")), (0, 0));
    bench.world().sends_for = HOUR;
    bench.pass();
    assert_eq!((bench.count("retry 0"), bench.count("retried")), (1, 1));
}

#[test]
fn once_the_topic_is_read_events_that_were_given_up_become_dead_letters_as_far_as_the_breaker_allows()
 {
    let mut bench = Bench::<true>::unread(2);
    bench.world().hold = Some(IntakeHold::DeadLettersUnread);
    bench.fail(0, Disposition::Terminal);
    bench.fail(1, Disposition::Terminal);
    bench.pass();
    assert!(bench.relay.history_wait_logged);
    assert_eq!(bench.count("letter 0"), 0);
    // WHEN the topic was read
    bench.world().hold = None;
    bench.letters.send(TailEvent::CaughtUp).unwrap();
    assert_eq!(bench.relay.pass().unwrap_err().code, BREAKER_OPEN);
    assert_eq!((bench.count("letter 0"), bench.count("letter 1")), (1, 0));
    bench.pass();
    assert!(!bench.relay.history_wait_logged);
}

#[test]
fn a_destination_that_does_not_answer_is_named_while_events_wait() {
    let mut bench = Bench::<true>::unread(2);
    bench.world().overtaken = vec![0, 1];
    let silent = SilentDestination {
        name: ShortText::new("orders"),
        events: 2,
        waits_for: Duration::from_secs(1),
    };
    assert_eq!(bench.pass().silent, Some(silent));
    bench.report(SinkReport::Confirmed(0));
    bench.report(SinkReport::Confirmed(1));
    assert_eq!(bench.pass().silent, None);
    // It is not looked for in each pass.
    assert_eq!(bench.count("look"), 1);
    bench.clock.sleep(SILENCE_LOOK_EVERY);
    bench.pass();
    assert_eq!(bench.count("look"), 2);
}

#[test]
fn a_relay_with_nothing_in_flight_stops_at_once() {
    let mut bench = Bench::<true>::new(0);
    assert_eq!(bench.end(), (0, None));
    assert_eq!(bench.last_pass().phase, Phase::Stopped);
    assert_eq!((bench.count("close"), bench.count("peer noted")), (1, 1));
}

#[test]
fn a_relay_that_stops_waits_for_confirms_and_tries_again_meanwhile() {
    let mut bench = Bench::<true>::new(1);
    bench.relay.flags.stop.store(true, Ordering::Relaxed);
    assert!(bench.relay.step().is_none());
    bench.facts().acts.clear();
    bench.fail(0, Disposition::Transient);
    assert!(bench.relay.step().is_none());
    assert_eq!((bench.count("hold"), bench.count("report")), (1, 1));
    assert_eq!(bench.last_pass().phase, Phase::Draining);
    bench.clock.sleep(Duration::from_millis(10));
    assert!(bench.relay.step().is_none());
    assert_eq!(bench.count("retry 0"), 1);
    bench.report(SinkReport::Confirmed(0));
    assert_eq!(bench.end(), (0, None));
}

#[test]
fn the_end_waits_as_long_as_that_is_of_use() {
    type Case = (&'static str, fn(&mut Bench<true>), u64, Option<&'static str>);
    let cases: [Case; 7] = [
        ("the broker confirms nothing", |_| (), 20, Some("stop.unsettled")),
        ("a peer may publish", |it| it.world().sends_for = Duration::ZERO, 1, None),
        ("an attempt has failed", |it| it.world().has_failing = true, 1, Some("stop.unsettled")),
        (
            "there is no sink",
            |it| {
                it.world().is_incomplete = true;
                it.relay.down.driver.sink = None;
            },
            0,
            Some("stop.unsettled"),
        ),
        (
            "a transaction does not end",
            |it| {
                it.world().is_incomplete = true;
                it.report(SinkReport::Confirmed(0));
            },
            15,
            None,
        ),
        (
            "the slot was moved",
            |it| {
                it.world().fault = Some(moved());
                it.relay.step();
            },
            1,
            Some("slot.moved"),
        ),
        (
            "it can never be published",
            |it| {
                it.fail(0, Disposition::Halt);
                it.relay.step();
            },
            0,
            Some("sink.unable"),
        ),
    ];
    for (name, change, waited_s, code) in cases {
        let mut bench = Bench::<true>::new(1);
        change(&mut bench);
        assert_eq!(bench.end(), (waited_s, code), "{name}");
    }
}

#[test]
fn a_stop_that_protects_data_is_kept_before_the_relay_has_ended() {
    for is_stopping in [false, true] {
        let mut bench = Bench::<true>::new(1);
        if is_stopping {
            bench.world().is_incomplete = true;
            bench.relay.flags.stop.store(true, Ordering::Relaxed);
            bench.relay.step();
        }
        bench.world().fault = Some(moved());
        assert!(bench.relay.step().is_none());
        assert!(bench.stops.standing().is_some(), "{is_stopping}");
        assert_eq!(bench.end(), (1, Some("slot.moved")), "{is_stopping}");
    }
}
