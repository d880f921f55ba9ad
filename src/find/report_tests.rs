use super::*;

const ALL: Completeness = Completeness { letters_read: true, searched_all: true };

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
    report.add(vec![row("a", 1), row("b", 9), row("b", 9)], vec![letter], records, ALL);
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

#[test]
fn the_state_of_an_event_of_which_two_tables_have_the_id_is_not_known() {
    let of_other = OutboxRow { table: "public.invoices".to_owned(), ..row("a", 2) };
    let mut report = FindReport::default();
    report.add(vec![row("a", 1), of_other], Vec::new(), vec![record("a", 1)], ALL);
    assert!(!report.is_known());
    let conclusion = "state: whether it was published is not known";
    assert!(report.events_json()[0]["text"].to_string().contains(conclusion));
}

#[test]
fn the_newest_events_are_shown_and_the_rest_is_said() {
    let rows = (0..EVENTS_MAX as i64 + 3).map(|n| row(&format!("e{n:03}"), n)).collect();
    let mut report = FindReport::default();
    report.add(rows, Vec::new(), Vec::new(), ALL);
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
