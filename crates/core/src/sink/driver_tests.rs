use std::sync::{Arc, Mutex};

use super::*;
use crate::base::error::Exit;
use crate::base::event::{Outbound, Sequence};
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::publish::PublishError;
use crate::testing::IdleSink;

#[test]
fn a_sink_that_cannot_be_built_is_an_outage_only_if_that_may_pass() {
    let faults = Arc::new(Mutex::new(Vec::<Fault>::new()));
    let left = Arc::clone(&faults);
    let factory = move || match left.lock().unwrap().pop() {
        Some(fault) => Err(fault),
        None => Ok(Box::new(IdleSink) as Box<dyn Sink>),
    };
    let mut now = Instant::now();
    let backoff = Backoff::seeded(REBUILD_WAIT_MIN, REBUILD_WAIT_MIN, 1);
    let mut driver = SinkDriver::open(Box::new(factory), backoff, now).unwrap();
    driver.break_sink("it is lost", 1, now);
    assert!(!driver.is_reachable() && !driver.takes_events());
    // GIVEN a certificate that was replaced before its key WHEN the next sink is due
    let fault = Fault::new(Exit::Usage, "sink.refused-property", "keys differ", "files", "");
    faults.lock().unwrap().push(fault.clone().passing());
    assert!(!driver.awaits_sink(now));
    now += REBUILD_WAIT_MIN * 2;
    assert!(driver.awaits_sink(now));
    // THEN events wait, and a sink is built when the key is there
    assert_eq!(driver.rebuild(now), Ok(false));
    assert_eq!((driver.outage(), driver.is_reachable()), ("keys differ (files)", false));
    assert!(!driver.awaits_sink(now));
    now += REBUILD_WAIT_MIN * 2;
    assert!(driver.awaits_sink(now));
    assert_eq!(driver.rebuild(now), Ok(true));
    assert!(driver.is_reachable());
    // GIVEN a property that is refused THEN the relay ends
    driver.break_sink("it is lost", 1, now);
    faults.lock().unwrap().push(fault.clone());
    assert_eq!(driver.rebuild(now), Err(fault));
}

/// Reports one confirm at each poll, and another one when it is withdrawn.
struct ConfirmingSink;

impl Sink for ConfirmingSink {
    fn publish(&mut self, _: Sequence, _: &Outbound<'_>) -> Result<(), PublishError> {
        Ok(())
    }

    fn poll(&mut self, _: Instant, _: Duration, reports: &mut Vec<SinkReport>) {
        reports.push(SinkReport::Confirmed(1));
    }

    fn withdraw(&mut self, _: Instant, reports: &mut Vec<SinkReport>) {
        reports.push(SinkReport::Confirmed(2));
    }

    fn retry(&mut self, _: Sequence) {}

    fn replace_with_dead_letter(&mut self, _: Sequence, _: &DeadLetterWriter, _: &DeadLetterCause) {
    }
}

fn open(now: Instant) -> SinkDriver {
    let backoff = Backoff::seeded(REBUILD_WAIT_MIN, Duration::from_secs(3600), 1);
    let factory = || Ok(Box::new(ConfirmingSink) as Box<dyn Sink>);
    SinkDriver::open(Box::new(factory), backoff, now).unwrap()
}

#[test]
fn a_confirm_is_reported_whether_it_comes_while_nobody_reads_or_at_a_withdrawal() {
    let now = Instant::now();
    let mut driver = open(now);
    driver.keep_alive(now);
    assert_eq!(driver.poll(Duration::ZERO, now), [1, 1].map(SinkReport::Confirmed));
    assert_eq!(driver.withdraw("a peer", 1, now), [SinkReport::Confirmed(2)]);
    // THEN the next sink is built at once
    assert!(driver.awaits_sink(now));
    driver.settled(now);
    assert_eq!(driver.settled_events, 1);
}

#[test]
fn the_wait_for_the_next_sink_is_short_again_after_a_confirm() {
    let now = Instant::now();
    let mut driver = open(now);
    for _ in 0..40 {
        driver.break_sink("it is lost", 1, now);
        assert!(driver.awaits_sink(now + REBUILD_WAIT_MIN));
        assert_eq!(driver.rebuild(now), Ok(true));
        driver.done(Vec::new(), true, now);
    }
}

#[test]
fn an_outage_says_whether_the_login_is_refused_or_only_a_dead_letter_waits() {
    let now = Instant::now();
    let mut driver = SinkDriver::of(Box::new(IdleSink), now);
    let facts = |driver: &SinkDriver| {
        (driver.takes_events(), driver.has_dead_letter_outage(), driver.is_login_refused())
    };
    assert_eq!(facts(&driver), (true, false, false));
    driver.dead_letter_delayed("no leader");
    assert_eq!(facts(&driver), (true, true, false));
    driver.unreachable("refused".to_owned());
    assert_eq!(facts(&driver), (false, false, false));
    driver.login_refused("wrong password".to_owned());
    assert_eq!(facts(&driver), (false, false, true));
    driver.dead_letter_delayed("no leader");
    driver.break_sink("it is lost", 1, now);
    assert_eq!(facts(&driver), (false, false, false));
}
