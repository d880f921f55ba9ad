use super::*;
use crate::base::error::Exit;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use crate::base::event::Position;
use crate::base::lsn::Lsn;
use crate::dead_letter::testing::{Spec, write};
use crate::dead_letter::writer::{KeyHash, SystemId};
use crate::sink::log::DeadLetterLog;
use crate::sink::testing::MemoryBroker;

/// A log that cannot be read behind its first record.
struct BrokenLog(Option<Box<dyn DeadLetterLog>>);

impl DeadLetterLog for BrokenLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        let broken = || fault("sink.unreachable").passing();
        self.0.take().ok_or_else(broken)?.next(patience)
    }
}

struct TailFixture {
    broker: MemoryBroker,
    requests: ReadRequests,
    metrics: Arc<Metrics>,
}

/// The log cannot be opened until these are used up.
fn fixture(faults: Vec<Fault>) -> TailFixture {
    let (broker, faults) = (MemoryBroker::default(), Mutex::new(faults));
    broker.change_logs(move |log| faults.lock().unwrap().pop().map_or(Ok(log), Err));
    TailFixture { broker, requests: ReadRequests::default(), metrics: Arc::new(Metrics::new()) }
}

impl TailFixture {
    /// Letters that park their keys, of a process that has just died.
    fn write(&self, keys: usize) {
        let mut sink = self.broker.open(None).unwrap();
        let failed_unix_us = unix_now_us() - 5_000_000;
        for n in 0..keys {
            let key = n.to_string();
            let spec = Spec {
                id: &key,
                key: Some(&key),
                failed_unix_us,
                parks_key: true,
                ..Spec::default()
            };
            write(&mut *sink, spec);
        }
        sink.poll(Instant::now(), Duration::ZERO, &mut Vec::new());
    }

    /// Follows; as many news may wait to be heard.
    fn follow(&self, waiting_max: usize) -> (DeadLetterTail, Receiver<TailEvent>) {
        let (news, heard) = mpsc::sync_channel(waiting_max);
        (DeadLetterTail::start(self.parts(news)).unwrap(), heard)
    }

    fn parts(&self, news: SyncSender<TailEvent>) -> TailConfig {
        TailConfig {
            broker: Arc::new(self.broker.clone()),
            slot: "relay".to_owned(),
            system: SystemId::default(),
            settings: DeadLetterSettings::default(),
            events: news,
            metrics: Arc::clone(&self.metrics),
            has_source: Box::new(|| true),
            requests: self.requests.clone(),
        }
    }
}

/// As [`TailFixture::write`] does it.
fn parked(n: usize) -> TailEvent {
    let position = Position { commit_lsn: Lsn::from_wire(1), ordinal: 0 };
    TailEvent::Parked(KeyHash::of(n.to_string().as_bytes()), position)
}

fn fault(code: &'static str) -> Fault {
    Fault::new(Exit::Sink, code, "it is so", "queue q", "do something")
}

#[test]
fn the_loop_hears_everything_in_order_and_gauges_are_set_by_then() {
    let fixture = fixture(Vec::new());
    fixture.write(40);
    // GIVEN a channel that is too small THEN nothing is lost
    let (following, heard) = fixture.follow(1);
    for n in 0..40 {
        let letter = heard.recv().unwrap();
        assert!(matches!(letter, TailEvent::DeadLetter { class, .. } if class == "unroutable"));
        assert_eq!(heard.recv(), Ok(parked(n)));
    }
    assert_eq!(heard.recv(), Ok(TailEvent::CaughtUp));
    assert_eq!(fixture.metrics.dlq_depth.get(), 40.0);
    assert!(fixture.metrics.dlq_oldest_age_seconds.get() >= 5.0);
    // WHEN more is written THEN it is heard, and is no business of the breaker
    fixture.write(1);
    assert_eq!(heard.recv(), Ok(parked(0)));
    following.stop();
    assert!(heard.recv().is_err(), "the thread has ended");
}

#[test]
fn after_a_request_all_is_read_again_and_counts_anew() {
    let fixture = fixture(Vec::new());
    fixture.write(2);
    let (following, heard) = fixture.follow(64);
    let caught_up = |heard: &Receiver<TailEvent>| {
        let until = heard.iter().take_while(|it| *it != TailEvent::CaughtUp);
        until.collect::<Vec<_>>()
    };
    caught_up(&heard);
    // WHEN a peer has written a dead letter, and the loop has taken over from it
    fixture.write(3);
    assert_eq!(fixture.requests.request(), 1);
    // THEN that was read before the end is heard of
    let events = caught_up(&heard);
    let again = events.iter().position(|it| *it == TailEvent::ReadsAgain(1)).unwrap();
    let counts = |it: &&TailEvent| matches!(it, TailEvent::DeadLetter { .. });
    let counted = events[again..].iter().filter(counts).count();
    assert_eq!(counted, 3, "{events:?}");
    let keys = events.iter().filter(|it| **it == parked(2)).count();
    assert_eq!(keys, 1, "{events:?}");
    following.stop();
}

#[test]
fn a_loop_that_does_not_listen_does_not_keep_it_from_ending() {
    let fixture = fixture(Vec::new());
    fixture.write(10);
    let (following, heard) = fixture.follow(1);
    following.stop();
    assert!(heard.iter().count() < 20);
}

#[test]
fn a_loop_that_has_ended_ends_it() {
    let fixture = fixture(Vec::new());
    fixture.write(10);
    let (following, heard) = fixture.follow(1);
    drop(heard);
    assert_eq!(following.ended.recv(), Err(mpsc::RecvError));
}

#[test]
fn what_keeps_it_from_reading_is_told_once_with_what_mends_it() {
    let fixture =
        fixture(vec![fault("sink.dead-letter-missing"), fault("sink.dead-letter-forbidden")]);
    let (following, heard) = fixture.follow(8);
    let reason = "it is so (queue q); help: do something".to_owned();
    assert_eq!(heard.recv(), Ok(TailEvent::Unreadable(reason)));
    // WHEN it is mended THEN it is read after all
    assert_eq!(heard.recv(), Ok(TailEvent::CaughtUp));
    assert_eq!(fixture.metrics.dlq_depth.get(), 0.0);
    following.stop();
}

#[test]
fn a_fault_that_may_pass_is_waited_for() {
    // GIVEN a broker that is silent, away, or refuses the login while its password is changed
    let codes = [SILENT, "sink.unreachable", "sink.login", "config.secret-unread", SILENT];
    let fixture = fixture(codes.map(|code| fault(code).passing()).into());
    let (following, heard) = fixture.follow(8);
    // That nothing comes, though it answers, is reported once.
    assert!(matches!(heard.recv(), Ok(TailEvent::Silent(_))));
    assert_eq!(heard.recv(), Ok(TailEvent::CaughtUp));
    following.stop();
}

#[test]
fn gauges_that_nobody_can_look_after_are_unknown_after_a_while() {
    let fixture = fixture(Vec::new());
    let (news, _heard) = mpsc::sync_channel(1);
    let mut thread = TailThread::new(fixture.parts(news), Arc::default());
    thread.state.begin();
    thread.state.end(&mut Vec::new());
    // GIVEN a trouble that has just begun THEN the last value holds
    let now = Instant::now();
    thread.trouble = Some(ReadTrouble {
        since: now,
        is_logged: false,
        fault: fault("sink.unreachable").passing(),
    });
    thread.set_gauges();
    assert_eq!(fixture.metrics.dlq_depth.get(), 0.0);
    // WHEN it stays THEN nobody knows, and that is told once
    let Some(trouble) = &mut thread.trouble else { panic!("it is gone") };
    trouble.since = now.checked_sub(STALE_AFTER).unwrap();
    thread.set_gauges();
    assert!(fixture.metrics.dlq_depth.get().is_nan());
    assert!(thread.trouble.as_ref().is_some_and(|trouble| trouble.is_logged));
    // WHEN it ends THEN it is known again
    thread.mended();
    thread.set_gauges();
    assert_eq!(fixture.metrics.dlq_depth.get(), 0.0);
}

#[test]
fn a_reading_that_breaks_off_again_and_again_mends_nothing() {
    let fixture = fixture(Vec::new());
    fixture.write(2);
    fixture.broker.change_logs(|log| Ok(Box::new(BrokenLog(Some(log)))));
    let (news, _heard) = mpsc::sync_channel(8);
    let mut thread = TailThread::new(fixture.parts(news), Arc::default());
    let away = fault("sink.unreachable").passing();
    let since = Instant::now().checked_sub(STALE_AFTER).unwrap();
    // GIVEN a topic that cannot be read WHEN the next reading has some records and breaks off
    thread.trouble = Some(ReadTrouble { since, is_logged: false, fault: away });
    assert!(matches!(thread.read(), Err(Some(_))));
    // THEN nobody knows what the topic has
    thread.set_gauges();
    assert!(fixture.metrics.dlq_depth.get().is_nan());
}

#[test]
fn a_topic_that_is_missing_after_an_outage_is_told_to_the_loop() {
    let fixture = fixture(Vec::new());
    let (news, heard) = mpsc::sync_channel(1);
    // GIVEN a broker that was away for so long that a person was told WHEN it is back
    let mut thread = TailThread::new(fixture.parts(news), Arc::new(AtomicBool::new(true)));
    let away = fault("sink.unreachable").passing();
    thread.trouble = Some(ReadTrouble { since: Instant::now(), is_logged: true, fault: away });
    assert!(thread.wait_after(fault("sink.dead-letter-missing")).is_err(), "it must end");
    assert!(matches!(heard.try_recv(), Ok(TailEvent::Unreadable(_))));
}

#[test]
fn a_standby_reads_nothing_before_it_has_the_slot() {
    let (running, ends) = (AtomicBool::new(false), AtomicBool::new(true));
    assert!(!wait_for_source(&|| false, &ends));
    assert!(wait_for_source(&|| true, &ends));
    let looks = AtomicU32::new(0);
    assert!(wait_for_source(&|| looks.fetch_add(1, Ordering::Relaxed) == 3, &running));
}
