use proptest::prelude::*;

use super::*;

#[test]
fn only_the_contiguous_prefix_is_settled() {
    let mut window = Window::new(8, 1000);
    for _ in 0..3 {
        window.admit(10, 7, Fingerprint::NONE);
    }
    assert_eq!(
        window.settle(2),
        Ok(SettledEvent { commit_unix_us: 7, fingerprint: Fingerprint::NONE })
    );
    assert_eq!(window.settled_below(), 0);
    assert_eq!(
        window.settle(0),
        Ok(SettledEvent { commit_unix_us: 7, fingerprint: Fingerprint::NONE })
    );
    assert_eq!(window.settled_below(), 1);
    assert_eq!(
        window.settle(1),
        Ok(SettledEvent { commit_unix_us: 7, fingerprint: Fingerprint::NONE })
    );
    assert_eq!(window.settled_below(), 3);
    assert!(window.is_empty());
}

#[test]
fn events_that_wait_for_a_silent_destination_do_not_use_up_the_measured_limit() {
    let (mut window, began) = (Window::new(4096, usize::MAX), Instant::now());
    let (measured, tick) = (window.limit(), Duration::from_millis(100));
    // GIVEN events of which every other one is never confirmed
    let mut pass = 0;
    while window.has_room() {
        let sequence = window.admit(10, 0, Fingerprint::NONE);
        if sequence % 2 == 0 {
            window.settle(sequence).unwrap();
        }
    }
    assert_eq!(window.events(), measured);
    // WHEN that lasts
    while window.limit() == measured && pass < 30 {
        pass += 1;
        window.adapt(began + pass * tick, false);
    }
    // THEN the unconfirmed are bounded by the window alone
    assert_eq!(window.limit(), 4096, "after {pass} passes");
    // AND they are known as soon as a later one is confirmed
    assert_eq!(window.overtaken().count(), 0);
    let later = window.admit(10, 0, Fingerprint::NONE);
    window.settle(later).unwrap();
    pass += 1;
    window.adapt(began + pass * tick, false);
    assert_eq!(window.overtaken().count(), measured);
    assert!(window.overtaken().all(|sequence| sequence % 2 == 1));
    // AND when they are confirmed at last, by what keeps the broker busy
    for sequence in window.overtaken().collect::<Vec<_>>() {
        window.settle(sequence).unwrap();
    }
    window.adapt(began + (pass + 1) * tick, false);
    assert!(window.limit() < 4096, "{}", window.limit());
}

#[test]
fn a_silent_destination_that_comes_first_does_not_keep_others_out() {
    let (mut window, began) = (Window::new(4096, usize::MAX), Instant::now());
    let measured = window.limit();
    let after = |window: &mut Window, seconds: std::ops::RangeInclusive<u32>| {
        seconds.for_each(|second| window.adapt(began + Duration::from_secs(second.into()), false));
        window.limit()
    };
    // GIVEN a full window of which nothing is confirmed
    while window.has_room() {
        window.admit(10, 0, Fingerprint::NONE);
    }
    // THEN it stays as it is while the broker cannot be reached
    window.set_reachable(false);
    assert_eq!(after(&mut window, 0..=30), measured);
    // AND others may come when it can
    window.set_reachable(true);
    assert_eq!(after(&mut window, 31..=32), 4096);
    assert_eq!(window.overtaken().count(), 0, "none is known to be overtaken");
}

#[test]
fn a_receipt_counts_once_and_only_for_what_is_in_flight() {
    let mut window = Window::new(8, 1000);
    window.admit(10, 0, Fingerprint::NONE);
    window.admit(10, 0, Fingerprint::NONE);
    assert_eq!(window.settle(2), Err(NotInFlight(2)));
    assert!(window.settle(1).is_ok());
    assert_eq!(window.settle(1), Err(NotInFlight(1)));
    assert!(window.settle(0).is_ok());
    assert_eq!(window.settle(0), Err(NotInFlight(0)));
}

#[test]
fn what_was_confirmed_before_a_rewind_is_passed_over_unless_the_timeline_changed() {
    let admit_two_confirm_second = |window: &mut Window| {
        let (first, second) =
            (window.admit(10, 0, Fingerprint::NONE), window.admit(10, 0, Fingerprint::NONE));
        assert!(window.settle(second).is_ok());
        first
    };
    let mut window = Window::new(8, 1000);
    let first = admit_two_confirm_second(&mut window);
    assert!(!window.rewind());
    assert!(!window.next_is_confirmed());
    assert_eq!(window.admit(10, 0, Fingerprint::NONE), first);
    assert!(window.next_is_confirmed());
    window.pass_over();
    assert!(window.settle(first).is_ok());
    assert_eq!(window.settled_below(), 2);
    // GIVEN an old event in flight when the timeline changes
    admit_two_confirm_second(&mut window);
    window.forget();
    admit_two_confirm_second(&mut window);
    assert!(window.rewind());
    // THEN the numbers mean other events now, and nothing is passed over
    for _ in 0..4 {
        assert!(!window.next_is_confirmed());
        window.admit(10, 0, Fingerprint::NONE);
    }
    // WHEN it rewinds once more THEN they mean the same again
    assert!(!window.rewind());
    // GIVEN that all old ones have settled THEN a change of timeline changes no number
    let old = window.admit(10, 0, Fingerprint::NONE);
    window.forget();
    assert!(window.settle(old).is_ok());
    window.admit(10, 0, Fingerprint::NONE);
    assert!(!window.rewind());
}

#[test]
fn bounds_hold_in_events_and_in_bytes_and_a_giant_may_pass_alone() {
    let mut window = Window::new(2, 100);
    window.admit(10, 0, Fingerprint::NONE);
    assert!(window.has_room());
    window.admit(10, 0, Fingerprint::NONE);
    assert!(!window.has_room(), "two events are the bound");
    let mut window = Window::new(10, 100);
    window.admit(5000, 0, Fingerprint::NONE);
    assert!(!window.has_room(), "bytes are bounded too");
    assert!(window.settle(0).is_ok());
    assert!(window.has_room());
}

#[test]
fn one_event_that_waits_stops_no_other_for_long() {
    let mut window = Window::new(2, 100);
    let waits = window.admit(1, 0, Fingerprint::NONE);
    let mut admitted = 1;
    while window.has_room() {
        let sequence = window.admit(1, 0, Fingerprint::NONE);
        assert!(window.settle(sequence).is_ok());
        admitted += 1;
    }
    assert_eq!(admitted, 2 * SPAN_FACTOR);
    // WHEN it is settled THEN all of that leaves the window
    assert!(window.settle(waits).is_ok());
    assert!(window.is_empty() && window.has_room());
}

proptest! {
    #[test]
    fn it_equals_the_naive_model(steps in prop::collection::vec((0u8..4, 0usize..64), 1..400)) {
        let mut window = Window::new(16, 1 << 20);
        // Naive: the set of unsettled numbers, and the count of all admitted.
        let mut unsettled = std::collections::BTreeSet::new();
        let mut confirmed = std::collections::BTreeSet::new();
        let mut admitted: Sequence = 0;
        for (kind, pick) in steps {
            let prefix = unsettled.first().copied().unwrap_or(admitted);
            match kind {
                0 | 1 if window.has_room() && confirmed.contains(&admitted) => {
                    prop_assert!(window.next_is_confirmed());
                    window.pass_over();
                    admitted += 1;
                }
                0 | 1 if window.has_room() => {
                    prop_assert!(!window.next_is_confirmed());
                    prop_assert_eq!(window.admit(1, 0, Fingerprint::NONE), admitted);
                    unsettled.insert(admitted);
                    admitted += 1;
                }
                3 if pick == 0 => {
                    prop_assert!(!window.rewind());
                    unsettled.clear();
                    admitted = prefix;
                }
                _ => {
                    let target = unsettled.iter().nth(pick % unsettled.len().max(1)).copied();
                    if let Some(sequence) = target {
                        prop_assert!(window.settle(sequence).is_ok());
                        unsettled.remove(&sequence);
                        confirmed.insert(sequence);
                    }
                }
            }
            let prefix = unsettled.first().copied().unwrap_or(admitted);
            prop_assert_eq!(window.settled_below(), prefix);
            prop_assert_eq!(window.events(), unsettled.len());
            prop_assert_eq!(window.bytes(), unsettled.len());
            prop_assert!(unsettled.len() <= 16);
            prop_assert!(admitted - prefix <= 64);
        }
    }
}
