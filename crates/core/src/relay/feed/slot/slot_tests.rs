use std::sync::mpsc::TryRecvError;

use super::bench::{Bench, begin, commit, event, keepalive, ms, server_error, table, transaction};
use super::*;
use crate::base::event::Position;
use crate::relay::Relay;
use crate::relay::failure_policy::tests::failure;
use crate::relay::state_file::StateFile;
use crate::relay::state_file::header::{PEER_SEEN, REPORTS_MADE};
use crate::relay::testing::MemoryFile;
use crate::sink::{Disposition, Failure, PublishError};
use crate::source::catalog::Catalog;
use crate::source::walsender::Activity;
use crate::testing::{IdleSink, lsn};

#[test]
fn one_session_is_requested_at_the_start_and_another_one_when_that_has_ended() {
    let mut bench = Bench::of(StateFile::default());
    let request = bench.requested().unwrap();
    assert!(!request.text_only && !request.at_once);
    bench.round();
    assert!(bench.requested().is_none(), "it was requested already");
    bench.answer(SessionNews::Waiting(Phase::AwaitingPrimary));
    bench.round();
    assert_eq!(bench.status().phase, Phase::AwaitingPrimary);
    bench.stream();
    bench.confirm(0);
    // WHEN the stream breaks
    bench.lose();
    let request = bench.requested().unwrap();
    assert_eq!((request.at_once, request.confirmed), (false, lsn(2081)));
    assert_eq!(bench.facts().counts, [(Counter::Reconnect, 1)]);
    bench.round();
    assert!(bench.requested().is_none());
}

#[test]
fn an_update_is_sent_for_a_new_position_or_a_request_and_otherwise_when_it_is_due() {
    let mut bench = Bench::streaming();
    bench.relay.down.policy.suspects.insert(Position { commit_lsn: lsn(2048), ordinal: 0 });
    assert!(bench.relay.feed.awaits_confirms());
    bench.confirm(0);
    bench.round();
    assert_eq!(bench.socket().reports, [1024, 1025, 2081]);
    assert!(bench.relay.down.policy.suspects.is_empty());
    assert!(!bench.relay.feed.awaits_confirms());
    bench.relay.feed.status_updates.requested = true;
    assert!(bench.relay.feed.awaits_confirms());
    bench.relay.feed.status_updates.requested = false;
    bench.send(&keepalive(2048, true));
    bench.round();
    bench.round();
    assert_eq!(bench.socket().reports.len(), 4);
    // WHEN the process was frozen, as its clock does not show
    let now = bench.clock.instant();
    assert_eq!(bench.relay.feed.withdrawal(now, ms(3_000)), None);
    bench.round();
    assert_eq!(bench.socket().reports.len(), 5);
    let facts = bench.facts();
    assert!([Stage::Read, Stage::Feedback].iter().all(|it| facts.stages.contains(it)));
}

#[test]
fn a_sink_that_takes_nothing_is_named_and_the_stream_is_not_waited_for_meanwhile() {
    let mut bench = Bench::streaming();
    bench.send(&transaction(3072, &["b"]));
    let waits = |bench: &mut Bench| {
        let now = bench.clock.instant();
        let read = bench.relay.feed.wait(ms(10), Some(&IdleSink), now);
        (read, std::mem::take(&mut bench.socket().waits))
    };
    for _ in 0..2 {
        bench.broker().refusal = Some(PublishError::QueueFull);
        assert_eq!(bench.round(), Some(IntakeHold::SinkFull));
        assert_eq!(bench.unheard_for(), Some(Duration::ZERO));
        assert_eq!(waits(&mut bench), (false, 0));
    }
    assert_eq!(bench.round(), None);
    assert_eq!(bench.broker().taken, ["a", "b"]);
    assert_eq!(waits(&mut bench), (true, 1));
    assert!(!bench.relay.feed.wait(ms(10), None, bench.clock.instant()));
    bench.socket().is_broken = true;
    assert_eq!(waits(&mut bench), (true, 0));
    assert!(!bench.is_open());
}

#[test]
fn a_sink_that_refuses_every_event_is_dropped_and_the_next_one_reads_the_slot_again() {
    let mut bench = Bench::streaming();
    let failure = Failure { known: true, key: None, ..failure(Disposition::Outage, "kafka.no") };
    bench.broker().refusal = Some(PublishError::Failed(failure));
    bench.send(&transaction(3072, &["b"]));
    bench.round();
    assert!(bench.relay.down.driver.sink.is_none());
    bench.round();
    assert_eq!(bench.unheard_for(), Some(Duration::ZERO), "the stream is not read on purpose");
    bench.clock.sleep(ms(300));
    bench.round();
    bench.round();
    assert!(bench.requested().unwrap().at_once);
    let opened = bench.session(1025);
    bench.open(opened);
    bench.send(&[transaction(2048, &["a"]), transaction(3072, &["b"])].concat());
    bench.round();
    assert_eq!(bench.broker().taken, ["a", "a", "b"]);
}

#[test]
fn postgres_counts_as_decoding_only_while_the_stream_is_read() {
    let mut bench = Bench::streaming();
    bench.facts().server_lsn = lsn(1 << 20);
    bench.send(&transaction(3072, &["b"]));
    for is_full in [true, false] {
        for _ in 0..80 {
            bench.clock.sleep(ms(500));
            bench.send(&keepalive(2048, false));
            bench.broker().refusal = is_full.then_some(PublishError::QueueFull);
            bench.round();
            let asked = bench.ends().walsenders[0].requests.try_recv();
            if asked.is_ok() {
                bench.tell(0, Activity::Busy("CPU".to_owned()), 0);
            }
        }
        assert_eq!(bench.status().decoding_for.is_none(), is_full);
    }
    bench.lose();
    assert_eq!(bench.status().decoding_for, None);
}

#[test]
fn a_column_without_a_binary_form_is_read_as_text_from_the_next_session_on() {
    let described = [begin(3072), table("outbox", 16_385)].concat();
    for reason in [&described, &server_error("42883")] {
        let mut bench = Bench::streaming();
        bench.confirm(0);
        bench.send(reason);
        bench.round();
        assert!(!bench.is_open());
        bench.round();
        assert!(bench.requested().unwrap().text_only);
        let opened = bench.session(2081);
        bench.open(opened);
        bench.send(reason);
        bench.clock.sleep(ms(20));
        let passed = bench.relay.pass().map_err(|fault| fault.code);
        let is_told = *reason != described;
        assert_eq!(passed.err(), is_told.then_some("source.stream-refused"));
        assert!(is_told || bench.is_open());
    }
}

#[test]
fn an_unknown_table_waits_until_the_catalog_was_read_for_this_session() {
    let mut bench = Bench::streaming();
    bench.confirm(0);
    let sent = [begin(3072), table("other", 25), event("b"), commit(3072)].concat();
    for sessions in 1..=2 {
        bench.send(&sent);
        for _ in 0..2 {
            assert_eq!(bench.round(), Some(IntakeHold::CatalogUnread));
        }
        assert_eq!(bench.ends().catalogs.len(), sessions);
        if sessions == 1 {
            bench.lose();
            let opened = bench.session(2081);
            bench.open(opened);
        }
    }
    bench.ends().catalogs[1].answers.send(Catalog::default()).unwrap();
    assert_eq!(bench.round(), None);
    assert_eq!(bench.broker().taken, ["a", "b"]);
}

#[test]
fn nothing_more_is_reported_after_a_fault_of_the_slot() {
    for (exit, is_open) in [(Exit::Slot, false), (Exit::Source, true)] {
        let mut bench = Bench::streaming();
        let fault = Fault::new(exit, "slot.moved", "it is one", "", "");
        bench.relay.feed.stopped(fault).unwrap_err();
        assert_eq!(bench.is_open(), is_open);
    }
}

#[test]
fn the_last_position_is_left_over_sql_unless_the_server_has_it_or_the_slot_is_another_one() {
    // Whether there is a session, and the server answers its end.
    for (has_session, answers, exit, is_left) in [
        (true, true, None, false),
        (true, false, None, true),
        (false, false, None, true),
        (true, false, Some(Exit::Source), true),
        (true, false, Some(Exit::Slot), false),
    ] {
        let file = MemoryFile::default();
        let mut bench = Bench::of(file.open());
        bench.stream();
        bench.socket().answers_end = answers;
        if !has_session {
            bench.lose();
        }
        let now = bench.clock.now();
        bench.relay.confirmed(0, now).unwrap();
        let fault = exit.map(|exit| Fault::new(exit, "slot.moved", "it is one", "", ""));
        bench.finish(fault.as_ref());
        assert_eq!(bench.ends().confirmed, if is_left { vec![2081] } else { vec![] });
        assert_eq!(bench.socket().reports.contains(&2081), has_session);
        assert_eq!(file.bytes().load(REPORTS_MADE), 3);
    }
}

#[test]
fn the_stream_is_closed_some_time_after_postgres_shuts_down_and_the_next_session_is_used() {
    let mut bench = Bench::streaming();
    bench.confirm(0);
    for _ in 0..2 {
        bench.flags.source_stopping.store(true, Ordering::Relaxed);
        bench.round();
        assert!(bench.is_open());
        bench.clock.sleep(ms(1_900));
        bench.round();
        assert!(bench.is_open());
        bench.clock.sleep(ms(200));
        bench.round();
        assert!(!bench.is_open());
        let opened = bench.session(2081);
        bench.round();
        bench.open(opened);
        assert!(bench.is_open());
        assert!(!bench.flags.source_stopping.load(Ordering::Relaxed));
    }
}

#[test]
fn a_session_whose_walsender_is_gone_is_given_up_whoever_was_told() {
    for link in [1, 2] {
        let mut bench = Bench::of(StateFile::default());
        let opened = bench.session(1024);
        bench.open(opened);
        bench.send(&transaction(2048, &["a"]));
        bench.round();
        // The lease asks early while nothing is read.
        bench.clock.sleep(ms(1_100));
        assert_eq!(bench.round(), Some(IntakeHold::TraceAwaited));
        assert!(bench.is_open());
        bench.tell(link, Activity::Gone, 0);
        bench.round();
        bench.round();
        assert!(!bench.is_open());
        assert!(bench.broker().taken.is_empty());
    }
}

#[test]
fn events_before_an_error_are_published_unless_a_peer_may_not_have_noticed_the_session() {
    // Behind 1031 no position is free for a trace.
    for (slot_confirmed, commits_at, taken) in [(1024, 2048, vec!["a"]), (1031, 1032, vec![])] {
        let mut bench = Bench::of(StateFile::default());
        let opened = bench.session(slot_confirmed);
        bench.open(opened);
        bench.look(1, true);
        bench.send(&[transaction(commits_at, &["a"]), server_error("58P01")].concat());
        assert_eq!(bench.round(), Some(IntakeHold::TraceAwaited));
        bench.socket().is_closed = true;
        assert_eq!(bench.relay.pass().unwrap_err().code, "source.stream-refused");
        assert_eq!(bench.broker().taken, taken);
    }
}

#[test]
fn without_room_for_a_trace_a_peer_is_given_time_to_notice_the_session() {
    for has_peer in [true, false] {
        let mut bench = Bench::of(StateFile::default());
        let mut opened = bench.session(1031);
        opened.wal_sender_timeout = None;
        bench.open(opened);
        bench.look(1, has_peer);
        bench.send(&transaction(1032, &["a"]));
        assert_eq!(bench.round(), has_peer.then_some(IntakeHold::TraceAwaited));
        assert_eq!(bench.broker().taken.is_empty(), has_peer);
        bench.clock.sleep(ms(12_500));
        assert_eq!(bench.round(), None);
        assert_eq!(bench.broker().taken, ["a"]);
    }
}

#[test]
fn what_is_in_flight_is_withdrawn_once_a_peer_has_the_slot() {
    for (phase, in_flight, withdrawals) in
        [(Phase::Standby, true, 1), (Phase::Standby, false, 0), (Phase::Connecting, true, 0)]
    {
        let mut bench = Bench::streaming();
        if !in_flight {
            bench.confirm(0);
        }
        bench.lose();
        bench.answer(SessionNews::Waiting(phase));
        bench.round();
        assert_eq!(bench.status().phase, phase);
        assert_eq!(bench.broker().withdrawals, withdrawals);
        let peer_held = bench.relay.feed.slot.as_ref().map(|slot| slot.peer_held);
        assert_eq!(peer_held, Some(phase == Phase::Standby));
    }
}

#[test]
fn a_peer_that_was_seen_is_noted_in_the_state_file() {
    type Case = (&'static str, fn(&mut Bench));
    let cases: [Case; 4] = [
        ("it is there", |it| {
            it.look(1, true);
            it.round();
        }),
        ("it is there at the end", |it| {
            it.look(1, true);
            it.finish(None);
        }),
        ("it has the slot", |it| {
            it.lose();
            it.answer(SessionNews::Waiting(Phase::Standby));
            it.round();
        }),
        ("it may have had the slot", |it| {
            it.lose();
            let mut opened = it.session(2081);
            opened.seen.peer_may_have_held = true;
            it.open(opened);
        }),
    ];
    for (name, see) in cases {
        let file = MemoryFile::default();
        let mut bench = Bench::of(file.open());
        bench.stream();
        bench.confirm(0);
        assert_eq!(file.bytes().load(PEER_SEEN), 0);
        see(&mut bench);
        assert!(file.bytes().load(PEER_SEEN) > 0, "{name}");
    }
}

#[test]
fn a_relay_that_stops_opens_no_other_session_and_withdraws_without_one_beside_a_peer() {
    for has_session in [true, false] {
        let mut bench = Bench::streaming();
        bench.look(1, true);
        if !has_session {
            bench.lose();
            bench.requested();
        }
        bench.relay.feed.close();
        let withdrawn = bench.relay.feed.withdrawal(bench.clock.instant(), Duration::ZERO);
        assert_eq!(withdrawn.is_none(), has_session);
        let is_closed = matches!(bench.relay.feed.connection, Connection::Closed);
        assert_eq!(is_closed, !has_session);
        let requested = bench.ends().sessions.as_ref().unwrap().requests.try_recv();
        let is_ended = matches!(requested, Err(TryRecvError::Disconnected));
        assert_eq!(is_ended, !has_session);
    }
}

#[test]
fn a_relay_that_stops_reads_the_open_transaction_to_its_end_and_no_other() {
    let mut bench = Bench::streaming();
    let open = |bench: &Bench| {
        let feed = &bench.relay.feed;
        (feed.is_mid_transaction(), feed.is_incomplete())
    };
    assert_eq!(open(&bench), (false, false));
    bench.send(&[begin(3072), event("b")].concat());
    bench.round();
    assert_eq!(open(&bench), (true, true));
    bench.send(&[commit(3072), transaction(4096, &["c"])].concat());
    let now = bench.clock.instant();
    let Relay { feed, down, .. } = &mut bench.relay;
    feed.intake(down, now, true).unwrap();
    assert_eq!(open(&bench), (false, false));
    assert_eq!(bench.broker().taken, ["a", "b"]);
    // Without a session nothing more comes of it.
    bench.round();
    bench.send(&[begin(5120), event("d")].concat());
    bench.round();
    bench.lose();
    assert_eq!(open(&bench), (false, false));
}
