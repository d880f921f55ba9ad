use std::cell::Cell;

use serde_json::json;

use super::super::testing::{
    BEGAN, Flaw, Flawed, SECOND, Spec, TopicFixture, audit, failure, header,
};
use super::*;
use crate::base::template::Template;
use crate::dead_letter::filter::FilterText;

/// A job with all dead letters that are open.
fn job(action: ReplayAction) -> ReplayJob {
    ReplayJob::new(action, DeadLetterFilter::default(), "me")
}

/// A job with those that the words select.
fn job_of(action: ReplayAction, words: FilterText) -> ReplayJob {
    ReplayJob::new(action, DeadLetterFilter::parse(&words, 0).unwrap(), "me")
}

fn of_id(id: &str) -> FilterText {
    FilterText { ids: vec![id.to_owned()], ..FilterText::default() }
}

fn carry_out(fixture: &TopicFixture, job: &ReplayJob) -> ReplayReport {
    observed(fixture, job, &mut |_| ())
}

/// Calls `observe` after each step.
fn observed(
    fixture: &TopicFixture,
    job: &ReplayJob,
    observe: &mut dyn FnMut(&ReplayProgress),
) -> ReplayReport {
    run(&fixture.topic(), job, &|| fixture.clock(), observe)
}

/// Carries the job out at the broker with a flaw.
fn carry_out_at(broker: &Flawed, fixture: &TopicFixture, job: &ReplayJob) -> ReplayReport {
    run(&fixture.topic_at(broker), job, &|| fixture.clock(), &mut |_| ())
}

fn code(report: &ReplayReport) -> Option<&'static str> {
    report.fault.as_ref().map(|fault| fault.code)
}

fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("e{n}")).collect()
}

#[test]
fn events_are_published_in_order_and_resolved_once() {
    // GIVEN more letters than fit the window
    let fixture = TopicFixture::new();
    fixture.write_many(200);
    let report = carry_out(&fixture, &job(ReplayAction::Replay));
    assert_eq!((code(&report), report.progress.matched, report.progress.done), (None, 200, 200));
    // THEN the events arrive as they were, and say that they are replays
    assert_eq!(fixture.ids("orders"), numbered(0..200));
    let arrived = fixture.broker.arrived();
    let event = arrived.iter().find(|event| event.topic == "orders").unwrap();
    assert_eq!(event.value.as_deref(), Some(&b"payload"[..]));
    assert_eq!(header(event, "dlq-replay-count").as_deref(), Some("1"));
    assert_eq!(event.headers.len(), 2, "{event:?}");
    // THEN each has one resolution, by whoever asked, in the partition of its letter
    let resolutions = fixture.written_behind(200);
    assert_eq!(resolutions.len(), 200);
    assert_eq!(header(&resolutions[0], "dlq-resolution").as_deref(), Some("replayed"));
    assert!(header(&resolutions[0], "dlq-relay").is_some_and(|by| by.starts_with("me#")));
    assert_eq!((resolutions[0].partition, fixture.open()), (Some(0), 0));
    // THEN a second replay has nothing to do
    let report = carry_out(&fixture, &job(ReplayAction::Replay));
    assert_eq!((code(&report), report.progress.matched), (None, 0));
    assert_eq!(fixture.ids("orders").len(), 200);
}

#[test]
fn what_was_discarded_by_mistake_can_be_replayed_and_counts_on() {
    let fixture = TopicFixture::new();
    fixture.write(Spec::default());
    let report = carry_out(&fixture, &job(ReplayAction::Discard));
    assert_eq!((code(&report), report.progress.done, fixture.open()), (None, 1, 0));
    assert!(fixture.ids("orders").is_empty());
    for (state, count) in [("discarded", "1"), ("replayed", "2")] {
        let words = FilterText { state: Some(state.into()), ..FilterText::default() };
        let again = job_of(ReplayAction::Replay, words);
        assert_eq!(carry_out(&fixture, &again).progress.done, 1);
        let last = fixture.broker.arrived().into_iter().rfind(|event| event.topic == "orders");
        assert_eq!(header(&last.unwrap(), "dlq-replay-count").as_deref(), Some(count));
    }
}

#[test]
fn a_filter_leaves_the_rest_alone() {
    let fixture = TopicFixture::new();
    fixture.write_many(20);
    let words = FilterText { key: Some("3".into()), ..FilterText::default() };
    let report = carry_out(&fixture, &job_of(ReplayAction::Replay, words));
    assert_eq!((report.progress.matched, report.progress.done, fixture.open()), (4, 4, 16));
    assert_eq!(fixture.ids("orders"), ["e3", "e8", "e13", "e18"]);
}

#[test]
fn the_first_refusal_ends_it_and_what_was_delivered_is_resolved() {
    let fixture = TopicFixture::new();
    fixture.write_many(30);
    fixture.broker.refuse("e10", failure());
    let report = carry_out(&fixture, &job(ReplayAction::Replay));
    let fault = report.fault.unwrap();
    assert_eq!((fault.exit, fault.code), (Exit::Sink, "dead-letter.refused-again"));
    let again = "then run the same command again: what was delivered is resolved";
    for part in ["event e10", "rabbitmq.no-route", "no queue is bound", "bind one", again] {
        assert!(fault.to_string().contains(part), "{fault}");
    }
    // THEN what of its key was behind it in the window is open, too
    let stuck = ["e10", "e15", "e20", "e25"];
    assert_eq!((report.progress.done, fixture.open()), (26, 4));
    let mut wanted = numbered(0..30);
    wanted.retain(|id| !stuck.contains(&id.as_str()));
    assert_eq!(fixture.ids("orders"), wanted);
    // WHEN it is mended THEN the rest follows, and nothing comes twice
    fixture.broker.accept();
    let report = carry_out(&fixture, &job(ReplayAction::Replay));
    assert_eq!((code(&report), report.progress.done, fixture.open()), (None, 4, 0));
    assert_eq!(fixture.ids("orders")[26..], stuck);
}

#[test]
fn the_rate_is_obeyed() {
    let fixture = TopicFixture::new();
    fixture.write_many(41);
    let rate = "100/s".parse().ok();
    let job = ReplayJob { rate, ..job(ReplayAction::Replay) };
    let report = carry_out(&fixture, &job);
    assert_eq!(report.progress.done, 41);
    // THEN forty came after the first, by its own clock
    assert!(fixture.elapsed_us() >= 400_000, "{} us", fixture.elapsed_us());
}

#[test]
fn a_broker_that_goes_away_ends_it_and_loses_nothing() {
    let fixture = TopicFixture::new();
    fixture.write_many(100);
    fixture.broker.set_down(true);
    let report = carry_out(&fixture, &job(ReplayAction::Replay));
    let fault = report.fault.unwrap();
    assert_eq!((fault.exit, fault.code), (Exit::Sink, "dead-letter.sink-gone"));
    assert!(fault.what.contains("the memory broker is down; 1 events were in flight"), "{fault}");
    assert_eq!((report.progress.done, fixture.open()), (0, 100));
    assert!(fixture.elapsed_us() <= 60 * SECOND);
}

#[test]
fn a_stop_settles_what_is_in_flight() {
    let fixture = TopicFixture::new();
    fixture.write_many(500);
    let report = observed(&fixture, &job(ReplayAction::Replay), &mut |tally| {
        fixture.stop.store(tally.done >= 100, Ordering::Relaxed);
    });
    assert_eq!(code(&report), Some("dead-letter.interrupted"));
    // THEN everything that was delivered is resolved
    assert!((100..500).contains(&report.progress.done), "{:?}", report.progress);
    assert_eq!(fixture.ids("orders").len(), report.progress.done);
    assert_eq!(fixture.open(), 500 - report.progress.done);
}

#[test]
fn it_stops_when_the_same_error_comes_back() {
    for (id, class) in [("e0", "something-else"), ("new", "unroutable")] {
        let fixture = TopicFixture::new();
        fixture.write_many(500);
        let written = Cell::new(false);
        let observe = &mut |_: &ReplayProgress| {
            if !written.replace(true) {
                let failed_unix_us = BEGAN + 1000 * SECOND;
                fixture.write(Spec {
                    id,
                    key: Some("0"),
                    class,
                    failed_unix_us,
                    ..Spec::default()
                });
            }
        };
        let report = observed(&fixture, &job(ReplayAction::Replay), observe);
        assert_eq!(code(&report), Some("dead-letter.comes-back"), "{id}");
        assert!(report.progress.done < 500);
        assert_eq!(fixture.ids("orders").len(), report.progress.done);
    }
}

#[test]
fn it_stops_when_the_topic_fills_faster_than_it_empties() {
    let fixture = TopicFixture::new();
    fixture.write_many(500);
    let rounds = Cell::new(0);
    let observe = &mut |_: &ReplayProgress| {
        rounds.set(rounds.get() + 1);
        for n in 0..70 {
            let id = format!("new-{}-{n}", rounds.get());
            fixture.write(Spec { id: &id, class: "another", ..Spec::default() });
        }
    };
    let report = observed(&fixture, &job(ReplayAction::Replay), observe);
    assert_eq!(code(&report), Some("dead-letter.refills"));
}

#[test]
fn two_replays_at_once_repeat_no_more_than_was_in_flight() {
    let fixture = TopicFixture::new();
    fixture.write_many(500);
    let started = Cell::new(false);
    let report = observed(&fixture, &job(ReplayAction::Replay), &mut |_| {
        if !started.replace(true) {
            let other = carry_out(&fixture, &job(ReplayAction::Replay));
            assert_eq!(other.progress.done, other.progress.matched);
        }
    });
    assert!(matches!(code(&report), None | Some("dead-letter.two-replays")), "{report:?}");
    let published = fixture.ids("orders").len();
    assert!((500..=500 + WINDOW).contains(&published), "{published}");
    assert_eq!(fixture.open(), 0);
}

#[test]
fn what_another_replay_has_replayed_meanwhile_does_not_arrive_behind_it() {
    // GIVEN a replay whose first events do not get through
    let fixture = TopicFixture::new();
    fixture.write_many(20);
    let job = job(ReplayAction::Replay);
    let mut progress = ReplayProgress::default();
    let topic = fixture.topic();
    let mut slow = Replay::begin(&topic, &job, fixture.clock(), &mut progress).unwrap().unwrap();
    fixture.broker.set_silent(true);
    assert!(!slow.step(fixture.clock(), &mut progress));
    fixture.broker.set_silent(false);
    // WHEN another one replays everything
    assert_eq!(carry_out(&fixture, &job).progress.done, 20);
    // THEN the first one stops, and drops what has not arrived
    while !slow.step(fixture.clock(), &mut progress) {}
    let fault = slow.end(&mut progress).unwrap();
    assert_eq!(fault.code, "dead-letter.two-replays");
    assert_eq!(fixture.ids("orders").last(), Some(&"e19".to_owned()));
    assert_eq!(fixture.open(), 0);
}

#[test]
fn where_the_log_takes_no_resolution_one_event_is_published() {
    let fixture = TopicFixture::new();
    fixture.write_many(100);
    let broker = fixture.flawed(Flaw::LogRefuses);
    let report = carry_out_at(&broker, &fixture, &job(ReplayAction::Replay));
    let fault = report.fault.unwrap();
    assert_eq!(fault.code, "dead-letter.unwritable");
    assert!(fault.what.contains("stays open, and a replay publishes it again"), "{fault}");
    assert_eq!((fixture.ids("orders").len(), fixture.open()), (1, 100));
}

#[test]
fn a_discard_that_the_log_does_not_take_says_that_it_can_be_repeated() {
    let fixture = TopicFixture::new();
    fixture.write_many(3);
    let broker = fixture.flawed(Flaw::LogRefuses);
    let fault = carry_out_at(&broker, &fixture, &job(ReplayAction::Discard)).fault.unwrap();
    assert_eq!(fault.code, "dead-letter.unwritable");
    assert!(
        fault.what.ends_with("; 0 of 3 dead letters are discarded, and more may be"),
        "{fault}"
    );
    let again = "\nthen repeat the discard: what is discarded is left out";
    assert!(fault.mend.ends_with(again), "{fault}");
}

#[test]
fn large_events_in_flight_are_few() {
    let fixture = TopicFixture::new();
    let value = "x".repeat(3 * 1024 * 1024);
    for id in numbered(0..12) {
        let value_bytes_max = value.len();
        fixture.write(Spec { id: &id, value: &value, value_bytes_max, ..Spec::default() });
    }
    let broker = fixture.flawed(Flaw::Nothing);
    let report = carry_out_at(&broker, &fixture, &job(ReplayAction::Replay));
    assert_eq!((code(&report), report.progress.done, fixture.open()), (None, 12, 0));
    assert_eq!(broker.most_at_once.load(Ordering::Relaxed), 3);
}

#[test]
fn what_can_never_be_replayed_is_passed_over_and_told() {
    let fixture = TopicFixture::new();
    let value = "more than sixteen bytes";
    fixture.write(Spec { id: "cut", key: Some("a"), value, ..Spec::default() });
    fixture.write(Spec { id: "lost", key: Some("b"), topic: "", ..Spec::default() });
    fixture.write(Spec { id: "raw", key: None, incomplete: true, ..Spec::default() });
    fixture.write(Spec { id: "", key: None, class: "consumer.no-id", ..Spec::default() });
    fixture.write(Spec { id: "good", ..Spec::default() });
    let report = carry_out(&fixture, &job(ReplayAction::Replay));
    let counts = json!({
        "matched": 5, "done": 1, "cut": 1, "unrouted": 1, "incomplete": 1, "nameless": 1, "misrouted": 0,
        "elsewhere": 0, "uncarried": 0, "behind": 0, "gone": 0, "records": 5
    });
    assert_eq!(json!(report.progress), counts);
    let fault = report.fault.unwrap();
    assert_eq!((fault.exit, fault.code), (Exit::Failed, "dead-letter.unfit"));
    assert!(!fault.mend.contains("--any-destination"), "{fault}");
    assert_eq!((fixture.ids("orders"), fixture.open()), (vec!["good".to_owned()], 4));
    // THEN they can be given up
    assert_eq!(carry_out(&fixture, &job(ReplayAction::Discard)).progress.done, 4);
    assert_eq!(fixture.open(), 0);
}

#[test]
fn what_follows_an_event_that_cannot_be_replayed_in_its_key_is_passed_over_too() {
    // GIVEN a first event of k whose topic no route leads to any more, or that is too much for the
    // broker
    for (topic, flaw) in [("orders-v1", Flaw::Nothing), ("orders", Flaw::Lacks("a"))] {
        let fixture = TopicFixture::new();
        for (id, key, topic) in [
            ("a", Some("k"), topic),
            ("b", Some("k"), "orders"),
            ("other", Some("l"), "orders"),
            ("c", Some("k"), "orders"),
            ("none", None, "orders"),
        ] {
            fixture.write(Spec { id, key, topic, ..Spec::default() });
        }
        let broker = fixture.flawed(flaw);
        let destinations = Some(Destinations::to("orders"));
        let routed = ReplayJob { destinations, ..job(ReplayAction::Replay) };
        let report = carry_out_at(&broker, &fixture, &routed);
        // THEN the later ones of k are not published, and that is said
        assert_eq!(fixture.ids("orders"), ["other", "none"], "{topic}");
        assert_eq!((report.progress.done, fixture.open()), (2, 3));
        let fault = report.fault.unwrap();
        assert_eq!((fault.exit, fault.code), (Exit::Failed, "dead-letter.unfit"));
        assert!(fault.what.starts_with("3 dead letters cannot be replayed: "), "{fault}");
        assert!(
            fault.what.contains(" (1")
                && fault.what.ends_with(", an earlier event of the key cannot be replayed (2)"),
            "{fault}"
        );
        // WHEN the first one is discarded THEN the others are replayed
        let first = job_of(ReplayAction::Discard, of_id("a"));
        assert_eq!(carry_out(&fixture, &first).progress.done, 1);
        assert_eq!(code(&carry_out(&fixture, &routed)), None);
        assert_eq!(fixture.ids("orders"), ["other", "none", "b", "c"]);
    }
}

#[test]
fn an_event_whose_route_leads_to_the_letters_is_not_published_there_and_stays_open() {
    let fixture = TopicFixture::new();
    let class = "route.dead-letter-topic";
    fixture.write(Spec { id: "lost", topic: "outbox.dlq", class, ..Spec::default() });
    let report = carry_out(&fixture, &job(ReplayAction::Replay));
    assert_eq!(code(&report), Some("dead-letter.unfit"));
    let what = &report.fault.as_ref().unwrap().what;
    assert!(what.starts_with("1 dead letter cannot be replayed: "), "{what}");
    assert_eq!((report.progress.done, fixture.open()), (0, 1));
    assert_eq!(json!(report.progress)["misrouted"], 1);
    assert_eq!(fixture.written_behind(1), [], "it is no letter");
    // THEN it can be given up
    assert_eq!(carry_out(&fixture, &job(ReplayAction::Discard)).progress.done, 1);
    assert_eq!(fixture.open(), 0);
}

#[test]
fn a_broker_that_takes_nothing_ends_it() {
    let fixture = TopicFixture::new();
    fixture.write_many(3);
    fixture.broker.set_full(true);
    let job = job(ReplayAction::Replay);
    let report = run(&fixture.topic(), &job, &|| fixture.fast_clock(), &mut |_| ());
    assert_eq!(code(&report), Some("dead-letter.sink-gone"));
    assert_eq!((report.progress.done, fixture.open()), (0, 3));
    assert!(fixture.elapsed_us() <= 60 * SECOND);
}

#[test]
fn a_letter_that_waits_for_the_rate_and_is_resolved_meanwhile_is_left_alone() {
    let fixture = TopicFixture::new();
    fixture.write_many(3);
    let slow = ReplayJob { rate: "1/s".parse().ok(), ..job(ReplayAction::Replay) };
    let discarded = Cell::new(false);
    let observe = &mut |tally: &ReplayProgress| {
        if tally.done == 1 && !discarded.replace(true) {
            let second = job_of(ReplayAction::Discard, of_id("e1"));
            assert_eq!(carry_out(&fixture, &second).progress.done, 1);
        }
    };
    let report = observed(&fixture, &slow, observe);
    assert_eq!((code(&report), report.progress.done), (None, 2));
    assert_eq!(fixture.ids("orders"), ["e0", "e2"]);
}

#[test]
fn two_letters_of_one_id_in_one_transaction_are_two() {
    let fixture = TopicFixture::new();
    for ordinal in [4, 7] {
        fixture.write(Spec { id: "same", ordinal, ..Spec::default() });
    }
    let report = carry_out(&fixture, &job(ReplayAction::Replay));
    assert_eq!((code(&report), report.progress.done, fixture.open()), (None, 2, 0));
    assert_eq!(fixture.ids("orders"), ["same", "same"]);
}

#[test]
fn what_has_arrived_is_written_down_although_the_sink_of_the_events_is_gone() {
    // GIVEN a broker that confirms a window of events and then ends their connection
    let fixture = TopicFixture::new();
    fixture.write_many(100);
    let broker = fixture.flawed(Flaw::EventsBreak);
    let report = carry_out_at(&broker, &fixture, &job(ReplayAction::Replay));
    // THEN it ends, and nothing that was delivered is open
    assert_eq!(code(&report), Some("dead-letter.sink-gone"));
    assert_eq!(
        (fixture.ids("orders").len(), report.progress.done, fixture.open()),
        (1 + WINDOW, 1 + WINDOW, 35)
    );
}

#[test]
fn what_is_in_flight_when_a_slow_replay_is_stopped_has_time_to_settle() {
    // GIVEN a replay of one event in twenty seconds, and a stop right behind the second
    let fixture = TopicFixture::new();
    fixture.write_many(5);
    let slow = ReplayJob { rate: "3/min".parse().ok(), ..job(ReplayAction::Replay) };
    let mut tally = ReplayProgress::default();
    let topic = fixture.topic();
    let mut work = Replay::begin(&topic, &slow, fixture.clock(), &mut tally).unwrap().unwrap();
    while fixture.ids("orders").is_empty() || work.pipeline.unresolved() > 0 {
        assert!(!work.step(fixture.clock(), &mut tally));
    }
    fixture.broker.set_silent(true);
    while work.pipeline.unresolved() == 0 {
        assert!(!work.step(fixture.fast_clock(), &mut tally));
    }
    fixture.stop.store(true, Ordering::Relaxed);
    assert!(!work.step(fixture.clock(), &mut tally), "it has not waited for it");
    fixture.broker.set_silent(false);
    while !work.step(fixture.clock(), &mut tally) {}
    assert_eq!((fixture.ids("orders").len(), tally.done, fixture.open()), (2, 2, 3));
    // THEN it is told with what was in flight
    let fault = work.end(&mut tally).unwrap();
    assert_eq!(fault.what, "stopped; 2 dead letters are resolved, some 3 are left");
}

#[test]
fn the_sinks_are_polled_while_the_broker_is_asked_about_a_topic() {
    let fixture = TopicFixture::new();
    fixture.write_many(1);
    let broker = fixture.flawed(Flaw::AnswersLate);
    let topic = fixture.topic_at(&broker);
    let job = job(ReplayAction::Replay);
    let mut tally = ReplayProgress::default();
    let mut work = Replay::begin(&topic, &job, fixture.clock(), &mut tally).unwrap().unwrap();
    fixture.broker.set_silent(true);
    while broker.inspections.load(Ordering::Relaxed) == 0 {
        assert!(!work.step(fixture.fast_clock(), &mut tally));
    }
    fixture.broker.set_silent(false);
    while !work.step(fixture.clock(), &mut tally) {}
    assert_eq!((tally.done, fixture.open()), (1, 0));
}

#[test]
fn a_reader_that_pauses_is_not_asked_without_a_pause() {
    let fixture = TopicFixture::new();
    fixture.write_many(2);
    let broker = fixture.flawed(Flaw::Pauses);
    let topic = fixture.topic_at(&broker);
    let job = job(ReplayAction::Replay);
    let mut tally = ReplayProgress::default();
    let mut work = Replay::begin(&topic, &job, fixture.clock(), &mut tally).unwrap().unwrap();
    // WHEN one event is in flight and no more letters come for now
    let wait = work.publish_next(fixture.clock(), &mut tally).unwrap();
    assert_eq!((work.pipeline.unresolved(), wait), (1, PATIENCE));
}

#[test]
fn letters_that_retention_removes_between_the_readings_are_told() {
    for action in [ReplayAction::Replay, ReplayAction::Discard] {
        let fixture = TopicFixture::new();
        fixture.write_many(10);
        let broker = fixture.flawed(Flaw::Forgets(3));
        let report = carry_out_at(&broker, &fixture, &job(action));
        assert_eq!(
            (report.progress.matched, report.progress.done, report.progress.gone),
            (10, 7, 3)
        );
        let fault = report.fault.unwrap();
        assert_eq!((fault.exit, fault.code), (Exit::Failed, "dead-letter.gone"));
        assert!(fault.what.contains("3 of 10"), "{fault}");
    }
}

#[test]
fn giving_letters_up_opens_no_sink_for_events() {
    for (action, sinks) in [(ReplayAction::Discard, 1), (ReplayAction::Replay, 2)] {
        let fixture = TopicFixture::new();
        fixture.write_many(10);
        let broker = fixture.flawed(Flaw::Nothing);
        let report = carry_out_at(&broker, &fixture, &job(action));
        assert_eq!((report.progress.done, broker.sinks.load(Ordering::Relaxed)), (10, sinks));
    }
}

#[test]
fn who_has_replayed_what_stands_in_the_log_at_the_beginning_and_at_the_end() {
    let fixture = TopicFixture::new();
    fixture.write_many(3);
    fixture.broker.refuse("e2", failure());
    let lines =
        audit(|| assert_eq!(carry_out(&fixture, &job(ReplayAction::Replay)).progress.done, 2));
    let [begins, ended] = &lines[..] else { panic!("{lines:?}") };
    assert!(begins.contains("replay begins") && begins.contains("count=3"), "{begins}");
    assert!(ended.contains("replay ended") && ended.contains("count=2"), "{ended}");
    assert!(ended.contains("dead-letter.refused-again") && ended.contains("who=\"me\""), "{ended}");
}

#[test]
fn events_go_where_the_configuration_can_lead_and_nowhere_else() {
    let fixture = TopicFixture::new();
    fixture.write(Spec { id: "ours", ..Spec::default() });
    fixture.write(Spec { id: "forged", topic: "payments", ..Spec::default() });
    // GIVEN routes that lead to one of both topics
    let destinations = Some(Destinations::to("orders"));
    let report = carry_out(&fixture, &ReplayJob { destinations, ..job(ReplayAction::Replay) });
    // THEN only that one is published to, and the other dead letter stays open
    assert_eq!(code(&report), Some("dead-letter.unfit"));
    assert_eq!((report.progress.done, &json!(report.progress)["elsewhere"]), (1, &json!(1)));
    assert!(report.fault.unwrap().mend.contains("--any-destination"));
    assert_eq!((fixture.ids("orders"), fixture.ids("payments")), (vec!["ours".to_owned()], vec![]));
    assert_eq!(fixture.open(), 1);
    // WHEN somebody insists THEN it goes there, too
    assert_eq!(carry_out(&fixture, &job(ReplayAction::Replay)).progress.done, 1);
    assert_eq!(fixture.ids("payments"), ["forged"]);
}

#[test]
fn a_consumer_whose_dead_letters_are_in_the_topic_of_the_relay_gets_them_back_alone() {
    // GIVEN a dead letter of the relay
    let fixture = TopicFixture::new();
    fixture.write(Spec { id: "relay", ..Spec::default() });
    assert_eq!(carry_out(&fixture, &job(ReplayAction::Replay)).progress.done, 1);
    assert!(fixture.elapsed_us() < 3 * SECOND, "nothing of it comes back");
    // GIVEN those of a consumer named outbox, from Kafka and from its own exchange
    for (id, exchange) in [("shared", ""), ("own", "outbox")] {
        fixture.publish(&[
            ("dlq-event-id", id.as_bytes()),
            ("dlq-original-topic", b"orders"),
            ("dlq-original-exchange", exchange.as_bytes()),
            ("dlq-error-class", b"consumer.permanent"),
            ("dlq-relay", b"outbox@host"),
        ]);
    }
    // WHEN they are replayed, and no route leads to that exchange
    let routes = [(Some(Template::literal("")), Template::literal("orders"))];
    let destinations = Some(Destinations::of(routes.into_iter()));
    let job = ReplayJob { destinations, ..job(ReplayAction::Replay) };
    let began_us = fixture.elapsed_us();
    let report = run(&fixture.topic(), &job, &|| fixture.fast_clock(), &mut |_| ());
    // THEN what all consumers read names it, and it has time to fail again
    assert_eq!((code(&report), report.progress.done), (None, 2));
    let arrived = fixture.broker.arrived().into_iter().filter(|event| event.topic == "orders");
    let consumers: Vec<_> =
        arrived.map(|event| (event.id.clone(), header(&event, "dlq-replay-for"))).collect();
    let wanted = [("relay", None), ("shared", Some("outbox")), ("own", None)];
    assert_eq!(
        consumers,
        wanted.map(|(id, consumer)| (id.to_owned(), consumer.map(str::to_owned)))
    );
    assert!(fixture.elapsed_us() - began_us >= 3 * SECOND);
}
