use super::super::parse::parse;
use super::super::record::{LogEntry, StopBody, StopRecordKind};
use super::super::testing::TopicFixture;
use super::super::writer;
use super::*;
use crate::base::stop::{BREAKER_OPEN, Stop};

fn body(slot: &str, code: &str, since_unix_us: i64) -> StopBody {
    let stop = Stop { code: code.to_owned(), since_unix_us, ..Stop::default() };
    StopBody { slot: slot.to_owned(), stop, by: "relay@host".to_owned(), ..StopBody::default() }
}

fn write(fixture: &TopicFixture, kind: StopRecordKind, body: StopBody) {
    let clock = || fixture.clock();
    append(&StopRecord::new(kind, body), &fixture.topic(), &clock).unwrap();
}

#[test]
fn a_stop_stands_until_its_own_acknowledgement() {
    use StopRecordKind::{Resumed, Stopped};
    let fixture = TopicFixture::new();
    let standing = |slot| read_stops(&fixture.topic(), &LetterOwner::new(slot, Some("7"))).unwrap();
    assert_eq!(standing("a"), TopicStops::default());
    // GIVEN the breaker of one relay, twice, and a gap of another one on the same topic
    write(&fixture, Stopped, body("a", BREAKER_OPEN, 1));
    write(&fixture, Stopped, body("a", "slot.moved", 2));
    write(&fixture, Stopped, body("b", "publication.recreated", 3));
    // AND one of the same slot name in another database system
    let other = StopBody { system: "8".to_owned(), ..body("a", BREAKER_OPEN, 5) };
    write(&fixture, Stopped, other);
    // WHEN the first is acknowledged, and opens again
    write(&fixture, Resumed, body("a", BREAKER_OPEN, 1));
    write(&fixture, Stopped, body("a", BREAKER_OPEN, 4));
    // THEN an acknowledgement of the earlier one, which comes late, is not one of the later
    write(&fixture, Resumed, body("a", BREAKER_OPEN, 1));
    let codes = |stops: TopicStops| {
        stops.standing.into_iter().map(|it| (it.code, it.since_unix_us)).collect::<Vec<_>>()
    };
    let left = vec![("slot.moved".to_owned(), 2), (BREAKER_OPEN.to_owned(), 4)];
    assert_eq!(codes(standing("a")), left);
    // AND what was acknowledged of the publication is known
    let publication = Some("as it is".to_owned());
    let resumed = StopBody { publication, ..body("b", "publication.recreated", 3) };
    write(&fixture, Resumed, resumed);
    let found = standing("b");
    assert_eq!((found.standing.len(), found.publication.as_deref()), (0, Some("as it is")));
}

#[test]
fn what_is_no_stop_is_foreign() {
    let entry = |resolution: &str, value: &str| LogEntry {
        value: Some(value.as_bytes().to_vec()),
        headers: vec![
            (writer::EVENT_ID.to_owned(), b"stop".to_vec()),
            (writer::RESOLUTION.to_owned(), resolution.as_bytes().to_vec()),
        ],
        ..LogEntry::default()
    };
    let json = |code: &str| serde_json::to_string(&body("a", code, 1)).unwrap();
    let parsed = |resolution, value: &str| parse(entry(resolution, value));
    assert!(matches!(parsed("breaker-opened", &json(BREAKER_OPEN)), LogRecord::Stop(_)));
    assert!(matches!(parsed("resumed", &json("slot.moved")), LogRecord::Stop(_)));
    for (resolution, value) in [
        ("breaker-opened", json("slot.moved")),
        ("stopped", json(BREAKER_OPEN)),
        ("stopped", json("no.such-code")),
        ("stopped", "{".to_owned()),
        ("stopped", json("slot.moved") + &" ".repeat(64 << 10)),
        ("paused", json("slot.moved")),
    ] {
        assert_eq!(parsed(resolution, &value), LogRecord::Foreign, "{resolution} {value}");
    }
}
