use super::*;
use crate::base::lsn::Lsn;
use crate::dead_letter::record::NotReplayable;
use crate::find::event::{Completeness, PolledStatus, PublishedRecord};

const ALL: Completeness = Completeness { letters_read: true, records_read: true };

fn slot(confirmed: u64) -> SlotPosition {
    let (confirmed, wal_end) = (Lsn::from_wire(confirmed), Lsn::from_wire(100));
    SlotPosition { name: "s".to_owned(), confirmed, wal_end, ..SlotPosition::default() }
}

fn row() -> OutboxRow {
    let (table, created_unix_us) = ("public.outbox".to_owned(), Some(0));
    OutboxRow {
        table,
        created_unix_us,
        is_published: true,
        topic: Some("orders".to_owned()),
        ..OutboxRow::default()
    }
}

fn lines(mut event: FoundEvent, slot: &SlotPosition) -> Vec<String> {
    event.judge(Some(slot), ALL);
    sentences(&event, Some(slot))
}

#[test]
fn a_published_event_is_shown_in_the_order_in_which_it_happened() {
    let record =
        |offset| PublishedRecord { topic: "t\n".to_owned(), offset, ..PublishedRecord::default() };
    let letter = EventLetter {
        topic: "outbox.dlq".to_owned(),
        position: PartitionOffset { partition: 0, offset: 3 },
        attempts: 1,
        error_class: "c".to_owned(),
        error_msg: "no\u{1b}".to_owned(),
        state: "replayed",
        failed_unix_us: 0,
        ..EventLetter::default()
    };
    let event = FoundEvent {
        row: Some(row()),
        lsn: Some(Lsn::from_wire(10)),
        commit_unix_us: Some(0),
        letters: vec![letter],
        records: vec![record(7), record(9)],
        ..FoundEvent::default()
    };
    let zero = "1970-01-01T00:00:00.000000Z";
    assert_eq!(
        lines(event, &slot(11)),
        [
            format!("row: public.outbox, created at {zero}"),
            format!("commit: LSN 0/A, at {zero}; slot s has passed it"),
            format!(
                "dead letter: replayed; at {zero}, topic outbox.dlq, partition 0, offset 3, attempts 1, c: no\\u{{1b}}"
            ),
            format!("record: topic t\\n, partition 0, offset 7, at {zero}"),
            format!("record: topic t\\n, partition 0, offset 9, at {zero}"),
        ]
    );
}

#[test]
fn an_open_dead_letter_is_shown_with_the_commands_that_show_and_replay_it() {
    let of = |state| {
        let letters = vec![EventLetter { state, ..EventLetter::default() }];
        let event = FoundEvent { id: "a'b".to_owned(), letters, ..FoundEvent::default() };
        lines(event, &slot(100)).join("\n")
    };
    let told = r"replay: walrelay dlq show 'a'\''b'; once its cause is removed: walrelay dlq replay 'a'\''b'";
    assert!(of("open").contains(told), "{}", of("open"));
    for state in ["replayed", "discarded"] {
        assert!(!of(state).contains("walrelay dlq"), "{state}");
    }
}

#[test]
fn the_commands_for_a_dead_letter_keep_the_order_of_a_parked_key_and_name_no_replay_that_is_refused()
 {
    let of = |not_replayable| {
        let (state, is_of_parked_key) = ("open", true);
        let letter =
            EventLetter { state, not_replayable, is_of_parked_key, ..EventLetter::default() };
        let (id, key, letters) = ("7".to_owned(), Some("k 1".to_owned()), vec![letter]);
        lines(FoundEvent { id, key, letters, ..FoundEvent::default() }, &slot(100)).join("\n")
    };
    let told = "walrelay dlq replay --key='k 1', then: walrelay dlq release --key='k 1'";
    assert!(of(None).contains(told), "{}", of(None));
    let told = of(Some(NotReplayable::Cut));
    assert!(
        told.contains("replay: not possible: the value is cut; publish the event anew"),
        "{told}"
    );
    assert!(!told.contains("dlq replay"), "{told}");
}

#[test]
fn the_row_of_a_polled_event_is_published_and_not_its_dead_letter() {
    let of = |state| {
        let (status, retry_count, failure_reason) = (String::new(), None, None);
        let polled = Some(PolledStatus { state, status, retry_count, failure_reason });
        let letters = vec![EventLetter { state: "open", ..EventLetter::default() }];
        let row = Some(OutboxRow { polled, ..row() });
        lines(FoundEvent { id: "7".to_owned(), row, letters, ..FoundEvent::default() }, &slot(100))
    };
    let failed = of(EventState::DeadLettered).join("\n");
    let told =
        "retry: once its cause is removed: walrelay outbox retry '7'; walrelay dlq discard '7'";
    assert!(failed.contains(told), "{failed}");
    for state in [EventState::Published, EventState::Waiting] {
        let told = of(state).join("\n");
        assert!(told.contains("discard: its row is enough: walrelay dlq discard '7'"), "{told}");
        assert!(!told.contains("dlq replay"), "{told}");
    }
}

#[test]
fn what_waits_is_shown_with_how_far_the_slot_is_behind() {
    let event = FoundEvent { row: Some(row()), ..FoundEvent::default() };
    let lines = lines(event, &slot(40));
    assert_eq!(
        lines[1..],
        [
            "commit: LSN not known; slot s, confirmed up to 0/28, may have passed it",
            "state: not published: no relay has received it; the slot is 60 B behind",
        ]
    );
}

#[test]
fn a_role_that_does_not_see_how_far_a_relay_has_read_is_told_so() {
    let event = FoundEvent { row: Some(row()), ..FoundEvent::default() };
    let hidden = SlotPosition { reader: SlotReader::Hidden, ..slot(40) };
    let told = "state: not published: a relay reads the slot, and this role does not see how far \
                (GRANT pg_read_all_stats); the slot is 60 B behind";
    assert_eq!(lines(event, &hidden)[2], told);
}

#[test]
fn a_row_filter_is_named_where_it_may_exclude_the_row() {
    let of = |is_filtered| {
        let row = OutboxRow { is_filtered, ..row() };
        FoundEvent { row: Some(row), ..FoundEvent::default() }
    };
    assert!(!lines(of(false), &slot(100))[2].contains("filter"));
    let text = lines(of(true), &slot(100)).swap_remove(2);
    let told = "dead letter: the row filter of the publication excludes its row, its row is older";
    assert!(text.contains(told), "{text}");
    let mut event = of(true);
    event.judge(Some(&slot(100)), Completeness { letters_read: true, records_read: false });
    let text = sentences(&event, Some(&slot(100))).swap_remove(2);
    let told = "be searched: the row filter of the publication may exclude its row";
    assert!(text.ends_with(told), "{text}");
}

#[test]
fn what_the_slot_has_passed_was_published_unless_another_program_has_read_it() {
    let mut event = FoundEvent { row: Some(row()), ..FoundEvent::default() };
    event.judge(Some(&slot(100)), Completeness { letters_read: true, records_read: false });
    let text = sentences(&event, Some(&slot(100))).swap_remove(2);
    let told = "it was published, unless another program has read or moved the slot";
    assert!(text.contains(told), "{text}");
}

#[test]
fn a_polled_row_is_shown_with_its_status() {
    let polled = PolledStatus {
        state: EventState::Waiting,
        status: "pending".to_owned(),
        retry_count: Some(2),
        failure_reason: Some("refused".to_owned()),
    };
    let row = OutboxRow { polled: Some(polled), ..row() };
    let event = FoundEvent { row: Some(row), ..FoundEvent::default() };
    let row = "row: public.outbox, created at 1970-01-01T00:00:00.000000Z";
    let status = "status pending, 2 failed attempts: refused";
    assert_eq!(lines(event, &slot(0)), [format!("{row}, {status}")]);
}
