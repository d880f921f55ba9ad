use std::sync::Mutex;

use super::*;
use crate::relay::ports::Link;
use crate::relay::read_back::{FoundRecords, ReadRequest};

/// The transactions that Postgres sends again.
const AGAIN: Range<Lsn> = Lsn::from_wire(100)..Lsn::from_wire(200);
const COMMIT: Lsn = Lsn::from_wire(150);

/// An event of the transaction that was committed at [`COMMIT`].
fn with<T>(then: impl FnOnce(&Outbound<'_>) -> T) -> T {
    let lsn = COMMIT.to_string();
    let headers: [(&str, &[u8]); 1] = [("lsn", lsn.as_bytes())];
    then(&Outbound {
        exchange: "",
        topic: "orders",
        key: None,
        value: Some(b"1"),
        id: "1",
        event_type: None,
        content_type: None,
        headers: &headers,
        commit_unix_us: 0,
        partition: Some(0),
    })
}

/// A topic that holds so many records, all equal.
struct Topic {
    records: u32,
    answer: Mutex<Option<Result<FoundRecords, String>>>,
}

impl Link<ReadRequest, Result<FoundRecords, String>> for Topic {
    fn request(&self, mut request: ReadRequest) -> bool {
        for _ in 0..self.records {
            assert!(with(|record| request.take(record)));
        }
        let found = FoundRecords { records: request.stored, whole: true };
        *self.answer.lock().unwrap() = Some(Ok(found));
        true
    }

    fn answer(&self) -> Option<Result<FoundRecords, String>> {
        self.answer.lock().unwrap().take()
    }

    fn close(&mut self) {}
}

/// A session of a process that has neither marks nor a state file.
fn session(records: u32) -> EarlierEvents {
    let open = move || Some(Box::new(Topic { records, answer: Mutex::default() }) as _);
    let mut earlier = EarlierEvents::new(ReadBack::new(Box::new(open), 7));
    earlier.look_for(AGAIN);
    earlier
}

fn judge(earlier: &mut EarlierEvents, ordinal: u64) -> Earlier {
    let position = Position { commit_lsn: COMMIT, ordinal };
    with(|event| earlier.judge(event, position, Fingerprint::of(position, event)))
}

const PUBLISHED: Earlier = Earlier::Published(KnownFrom::Topic);

#[test]
fn the_first_event_of_a_topic_waits_until_that_was_read() {
    let mut earlier = session(1);
    earlier.begin(COMMIT);
    assert_eq!(judge(&mut earlier, 1), Earlier::TopicUnread);
    assert!(!earlier.awaits_topic(COMMIT));
    assert_eq!(judge(&mut earlier, 1), PUBLISHED);
    assert_eq!(judge(&mut earlier, 2), Earlier::Unknown);
}

/// The second of two equal events was not published, and the first is not judged again: this process has
/// admitted it before.
#[test]
fn an_event_that_was_admitted_before_uses_up_its_record() {
    let recall = |earlier: &mut EarlierEvents| with(|event| earlier.recalls(event, COMMIT));
    for (records, second) in [(1, Earlier::Unknown), (2, PUBLISHED)] {
        let mut earlier = session(records);
        earlier.begin(COMMIT);
        assert!(!recall(&mut earlier), "its topic is not read");
        assert!(!earlier.awaits_topic(COMMIT));
        assert!(recall(&mut earlier));
        assert_eq!(judge(&mut earlier, 2), second, "{records} records");
    }
}

#[test]
fn what_an_earlier_process_cannot_have_had_is_not_looked_for() {
    let mut earlier = session(1);
    let covered = [99, 100, 150].map(|lsn| earlier.covers(Lsn::from_wire(lsn)));
    assert_eq!(covered, [false, true, true]);
    // WHEN what comes was committed later
    earlier.begin(AGAIN.end);
    assert!(!earlier.is_active() && !earlier.covers(COMMIT));
    assert_eq!(judge(&mut earlier, 1), Earlier::Unknown);
}

#[test]
fn everything_that_was_received_ends_the_search() {
    let mut earlier = session(1);
    earlier.begin(COMMIT);
    assert!(!earlier.awaits_topic(COMMIT));
    assert!(earlier.is_active());
    assert!(!earlier.awaits_topic(AGAIN.end));
    assert!(!earlier.is_active());
}
