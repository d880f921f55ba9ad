use super::*;

const ALL: Completeness = Completeness { letters_read: true, records_read: true };
const NOT_BROKER: Completeness = Completeness { letters_read: true, records_read: false };
const NOTHING: Completeness = Completeness { letters_read: false, records_read: false };

fn row() -> OutboxRow {
    OutboxRow {
        xmin: Some(1000),
        is_published: true,
        topic: Some("orders".to_owned()),
        ..OutboxRow::default()
    }
}

fn slot(confirmed: u64, sent: Option<u64>) -> SlotPosition {
    SlotPosition {
        name: "s".to_owned(),
        confirmed: Lsn::from_wire(confirmed),
        wal_end: Lsn::from_wire(100),
        reader: sent.map_or(SlotReader::Nobody, |it| SlotReader::Sent(Lsn::from_wire(it))),
        catalog_xmin: Some(1000),
    }
}

fn with_row() -> FoundEvent {
    FoundEvent { row: Some(row()), ..FoundEvent::default() }
}

fn letter(state: &'static str) -> EventLetter {
    EventLetter { state, ..EventLetter::default() }
}

#[track_caller]
fn judged(
    mut event: FoundEvent,
    slot: &SlotPosition,
    read: Completeness,
) -> (EventState, EventStateReason) {
    event.judge(Some(slot), read);
    (event.state, event.reason)
}

#[test]
fn the_slot_has_passed_what_it_has_confirmed() {
    let at = |lsn| FoundEvent { lsn: Some(Lsn::from_wire(lsn)), ..FoundEvent::default() };
    // GIVEN the place of the commit record THEN the slot must be behind it
    for (lsn, passed) in [(49, true), (50, false), (51, false)] {
        assert_eq!(slot(50, None).has_passed(&at(lsn)), Some(passed), "{lsn}");
    }
    // GIVEN a row alone THEN everything must be confirmed that was written when it was read
    assert_eq!(slot(100, None).has_passed(&with_row()), Some(true));
    assert_eq!(slot(99, None).has_passed(&with_row()), None);
    // or its transaction be older than any that may be ahead of the slot
    for (xmin, passed) in [(999, Some(true)), (1000, None), (1001, None), (u32::MAX, Some(true))] {
        let row = OutboxRow { xmin: Some(xmin), ..row() };
        let event = FoundEvent { row: Some(row), ..FoundEvent::default() };
        assert_eq!(slot(99, None).has_passed(&event), passed, "{xmin}");
    }
    assert_eq!(slot(100, None).has_passed(&FoundEvent::default()), None);
}

#[test]
fn what_was_seen_decides() {
    let slot = slot(0, None);
    let record = || vec![PublishedRecord::default()];
    let with = |letters: &[&'static str], records| FoundEvent {
        letters: letters.iter().map(|state| letter(state)).collect(),
        records,
        ..with_row()
    };
    for (event, state) in [
        (with(&[], record()), EventState::Published),
        (with(&["open"], Vec::new()), EventState::DeadLettered),
        (with(&["replayed", "open"], record()), EventState::DeadLettered),
        (with(&["replayed"], Vec::new()), EventState::Published),
        (with(&["discarded"], Vec::new()), EventState::DeadLettered),
        (with(&["discarded"], record()), EventState::Published),
    ] {
        assert_eq!(judged(event, &slot, ALL), (state, EventStateReason::Seen));
    }
    let polled = PolledStatus {
        state: EventState::InFlight,
        status: "claimed".to_owned(),
        retry_count: None,
        failure_reason: None,
    };
    let of = |state, letters: &[&'static str], records| {
        let polled = PolledStatus { state, ..polled.clone() };
        let row = OutboxRow { polled: Some(polled), ..row() };
        FoundEvent { row: Some(row), ..with(letters, records) }
    };
    for (event, state) in [
        (of(EventState::InFlight, &[], record()), EventState::InFlight),
        // A failed row stays so when its dead letter is replayed.
        (of(EventState::DeadLettered, &["replayed"], record()), EventState::Published),
        (of(EventState::DeadLettered, &["open"], Vec::new()), EventState::DeadLettered),
        (of(EventState::DeadLettered, &[], Vec::new()), EventState::DeadLettered),
    ] {
        assert_eq!(judged(event, &slot, ALL), (state, EventStateReason::Seen));
    }
}

#[test]
fn an_event_that_is_nowhere_is_judged_by_the_slot() {
    use EventState::{InFlight, Published, Unknown, Waiting};
    let (passed, behind, sent) = (slot(100, None), slot(50, None), slot(50, Some(100)));
    for (slot, read, verdict) in [
        (&passed, NOT_BROKER, (Published, EventStateReason::Passed)),
        (&passed, ALL, (Unknown, EventStateReason::Missing)),
        (&passed, NOTHING, (Unknown, EventStateReason::PassedUnread)),
        (&behind, ALL, (Waiting, EventStateReason::NotPassed)),
        (&behind, NOT_BROKER, (Waiting, EventStateReason::Lags)),
        (&sent, ALL, (InFlight, EventStateReason::NotPassed)),
        (&sent, NOTHING, (InFlight, EventStateReason::Lags)),
        (&slot(50, Some(99)), ALL, (Waiting, EventStateReason::NotPassed)),
    ] {
        assert_eq!(judged(with_row(), slot, read), verdict, "{slot:?} {read:?}");
    }
    let left_out = OutboxRow { is_published: false, ..row() };
    let event = FoundEvent { row: Some(left_out), ..FoundEvent::default() };
    assert_eq!(judged(event, &passed, ALL), (Unknown, EventStateReason::NotPublished));
    let mut event = with_row();
    event.judge(None, ALL);
    assert_eq!((event.state, event.reason), (Unknown, EventStateReason::Nothing));
}

#[test]
fn a_row_that_a_row_filter_may_exclude_is_not_published_because_the_slot_has_passed_it() {
    use EventState::{Published, Unknown, Waiting};
    let filtered = || {
        let row = OutboxRow { is_filtered: true, ..row() };
        FoundEvent { row: Some(row), ..FoundEvent::default() }
    };
    let (passed, behind) = (slot(100, None), slot(50, None));
    for (slot, read, verdict) in [
        (&passed, ALL, (Unknown, EventStateReason::Missing)),
        (&passed, NOT_BROKER, (Unknown, EventStateReason::Filtered)),
        (&passed, NOTHING, (Unknown, EventStateReason::Filtered)),
        (&behind, NOT_BROKER, (Waiting, EventStateReason::Lags)),
    ] {
        assert_eq!(judged(filtered(), slot, read), verdict, "{slot:?} {read:?}");
    }
    // A record says that the filter has let it through.
    let seen = FoundEvent { records: vec![PublishedRecord::default()], ..filtered() };
    assert_eq!(judged(seen, &passed, ALL), (Published, EventStateReason::Seen));
}

#[test]
fn a_trace_id_is_32_digits_that_are_not_all_zero() {
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let zero = "0".repeat(32);
    for (text, wanted) in [
        (format!("00-{id}-00f067aa0ba902b7-01"), Some(id)),
        (format!("00-{zero}-00f067aa0ba902b7-01"), None),
        (format!("00-{}", &id[1..]), None),
        (format!("00-{}-x", id.replace('4', "g")), None),
        (String::new(), None),
    ] {
        let event = FoundEvent { traceparent: Some(text.clone()), ..FoundEvent::default() };
        assert_eq!(event.trace_id(), wanted, "{text}");
    }
}
