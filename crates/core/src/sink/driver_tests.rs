use std::sync::{Arc, Mutex};

use super::*;
use crate::base::error::Exit;
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
