use super::*;
use crate::base::lsn::Lsn;
use crate::find::event::EventStateReason;

fn row(id: &str, unix_us: i64) -> OutboxRow {
    OutboxRow {
        table: "public.outbox".to_owned(),
        id: id.to_owned(),
        key: Some(b"k".to_vec()),
        created_unix_us: Some(unix_us),
        is_published: true,
        ..OutboxRow::default()
    }
}

fn record(id: &str, offset: i64) -> EventSighting<PublishedRecord> {
    EventSighting {
        event_id: id.to_owned(),
        lsn: Some("0/A".parse().unwrap()),
        commit_unix_us: Some(2),
        topic: "t".to_owned(),
        of: PublishedRecord { topic: "t".to_owned(), offset, ..PublishedRecord::default() },
        ..EventSighting::default()
    }
}

#[test]
fn what_is_known_of_an_event_comes_together() {
    let of = EventLetter { attempts: 5, state: "replayed", ..EventLetter::default() };
    let (event_id, commit_unix_us) = ("b".to_owned(), Some(0));
    let letter = EventSighting { event_id, commit_unix_us, of, ..EventSighting::default() };
    let mut report = FindReport::default();
    let records = vec![record("a", 1), record("a", 2), record("c", 3)];
    let rows = vec![row("a", 1), row("b", 9), row("b", 9)];
    report.add(rows, &[letter], &records, true, &[]);
    let ids: Vec<&str> = report.events.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids, ["b", "a", "c"], "by time; a dead letter without one is first");
    assert!(report.events.iter().all(|event| event.state == EventState::Published));
    assert_eq!(report.not_searched, ["another row of event b in public.outbox: one row is shown"]);
    let json = report.to_json();
    let event = &json["events"][1];
    assert_eq!((&event["lsn"], &event["key"]), (&"0/A".into(), &"k".into()));
    assert_eq!(event["commit_ts"], "1970-01-01T00:00:00.000002Z");
    assert_eq!(event["row"]["created_at"], "1970-01-01T00:00:00.000001Z");
    assert_eq!(event["published"][1]["offset"], 2);
    assert!(json["events"][2]["row"].is_null());
    assert_eq!(json["events"][0]["dead_letters"][0]["attempts"], 5);
}

/// A report with a slot that has passed everything.
fn passed() -> FindReport {
    let end = Lsn::from_wire(100);
    let slot = SlotPosition { confirmed: end, wal_end: end, ..SlotPosition::default() };
    FindReport { slot: Some(slot), ..FindReport::default() }
}

fn row_to(topic: Option<&str>, row: OutboxRow) -> OutboxRow {
    OutboxRow { topic: topic.map(str::to_owned), ..row }
}

#[test]
fn each_event_is_judged_by_its_own_place() {
    // GIVEN rows that lead to a place that was read to its end, to another one, and to no topic
    let rows = vec![
        row_to(Some("read"), row("a", 1)),
        row_to(Some("unread"), row("b", 2)),
        row_to(None, row("c", 3)),
    ];
    let complete = [rows[0].route().unwrap()];
    let mut report = passed();
    report.add(rows, &[], &[], true, &complete);
    let found: Vec<_> = report.events.iter().map(|event| (event.state, event.reason)).collect();
    let published = (EventState::Published, EventStateReason::Passed);
    assert_eq!(found, [(EventState::Unknown, EventStateReason::Missing), published, published]);
}

#[test]
fn a_record_of_an_id_that_two_tables_have_is_of_the_row_that_leads_to_its_topic() {
    let of_other = OutboxRow { table: "public.invoices".to_owned(), ..row("a", 3) };
    let rows = || vec![row_to(Some("u"), of_other.clone()), row_to(Some("t"), row("a", 1))];
    let complete: Vec<SearchRoute> = rows().iter().filter_map(OutboxRow::route).collect();
    let mut report = passed();
    report.add(rows(), &[], &[record("a", 1)], true, &complete);
    let [own, other] = &report.events[..] else { panic!("{:?}", report.events) };
    let verdicts = [own, other].map(|event| (event.state, event.reason));
    let seen = (EventState::Published, EventStateReason::Seen);
    assert_eq!(verdicts, [seen, (EventState::Unknown, EventStateReason::Missing)]);
    assert_eq!([own, other].map(|event| event.records.len()), [1, 0]);
    assert_eq!(own.slot_passed, Some(true));
    for event in report.events_json() {
        assert!(event["text"].to_string().contains("id: rows of 2 tables have it"), "{event}");
    }
    // GIVEN a dead letter whose topic is that of neither THEN it may be of each
    let of = EventLetter { state: "open", ..EventLetter::default() };
    let event_id = "a".to_owned();
    let letter = EventSighting { event_id, of, ..EventSighting::default() };
    let mut report = passed();
    report.add(rows(), &[letter], &[], true, &complete);
    assert!(report.events.iter().all(|event| event.reason == EventStateReason::SameId));
}

#[test]
fn the_state_of_a_row_is_not_known_if_a_record_may_be_of_another_table() {
    // GIVEN two tables that lead to the topic of the record
    let of_other = OutboxRow { table: "public.invoices".to_owned(), ..row("a", 2) };
    let rows = vec![row_to(Some("t"), row("a", 1)), row_to(Some("t"), of_other)];
    let mut report = passed();
    report.add(rows, &[], &[record("a", 1)], true, &[]);
    assert!(!report.is_known());
    let conclusion =
        "state: rows of several tables have its id, or had it, and it is not known to which";
    for (event, json) in report.events.iter().zip(report.events_json()) {
        assert_eq!((event.records.len(), event.slot_passed), (1, Some(true)));
        // The commit of the record may be that of the other row.
        assert_eq!(event.lsn, None);
        assert!(json["text"].to_string().contains(conclusion), "{json}");
    }
}

/// The events of a row that leads to `u`, and of a record of its id in `t`, beside another table.
fn found_beside(table: &str, topic: &str, more: &[EventSighting<PublishedRecord>]) -> FindReport {
    let tables = vec![
        ("public.outbox".to_owned(), Template::literal("u")),
        (table.to_owned(), Template::literal(topic)),
    ];
    let mut report = FindReport { tables, ..passed() };
    let records = [&[record("a", 1)][..], more].concat();
    report.add(vec![row_to(Some("u"), row("a", 1))], &[], &records, true, &[]);
    report
}

#[test]
fn a_record_in_the_topic_of_another_table_is_of_a_row_that_is_gone() {
    // GIVEN a row of which nothing else was found THEN the record may have been its own
    let report = found_beside("public.invoices", "t", &[]);
    let of_row = |is_of_row: bool| {
        let mut events = report.events.iter().filter(|it| it.row.is_some() == is_of_row);
        events.next().map(|it| (it.state, it.reason, it.records.len()))
    };
    let seen = (EventState::Published, EventStateReason::Seen, 1);
    assert_eq!(of_row(true), Some((EventState::Unknown, EventStateReason::SameId, 0)));
    assert_eq!((of_row(false), report.events.len()), (Some(seen), 2));
    // GIVEN a record of its own, and another one of the row that is gone
    let mut own = record("a", 2);
    own.topic = "u".to_owned();
    let report = found_beside("public.invoices", "t", &[own, record("a", 3)]);
    assert!(report.is_known() && report.events.len() == 2, "{:?}", report.events);
    let counts = report.events.iter().map(|it| (it.row.is_some(), it.records.len()));
    let mut counts: Vec<(bool, usize)> = counts.collect();
    counts.sort_unstable();
    assert_eq!(counts, [(false, 2), (true, 1)]);
}

#[test]
fn a_record_in_a_topic_of_no_other_table_is_of_the_row_whose_route_was_changed() {
    for (table, topic) in [("public.invoices", "v"), ("public.outbox", "t")] {
        let report = found_beside(table, topic, &[]);
        let [event] = &report.events[..] else { panic!("{:?}", report.events) };
        assert_eq!((event.state, event.reason), (EventState::Published, EventStateReason::Seen));
    }
}

#[test]
fn the_newest_events_are_shown_and_the_rest_is_said() {
    let rows = (0..EVENTS_MAX as i64 + 3).map(|n| row(&format!("e{n:03}"), n)).collect();
    let mut report = FindReport::default();
    report.add(rows, &[], &[], true, &[]);
    assert_eq!((report.events.len(), report.events[0].id.as_str()), (EVENTS_MAX, "e003"));
    assert_eq!(report.not_searched, ["3 older events: the newest 100 are shown"]);
}

#[test]
fn an_event_is_known_if_it_is_found_and_its_state_is() {
    let of = |states: &[EventState]| {
        let event = |state: &EventState| FoundEvent { state: *state, ..FoundEvent::default() };
        FindReport { events: states.iter().map(event).collect(), ..FindReport::default() }
    };
    use EventState::{DeadLettered, Published, Unknown, Waiting};
    assert!(of(&[Published, Waiting, DeadLettered]).is_known());
    assert!(!of(&[Published, Unknown]).is_known());
    assert!(!of(&[]).is_known());
}
