//! How a stop ends: who goes on, and what does not come back.

use super::*;

#[test]
fn a_relay_that_waits_goes_on_when_it_is_resumed_wherever_its_stop_is_kept() {
    for (has_file, fault, place) in [
        (true, moved(), Place::StateFile),
        (false, moved(), Place::Topic),
        (true, breaker(), Place::Topic),
    ] {
        let relay = Site::new().process(has_file, true);
        relay.keep(&fault);
        relay.note_halt(&fault);
        assert_eq!(relay.standing().map(|(_, place)| place), Some(place));
        assert!(!relay.may_go_on());
        relay.resume("token@host", "compared", None).unwrap();
        assert!(relay.may_go_on(), "{place:?}");
        assert_eq!(relay.fault(), None);
    }
}

#[test]
fn a_stop_that_was_acknowledged_before_the_relay_has_ended_does_not_come_back() {
    let site = Site::new();
    let relay = site.process(true, false);
    relay.keep_early(&moved());
    // WHEN a command acknowledges it, and then the relay ends with it
    site.process(true, false).resume("alice@host", "compared", None).unwrap();
    relay.keep(&moved());
    assert_eq!(site.process(true, false).standing(), None);
    // THEN the relay goes on if it waits
    relay.note_halt(&moved());
    assert!(relay.may_go_on());
}

#[test]
fn the_stop_that_was_found_first_stays_whatever_the_relay_finds_before_it_has_ended() {
    let site = Site::new();
    let relay = site.process(true, false);
    relay.keep_early(&moved());
    let later = Fault { code: WENT_BACK, ..moved() };
    relay.keep_early(&later);
    relay.keep(&later);
    assert_eq!(site.process(true, false).fault().unwrap().code, "slot.moved");
}

#[test]
fn a_stop_that_could_not_be_written_is_not_written_later_with_something_else() {
    let ways: [fn(&StandingStops, &Fault); 2] = [StandingStops::keep_early, StandingStops::keep];
    for keep in ways {
        let site = Site::new();
        let relay = site.process(true, false);
        site.file.set_full(true);
        keep(&relay, &moved());
        assert_eq!(relay.standing(), None);
        // WHEN somebody resumes the relay, and there is room again
        relay.note_halt(&moved());
        relay.resume("token@host", "compared", None).unwrap();
        assert!(relay.may_go_on());
        site.file.set_full(false);
        relay.note_reading(&at("7", 1));
        // THEN the next process is not stopped by what was acknowledged
        assert_eq!(site.process(true, false).last_place(), Some((at("7", 1), Lsn::ZERO)));
        assert_eq!(site.process(true, false).standing(), None);
    }
}

#[test]
fn a_relay_that_goes_on_is_judged_by_what_it_has_seen_before_it_was_halted() {
    let (site, place) = (Site::new(), at("7", 1));
    let relay = site.process(true, true);
    let saw = |lsn| Remembering(Arc::clone(&relay)).saw(Lsn::from_wire(lsn));
    relay.note_reading(&place);
    saw(900);
    relay.note_halt(&missing());
    relay.resume("token@host", "", None).unwrap();
    assert!(relay.may_go_on());
    // WHEN it looks at a database that was set back, before the next session is judged
    saw(50);
    // THEN this process knows it, and so does the next one, if this one is killed
    let last = Some((place, Lsn::from_wire(900)));
    assert_eq!(relay.last_place(), last);
    assert_eq!(site.process(true, true).last_place(), last);
}

#[test]
fn only_the_stop_of_the_breaker_is_written_to_a_topic_that_cannot_be_read() {
    for (fault, records) in [(moved(), 0), (breaker(), 1)] {
        let site = Site::new();
        let relay = site.process(true, true);
        site.file.set_full(true);
        relay.topic_is_readable(false);
        relay.keep(&fault);
        assert_eq!(site.topic.lock().unwrap().records.len(), records, "{}", fault.code);
    }
}

#[test]
fn a_command_lacks_the_state_file_only_if_it_did_not_find_it() {
    let mut stops = Site::new().stops(false, true, false);
    assert!(!stops.lacks_file());
    stops.parts.missing_file = Some(PathBuf::from("slot.state"));
    assert!(stops.lacks_file());
}

#[test]
fn a_place_that_could_not_be_written_is_written_with_the_next_session() {
    let (site, place) = (Site::new(), at("7", 1));
    let relay = site.process(true, false);
    site.file.set_full(true);
    relay.note_reading(&place);
    site.file.set_full(false);
    relay.note_reading(&place);
    assert_eq!(site.process(true, false).last_place(), Some((place, Lsn::ZERO)));
}

#[test]
fn a_publication_is_written_while_the_slot_is_read_or_else_when_it_is_read() {
    let compare = |stops: &Arc<StandingStops>| {
        stops.known_publication().compare(look(300), &Site::new().source(), true)
    };
    let (site, place) = (Site::new(), at("7", 1));
    let [first, other] = [(); 2].map(|()| site.process(true, false));
    first.note_reading(&place);
    // GIVEN that another process has kept a stop meanwhile
    other.keep(&moved());
    assert_eq!(compare(&first), Comparison::First);
    // THEN both are in the file
    let next = site.process(true, false);
    assert_eq!(compare(&next), Comparison::InOrder);
    assert_eq!(next.fault().unwrap().code, "slot.moved");

    // GIVEN a file that knows the place and not the publication
    let site = Site::new();
    site.process(true, false).note_reading(&place);
    let relay = site.process(true, false);
    assert_eq!(compare(&relay), Comparison::First);
    relay.note_reading(&place);
    assert_eq!(compare(&site.process(true, false)), Comparison::InOrder);
}

#[test]
fn a_restore_that_a_command_has_acknowledged_stays_counted_whatever_the_relay_writes() {
    let site = Site::new();
    let relay = site.process(true, false);
    relay.note_reading(&at("7", 1));
    let went_back = Fault { code: WENT_BACK, ..moved() };
    site.process(true, false).keep(&went_back);
    site.process(true, false).resume("alice@host", "", None).unwrap();
    relay.note_reading(&at("7", 2));
    assert_eq!(site.process(true, false).restores(), 1);
}

#[test]
fn a_relay_that_goes_on_tries_again_to_read_the_topic() {
    let relay = Site::new().process(false, true);
    relay.topic_is_readable(false);
    assert_eq!(relay.place_of_gaps(), Place::Nowhere);
    relay.note_halt(&missing());
    relay.resume("token@host", "", None).unwrap();
    assert!(relay.may_go_on());
    assert_eq!(relay.place_of_gaps(), Place::Topic);
}

#[test]
fn a_stop_in_the_topic_stands_after_an_acknowledgement_that_cannot_be_written() {
    let site = Site::new();
    let relay = site.process(true, true);
    relay.keep(&breaker());
    relay.note_halt(&breaker());
    // GIVEN a file that another process has written, and that has no stop
    site.process(true, false).note_reading(&at("7", 1));
    site.set_down(true);
    relay.resume("token@host", "", None).unwrap_err();
    assert_eq!(relay.standing().map(|(_, place)| place), Some(Place::Topic));
}
