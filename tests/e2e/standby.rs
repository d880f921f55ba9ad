//! Two relays, one slot: the second waits, says so, and takes over.

use std::time::Duration;

use walrelay_harness::relay::get;

use crate::support::{LIMIT, Site, start, until};

#[test]
fn a_second_relay_stands_by_and_takes_over() {
    // GIVEN a relay that streams, and a second one
    let site = Site::shared("standby");
    let (mut first, reader) = (site.relay(), site.reader());
    let mut second = start(site.config(), "standby_second");
    let ready = |relay: &walrelay_harness::relay::RelayProcess| {
        get(relay.admin(), "/readyz", Duration::from_secs(2)).ok()
    };
    // THEN the second says that the slot is busy, and lives
    let told = until("a standby", LIMIT, || {
        ready(&second).filter(|answer| answer.body.contains("slot_busy"))
    });
    assert_eq!(told.status, 503);
    assert!(second.is_running());
    assert_eq!(ready(&first).unwrap().status, 200);
    for seq in 1..=100 {
        site.insert_event("key", seq);
    }
    site.wait_confirmed(&mut first, LIMIT);
    assert!(second.is_running(), "{}", second.tail(20));
    // WHEN the first is killed with events coming
    first.kill9().unwrap();
    for seq in 101..=200 {
        site.insert_event("key", seq);
    }
    // THEN the second carries on
    second.wait_ready(LIMIT).unwrap();
    let (verdict, _) = site.judge(&mut second, reader);
    println!("{verdict}");
    verdict.assert_exact(100);
    // AND the first, started again, stands by in its turn
    first.restart().unwrap();
    until("a standby", LIMIT, || ready(&first).filter(|answer| answer.body.contains("slot_busy")));
}
