use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::base::clock::{Clock, Moment};
use crate::base::event::{Outbound, Position};
use crate::base::template::Template;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::delivery::flight::Attempts;
use crate::delivery::prefix::ConfirmedPrefix;
use crate::delivery::settings::OnDeadLetter;
use crate::outbox::settings::{Columns, Messages, OutboxTable, Route};
use crate::pgoutput::encoder::{Encoder, Form, insert};
use crate::pgoutput::relation::Column;
use crate::relay::failure_policy::tests::{flight, policy_with};
use crate::relay::read_back::tests::started;
use crate::relay::read_back::{FoundRecords, ReadBack, ReadRequest};
use crate::relay::state_file::StateFile;
use crate::relay::state_file::marks::SlotSession;
use crate::relay::surroundings::Facts;
use crate::relay::testing::MemoryFile;
use crate::sink::{PublishError, Sink, SinkReport};
use crate::source::server::ServerError;
use crate::testing::{self, lsn};

const DAY_US: i64 = 24 * 3600 * 1_000_000;
/// The columns that an outbox needs.
const NEEDED: [&str; 4] = ["id", "aggregatetype", "aggregateid", "payload"];
const FIRST: Position = Position { commit_lsn: Lsn::from_wire(100), ordinal: 0 };

struct Still;

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment { instant: Instant::now(), unix_us: DAY_US }
    }

    fn sleep(&self, _: Duration) {}
}

/// Takes every event, and notes its id.
#[derive(Default)]
struct Taken {
    ids: Vec<String>,
    /// Finds the records of the events.
    reader: Option<ReadRequest>,
}

impl Sink for Taken {
    fn publish(&mut self, _: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        self.ids.push(event.id.to_owned());
        self.reader.iter_mut().for_each(|reader| assert!(reader.take(event)));
        Ok(())
    }

    fn poll(&mut self, _: Instant, _: Duration, _: &mut Vec<SinkReport>) {}

    fn retry(&mut self, _: Sequence) {}

    fn replace_with_dead_letter(&mut self, _: Sequence, _: &DeadLetterWriter, _: &DeadLetterCause) {
    }
}

/// A relay that reads a slot with an outbox table and messages.
struct Scene {
    replication: Replication,
    admitter: Admitter,
    policy: FailurePolicy,
    sink: Taken,
    meter: Arc<Mutex<Facts>>,
}

fn scene(state_file: StateFile, on_dead_letter: OnDeadLetter) -> Scene {
    let route = Route { topic: Template::parse("orders").unwrap(), ..Route::default() };
    let messages = Messages { prefix: "outbox".to_owned(), columns: Columns::default(), route };
    let source = SourceSettings {
        outboxes: vec![OutboxTable::default()],
        messages: Some(messages),
        ..SourceSettings::default()
    };
    let (delivery, signature) = (DeliverySettings::default(), Signature::default());
    let replication = Replication::new(&source, &delivery, signature).unwrap();
    let mut admitter = Admitter::new(state_file, ReadBack::default(), &source, String::new());
    let session =
        SlotSession { confirmed: lsn(50), run: Some(1), peer_seen: true, unix_us: DAY_US };
    admitter.take_over(("1", 1), "slot", 0, session);
    let (policy, _) = policy_with(on_dead_letter, false);
    Scene { replication, admitter, policy, sink: Taken::default(), meter: Arc::default() }
}

/// A process without a state file.
fn plain() -> Scene {
    scene(StateFile::default(), OnDeadLetter::Continue)
}

/// The next process of a machine.
fn next(file: &MemoryFile) -> Scene {
    scene(file.open(), OnDeadLetter::Continue)
}

/// A transaction whose commit record begins there.
fn begin(at: u64) -> Message<'static> {
    Message::Begin { final_lsn: lsn(at), commit_ts: 50_000_000, xid: at as u32 }
}

fn commit(at: u64) -> Message<'static> {
    Message::Commit { commit_lsn: lsn(at), end_lsn: lsn(at + 48), commit_ts: 50_000_000 }
}

/// A table with columns of text.
fn described(oid: u32, name: &str, columns: &[&str]) -> Relation {
    let column = |name: &&str| Column { name: (*name).to_owned(), type_oid: 25 };
    let columns = columns.iter().map(column).collect();
    Relation { oid, namespace: "public".to_owned(), name: name.to_owned(), columns }
}

/// A catalog that knows the table as a partition of the outbox.
fn with_partition(xid: u32, oid: u32, name: &str) -> Catalog {
    let mut catalog = Catalog::read_before(xid, vec![oid]);
    catalog.outboxes.push((oid, "public".to_owned(), name.to_owned(), 0));
    catalog
}

fn keepalive(wal_end: u64, reply_requested: bool) -> Packet<'static> {
    Packet::Frame(Frame::Keepalive { wal_end: lsn(wal_end), reply_requested })
}

/// Lets something happen to what the relay knows.
type Act = fn(&mut Scene);

impl Scene {
    fn admit<T>(&mut self, then: impl FnOnce(&mut Replication, &mut Admission<'_>) -> T) -> T {
        let Scene { replication, admitter, policy, sink, meter } = self;
        then(replication, &mut Admission { admitter, policy, sink, meter, clock: &Still })
    }

    fn give(&mut self, message: Message<'_>) -> Result<PacketOutcome, Fault> {
        self.admit(|replication, admission| replication.message(message, admission))
    }

    fn take(&mut self, packet: Packet<'_>) -> Result<PacketOutcome, Fault> {
        self.admit(|replication, admission| replication.take(packet, admission))
    }

    fn learn(&mut self, table: &Relation) -> PacketOutcome {
        self.give(Message::Relation(table.clone())).unwrap()
    }

    fn row(&mut self, oid: u32) -> Result<PacketOutcome, Fault> {
        let row = insert(oid, &["e1", "t", "k", "{}"].map(|text| Form::Text(text.into())));
        self.give(Message::parse(&row).unwrap())
    }

    /// An event of the open transaction, as a message. Its id is its key.
    fn event(&mut self, id: &str) -> Result<PacketOutcome, Fault> {
        let content = format!(r#"{{"id": {id:?}, "aggregateid": {id:?}, "payload": {{}}}}"#);
        self.give(Message::Logical {
            transactional: true,
            lsn: Lsn::ZERO,
            prefix: "outbox".into(),
            content: content.as_bytes(),
        })
    }

    #[track_caller]
    fn transaction(&mut self, at: u64, ids: &[&str]) {
        assert_eq!(self.give(begin(at)), Ok(PacketOutcome::Done));
        for id in ids {
            assert_eq!(self.event(id), Ok(PacketOutcome::Done));
        }
        assert_eq!(self.give(commit(at)), Ok(PacketOutcome::Done));
    }

    /// The broker has confirmed the event, and that is marked.
    fn confirm(&mut self, event: Sequence) {
        let flight = self.replication.settle(event).unwrap();
        let marks = &mut self.admitter.state_file.marks;
        flight.mark().into_iter().for_each(|mark| marks.push(mark));
        marks.write();
    }

    /// The position that is reported now.
    fn report(&mut self) -> u64 {
        let position = self.replication.reportable();
        self.replication.progress.on_reported(position);
        position.to_wire()
    }

    /// There is a new session, in which all is sent again.
    fn connect(&mut self, catalog: Catalog) {
        self.replication.transactions.interrupt();
        self.replication.connected(true, catalog, Lsn::ZERO);
    }

    /// There is a new sink, and with it a new session.
    fn rewind(&mut self) {
        self.replication.transactions.interrupt();
        self.replication.rewind(&mut self.policy);
        self.connect(Catalog::default());
    }

    fn take_over(&mut self) {
        self.replication.taken_over(lsn(50), &mut self.admitter, &mut self.policy);
    }

    fn forget(&mut self) {
        self.replication.forget(&mut self.admitter, &mut self.policy);
    }
}

/// The file of a process that has published an event and marked it.
fn left_by_first(ids: &[&str], confirmed: Sequence) -> MemoryFile {
    let file = MemoryFile::default();
    let mut first = next(&file);
    first.transaction(100, ids);
    first.confirm(confirmed);
    file
}

#[test]
fn a_signature_is_another_one_than_that_on_which_the_slot_stands() {
    let mut scene = plain();
    let drawn = Signature::drawn(0);
    scene.replication.signature = drawn;
    scene.replication.sign_unlike([lsn(32 + 2), Lsn::ZERO]);
    assert_eq!(scene.replication.signature(), drawn);
    scene.replication.sign_unlike([lsn(32 + 1), Lsn::ZERO]);
    assert_ne!(scene.replication.signature(), drawn);
}

#[test]
fn a_trace_is_left_again_where_the_slot_stands_at_no_position_of_this_process() {
    for (slot_confirmed, is_left) in [
        // Its last report, and an earlier one by its signature.
        (200, false),
        (160 + 1, false),
        (168, true),
        // The signature of an earlier process, before where this one has found the slot.
        (64 + 1, true),
    ] {
        let mut scene = plain();
        scene.replication.signature = Signature::drawn(0);
        scene.replication.progress.on_reported(lsn(200));
        scene.replication.trace_again(lsn(96), lsn(slot_confirmed));
        let expected = is_left.then_some(Lsn::ZERO);
        assert_eq!(scene.replication.untraced, expected, "{slot_confirmed}");
    }
}

#[test]
fn where_no_trace_fits_a_transaction_waits_and_no_mark_counts_beside_a_peer() {
    let mut scene = next(&left_by_first(&["e1"], 0));
    scene.replication.progress.on_reported(lsn(100));
    scene.replication.untraced = Some(lsn(100));
    assert!(scene.admitter.earlier.is_active());
    // The commit record begins where the slot stands.
    for _ in 0..2 {
        assert_eq!(scene.give(begin(100)), Ok(PacketOutcome::NoTraceFits));
    }
    assert!(!scene.admitter.earlier.is_active());
    assert_eq!(scene.give(begin(108)), Ok(PacketOutcome::TraceDue(lsn(101))));
    assert_eq!(scene.give(begin(108)), Ok(PacketOutcome::Done));
}

#[test]
fn a_column_that_has_no_binary_form_is_read_from_a_stream_in_text_mode() {
    let mut scene = plain();
    let mut table = described(7, "outbox", &NEEDED);
    table.columns[0].type_oid = 16385;
    assert_eq!(scene.learn(&table), PacketOutcome::Stopped(IntakeStop::TextModeNeeded));
    scene.replication.connected(false, Catalog::default(), Lsn::ZERO);
    assert_eq!(scene.learn(&table), PacketOutcome::Done);
}

#[test]
fn a_table_like_an_outbox_is_looked_up_unless_the_catalog_was_read_for_it_or_behind_its_rows() {
    let looked_up = PacketOutcome::Stopped(IntakeStop::CatalogNeeded);
    let [part, other] = [(7, "part"), (8, "other")].map(|it| described(it.0, it.1, &NEEDED));
    let mut scene = plain();
    scene.connect(Catalog::read_before(50, vec![7, 8]));
    scene.give(begin(100)).unwrap();
    assert_eq!(scene.learn(&part), looked_up);
    assert_eq!(scene.learn(&described(9, "unlike", &NEEDED[1..])), PacketOutcome::Done);
    // WHEN the catalog has it as a partition THEN its rows are events
    scene.replication.refresh(with_partition(60, 7, "part"));
    assert_eq!(scene.learn(&part), PacketOutcome::Done);
    assert_eq!(scene.row(7), Ok(PacketOutcome::Done));
    // WHEN another one comes THEN it is looked up in its turn, and is none
    assert_eq!(scene.learn(&other), looked_up);
    scene.replication.refresh(Catalog::read_before(60, vec![7, 8]));
    assert_eq!(scene.learn(&other), PacketOutcome::Done);
    assert_eq!(scene.row(8), Ok(PacketOutcome::Done));
    assert_eq!(scene.sink.ids, ["e1"]);
    // WHEN there is a new session THEN every table is described again, and its catalog is newer
    scene.connect(Catalog::read_before(101, Vec::new()));
    scene.give(begin(100)).unwrap();
    assert_eq!(scene.row(7).unwrap_err().code, "source.protocol");
    assert_eq!(scene.learn(&other), PacketOutcome::Done);
}

#[test]
fn a_table_that_has_become_an_outbox_takes_no_place_of_an_event_of_what_is_remembered() {
    let remembered = PacketOutcome::Stopped(IntakeStop::OtherEvent);
    let cases: [(Act, PacketOutcome); 3] = [
        (|_| {}, remembered),
        (Scene::take_over, PacketOutcome::Done),
        (Scene::forget, PacketOutcome::Done),
    ];
    let part = described(7, "part", &NEEDED);
    for (forget, outcome) in cases {
        // GIVEN a table whose rows were no events, and an event in flight of a sink that is gone
        let mut scene = plain();
        scene.connect(Catalog::read_before(101, Vec::new()));
        scene.give(begin(100)).unwrap();
        assert_eq!(scene.learn(&part), PacketOutcome::Done);
        scene.replication.transactions.interrupt();
        forget(&mut scene);
        scene.give(begin(100)).unwrap();
        assert_eq!(scene.event("e1"), Ok(PacketOutcome::Done));
        scene.rewind();
        // WHEN the table is a partition now
        scene.connect(with_partition(102, 7, "part"));
        scene.give(begin(100)).unwrap();
        assert_eq!(scene.learn(&part), outcome);
    }
}

#[test]
fn what_earlier_processes_knew_is_forgotten_behind_a_peer_and_on_another_timeline() {
    let cases: [(Act, bool); 2] = [(Scene::take_over, false), (Scene::forget, true)];
    for (forget, is_other_timeline) in cases {
        // GIVEN a marked event, and a claim about its transaction
        let mut scene = next(&left_by_first(&["e1"], 0));
        let claim = ConfirmedPrefix { commit_lsn: lsn(100), events: 1, digest: 0 };
        scene.replication.prefixes.claim(claim);
        scene.policy.suspects.insert(FIRST);
        forget(&mut scene);
        // THEN it is published again, and the claim refutes nothing
        scene.transaction(100, &["e1"]);
        assert_eq!(scene.sink.ids, ["e1"]);
        // Two relays would take turns to find the same suspects.
        assert_eq!(scene.policy.suspects.is_empty(), is_other_timeline);
    }
}

#[test]
fn a_new_sink_changes_nothing_of_what_is_settled_and_no_event_waits_for_another_attempt() {
    let mut scene = plain();
    scene.transaction(100, &["e1"]);
    scene.transaction(200, &["e2"]);
    scene.confirm(0);
    let (now, hour) = (Instant::now(), Duration::from_secs(3600));
    scene.policy.retries.wait(1, Attempts::none(0).failed(), now);
    scene.replication.rewind(&mut scene.policy);
    assert_eq!(scene.report(), 148);
    assert_eq!(scene.policy.retries.take_due(now + hour, 2, true), None);
}

#[test]
fn a_dead_letter_of_an_earlier_timeline_parks_its_key_only_as_long_as_its_sink() {
    let mut scene = scene(StateFile::default(), OnDeadLetter::ParkKey);
    let event = Outbound { topic: "orders", key: Some(b"k1"), id: "e1", ..Outbound::default() };
    let cause = DeadLetterCause { position: FIRST, parks_key: true, ..testing::cause("no") };
    let state = scene.policy.dead_lettered(None, &event, cause, None);
    scene.replication.flights.admit(Flight { position: FIRST, ..flight(state) });
    scene.forget();
    assert!(!scene.policy.gate.is_open_to(&event));
    scene.rewind();
    assert!(scene.policy.gate.is_open_to(&event));
}

#[test]
fn a_known_event_keeps_its_place_between_others_and_is_not_marked_again() {
    let events = ["e1", "e2", "e3"];
    let mut scene = next(&left_by_first(&events, 1));
    scene.transaction(100, &events);
    assert_eq!(scene.sink.ids, ["e1", "e3"]);
    assert_eq!(scene.meter.lock().unwrap().known, [KnownFrom::StateFile]);
    assert!(!scene.admitter.state_file.marks.has_unwritten());
    // WHEN all of it is received once more for a new sink
    scene.rewind();
    scene.transaction(100, &events);
    assert_eq!(scene.sink.ids, ["e1", "e3", "e1", "e3"]);
    // WHEN a later transaction begins THEN nothing more is known
    assert!(scene.admitter.earlier.is_active());
    scene.transaction(200, &["e4"]);
    assert!(!scene.admitter.earlier.is_active());
}

#[test]
fn an_event_that_only_its_topic_holds_is_marked_for_a_process_that_does_not_read_it() {
    let mut scene = next(&MemoryFile::default());
    let (topics, end) = started();
    scene.admitter.earlier.topics = topics;
    scene.give(begin(150)).unwrap();
    let unread = PacketOutcome::Stopped(IntakeStop::Held(IntakeHold::TopicUnread));
    assert_eq!(scene.event("e1"), Ok(unread));
    // GIVEN the record of another process
    let end = end.lock().unwrap();
    let end = end.as_ref().unwrap();
    let mut other = plain();
    other.sink.reader = Some(end.requests.try_recv().unwrap());
    other.transaction(150, &["e1"]);
    let records = other.sink.reader.take().unwrap().stored;
    end.answers.send(Ok(FoundRecords { records, whole: true })).unwrap();
    assert!(!scene.admitter.earlier.topics.is_reading());
    assert_eq!(scene.event("e1"), Ok(PacketOutcome::Done));
    assert!(scene.sink.ids.is_empty());
    assert_eq!(scene.meter.lock().unwrap().known, [KnownFrom::Topic]);
    assert!(scene.admitter.state_file.marks.has_unwritten());
}

#[test]
fn the_position_of_a_keepalive_is_reported_unless_a_transaction_is_open() {
    let mut scene = plain();
    assert_eq!(scene.take(keepalive(80, false)), Ok(PacketOutcome::Done));
    assert_eq!(scene.report(), 80);
    assert_eq!(scene.take(keepalive(80, true)), Ok(PacketOutcome::ReplyRequested));
    scene.give(begin(100)).unwrap();
    assert_eq!(scene.replication.status().received_lsn, lsn(100));
    // It may be behind events that are yet to come.
    scene.take(keepalive(120, false)).unwrap();
    scene.event("e1").unwrap();
    scene.give(commit(100)).unwrap();
    assert_eq!((scene.replication.status().sent_lsn, scene.report()), (lsn(148), 80));
    // WHEN the event is confirmed THEN no further keepalive is needed
    scene.confirm(0);
    assert_eq!(scene.report(), 148);
}

#[test]
fn wal_that_comes_is_received_and_a_warning_behind_it_is_a_new_one() {
    let mut scene = plain();
    let warning = ServerError { message: "slow".to_owned(), ..ServerError::default() };
    scene.take(Packet::Notice(Box::new(warning))).unwrap();
    assert_eq!(scene.replication.last_notice, "slow");
    let body = &Encoder::tag(b'O').u64(100).cstr("origin").0;
    scene.take(Packet::Frame(Frame::XLogData { wal_end: lsn(300), body })).unwrap();
    assert_eq!(scene.replication.last_notice, "");
    assert_eq!(scene.replication.status().received_lsn, lsn(300));
}

#[test]
fn a_relay_that_stops_reads_the_open_transaction_to_its_end_and_what_is_settled_once_more() {
    let mut scene = plain();
    assert!(!scene.replication.is_incomplete());
    scene.give(begin(100)).unwrap();
    assert!(scene.replication.is_incomplete());
    scene.event("e1").unwrap();
    scene.give(commit(100)).unwrap();
    assert!(!scene.replication.is_incomplete());
    // WHEN it comes again in a new session
    scene.connect(Catalog::default());
    scene.give(begin(100)).unwrap();
    assert!(scene.replication.is_incomplete());
    scene.connect(Catalog::default());
    assert!(!scene.replication.is_incomplete());
    // WHEN it is settled and was not sent again THEN it cannot be reported yet
    scene.confirm(0);
    assert_eq!(scene.report(), 0);
    assert!(scene.replication.is_incomplete());
    scene.transaction(100, &["e1"]);
    assert_eq!((scene.report(), scene.replication.is_incomplete()), (148, false));
}

#[test]
fn an_event_that_has_left_its_transaction_leaves_its_place_to_no_other() {
    let mut scene = plain();
    scene.transaction(100, &["e1", "e2"]);
    scene.confirm(1);
    scene.rewind();
    // WHEN it comes again without its first event
    scene.give(begin(100)).unwrap();
    assert_eq!(scene.event("e2"), Ok(PacketOutcome::Done));
    let outcome = PacketOutcome::Stopped(IntakeStop::OtherEvent);
    assert_eq!(scene.give(commit(100)), Ok(outcome));
}

#[test]
fn changes_that_are_no_events_are_counted_by_their_kinds() {
    use Ignored::{Delete, Message as OtherMessage, OtherTable, Truncate, Update};
    let mut scene = plain();
    scene.give(begin(100)).unwrap();
    scene.learn(&described(7, "outbox", &NEEDED));
    scene.learn(&described(8, "other", &NEEDED[1..]));
    let (prefix, content) = ("other".into(), &b""[..]);
    for message in [
        Message::Update { relation: 7 },
        Message::Delete { relation: 7 },
        Message::Truncate { relations: vec![7, 8] },
        Message::Logical { transactional: true, lsn: Lsn::ZERO, prefix, content },
    ] {
        assert_eq!(scene.give(message), Ok(PacketOutcome::Done));
    }
    assert_eq!(scene.row(8), Ok(PacketOutcome::Done));
    let counted = [Update, Delete, Truncate, OtherTable, OtherMessage, OtherTable];
    assert_eq!(scene.meter.lock().unwrap().ignored, counted);
}

#[test]
fn a_transaction_of_a_time_to_come_shows_no_other_history() {
    // The transactions of the tests are of 50 s.
    for (looked_us, code) in [(45_000_000, None), (60_000_000, Some("slot.went-back"))] {
        let mut scene = plain();
        // GIVEN that all before a position was committed until 40 s
        scene.replication.start_at(lsn(100), lsn(200), 40_000_000, looked_us, Lsn::ZERO);
        scene.give(begin(150)).unwrap();
        assert_eq!(scene.event("e1").err().map(|fault| fault.code), code, "{looked_us}");
    }
}
