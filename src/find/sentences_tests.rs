use super::*;
use crate::base::lsn::Lsn;
use crate::find::event::{Completeness, PolledStatus, PublishedRecord};

const ALL: Completeness = Completeness { letters_read: true, searched_all: true };

fn slot(confirmed: u64) -> SlotPosition {
    let (confirmed, wal_end) = (Lsn::from_wire(confirmed), Lsn::from_wire(100));
    SlotPosition { name: "s".to_owned(), confirmed, wal_end, ..SlotPosition::default() }
}

fn row() -> OutboxRow {
    let (table, created_unix_us) = ("public.outbox".to_owned(), Some(0));
    OutboxRow { table, created_unix_us, is_published: true, ..OutboxRow::default() }
}

fn told(mut event: FoundEvent, slot: &SlotPosition) -> Vec<String> {
    event.judge(Some(slot), ALL);
    sentences(&event, Some(slot))
}

#[test]
fn a_published_event_is_told_in_the_order_in_which_it_happened() {
    let record =
        |offset| PublishedRecord { topic: "t\n".to_owned(), offset, ..PublishedRecord::default() };
    let letter = EventLetter {
        attempts: 1,
        error_class: "c".to_owned(),
        error_msg: "no\u{1b}.".to_owned(),
        state: "replayed",
        failed_unix_us: 0,
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
        told(event, &slot(11)),
        [
            format!("Its row is in public.outbox, created at {zero}."),
            format!("It was committed at {zero} in the log at 0/A; slot s has passed it."),
            format!(
                "It became a dead letter at {zero}, after 1 attempt, for c: no\\u{{1b}}. The dead letter is replayed."
            ),
            format!("It was published to t\\n, partition 0, offset 7, with the time {zero}."),
            format!("It was also published to t\\n, partition 0, offset 9, with the time {zero}."),
        ]
    );
}

#[test]
fn what_waits_is_told_with_how_far_the_slot_is_behind() {
    let event = FoundEvent { row: Some(row()), ..FoundEvent::default() };
    let lines = told(event, &slot(40));
    assert_eq!(
        lines[1..],
        [
            "Its place in the log is not known; whether slot s, confirmed up to 0/28, has passed it is not known.",
            "It is not published yet: no relay has received it yet; the slot is 60 B behind.",
        ]
    );
}

#[test]
fn a_polled_row_is_told_by_its_status() {
    let polled = PolledStatus {
        state: EventState::Waiting,
        status: "pending".to_owned(),
        retry_count: Some(2),
        failure_reason: Some("refused".to_owned()),
    };
    let row = OutboxRow { polled: Some(polled), ..row() };
    let event = FoundEvent { row: Some(row), ..FoundEvent::default() };
    assert_eq!(
        told(event, &slot(0))[1..],
        ["Its row has the status pending, after 2 failed attempts: refused."]
    );
}
