use std::time::{Duration, Instant};

use super::*;
use crate::base::clock::Moment;
use crate::base::error::Exit;
use crate::base::stop::RESUME;
use crate::dead_letter::owner::LetterOwner;
use crate::dead_letter::topic_stops::TopicStops;
use crate::doctor::fingerprint::{Comparison, PublicationFingerprint, PublicationLook};
use crate::relay::feed::slot::not_the_last;
use crate::relay::testing::MemoryFile;
use crate::source::publication::{PublicationFacts, PublishedFacts};

#[path = "stops_resumed_tests.rs"]
mod resumed;

/// A machine: its state file, and the dead-letter topic, both in memory.
#[derive(Clone, Default)]
pub(in crate::relay) struct Site {
    file: MemoryFile,
    topic: Arc<Mutex<Topic>>,
    has_topic: bool,
    slot: String,
}

#[derive(Debug, Default)]
struct Topic {
    records: Vec<StopRecord>,
    is_down: bool,
}

struct Still(Instant);

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment { instant: self.0, unix_us: 5 }
    }

    fn sleep(&self, _length: Duration) {}
}

impl StopSurroundings for Site {
    fn has_topic(&self) -> bool {
        self.has_topic
    }

    fn append(&self, record: &StopRecord) -> Result<(), Fault> {
        let mut topic = self.topic.lock().unwrap();
        if topic.is_down {
            return Err(Fault::new(Exit::Sink, "sink.unreachable", "it is down", "", ""));
        }
        topic.records.push(record.clone());
        Ok(())
    }

    fn present(&self) -> Result<Present, Fault> {
        let look = look(300);
        let digest = look.found.digest();
        let (system_id, wal_end) = (look.system_id.clone(), look.wal_end);
        let publication = KeptPublication::of(&look, &self.source());
        Ok(Present { publication, digest, system_id, timeline: 2, wal_end })
    }
}

impl Site {
    pub(in crate::relay) fn new() -> Site {
        Site { slot: "slot".to_owned(), ..Site::default() }
    }

    fn source(&self) -> SourceSettings {
        SourceSettings { slot: self.slot.clone(), ..SourceSettings::default() }
    }

    /// The stops that the next process finds in its file.
    fn process(&self, has_file: bool, has_topic: bool) -> Arc<StandingStops> {
        Arc::new(self.stops(has_file, has_topic, false))
    }

    pub(in crate::relay) fn stops(
        &self,
        has_file: bool,
        has_topic: bool,
        is_polling: bool,
    ) -> StandingStops {
        let path = PathBuf::from("slot.state");
        let memory = has_file.then(|| Memory::read(self.file.bytes(), path));
        let parts = StopParts {
            source: self.source(),
            is_polling,
            system: SystemId::default(),
            relay: "slot@host".to_owned(),
            missing_file: None,
            surroundings: Box::new(Site { has_topic, ..self.clone() }),
            clock: Arc::new(Still(Instant::now())),
        };
        StandingStops::new(parts, memory)
    }

    /// The stops of this system that a process finds in the topic.
    fn find(&self, stops: &StandingStops, system: Option<&str>) -> TopicStops {
        let owner = LetterOwner::new(&self.slot, system);
        let mut found = TopicStops::default();
        for record in &self.topic.lock().unwrap().records {
            if owner.has_stopped(&record.body) {
                found.apply(record);
            }
        }
        if let Some(stop) = found.standing.first() {
            stops.found_in_topic(stop.clone());
        }
        found
    }

    fn set_down(&self, is_down: bool) {
        self.topic.lock().unwrap().is_down = is_down;
    }
}

pub(in crate::relay) fn look(wal_end: u64) -> PublicationLook {
    let publication = PublicationFacts {
        all_tables: true,
        insert: true,
        update: true,
        delete: true,
        truncate: true,
        via_root: true,
        owner: "walrelay".to_owned(),
        tables: Vec::new(),
        renamed: Vec::new(),
        excepted: Vec::new(),
        others: Vec::new(),
        rows: Vec::new(),
    };
    let published = PublishedFacts { publication: Some(publication), tables: Vec::new() };
    PublicationLook {
        system_id: "7".to_owned(),
        wal_end: Lsn::from_wire(wal_end),
        found: PublicationFingerprint::new(published, 17),
    }
}

fn at(system: &str, timeline: u32) -> SystemTimeline {
    SystemTimeline { system_id: system.to_owned(), timeline }
}

fn breaker() -> Fault {
    Fault::new(Exit::Halted, BREAKER_OPEN, "too many", "", RESUME).standing(Lsn::ZERO, Lsn::ZERO)
}

fn moved() -> Fault {
    Fault::new(Exit::Slot, "slot.moved", "it was moved", "", RESUME).standing(Lsn::ZERO, Lsn::ZERO)
}

fn missing() -> Fault {
    Fault::new(Exit::Slot, "slot.missing", "it is not there", "", "make it")
}

#[test]
fn a_stop_is_kept_in_the_file_or_else_in_the_topic_and_the_breaker_in_the_topic() {
    for (has_file, has_topic, fault, place) in [
        (true, true, moved(), Some(Place::StateFile)),
        (false, true, moved(), Some(Place::Topic)),
        (true, false, moved(), Some(Place::StateFile)),
        (true, true, breaker(), Some(Place::Topic)),
        (true, false, breaker(), Some(Place::StateFile)),
        (false, false, moved(), None),
    ] {
        let name = format!("{}-{has_file}-{has_topic}", fault.code);
        let site = Site::new();
        let first = site.process(has_file, has_topic);
        assert_eq!(first.fault(), None);
        first.keep(&fault);
        // WHEN the next process begins THEN it finds it
        let next = site.process(has_file, has_topic);
        let found = site.find(&next, None);
        let (code, kept) = next.standing().map(|(stop, place)| (stop.code, place)).unzip();
        assert_eq!(kept, place, "{name}");
        assert_eq!(code.as_deref(), place.map(|_| fault.code), "{name}");
        assert_eq!(found.standing.len(), usize::from(place == Some(Place::Topic)), "{name}");
        assert_eq!(next.fault().map(|fault| fault.exit), place.map(|_| fault.exit));
    }
}

#[test]
fn a_stop_that_belongs_to_the_file_is_there_before_the_relay_has_drained() {
    let file = Some(Place::StateFile);
    for (fault, has_file, early, late) in [
        (moved(), true, file, file),
        (moved(), false, None, Some(Place::Topic)),
        (breaker(), true, None, Some(Place::Topic)),
    ] {
        let site = Site::new();
        let first = site.process(has_file, true);
        first.keep_early(&fault);
        // WHEN the process is killed before it has drained THEN the next one finds it
        let killed = site.process(has_file, true);
        assert_eq!(killed.standing().map(|(_, place)| place), early);
        drop(killed);
        // AND nobody acknowledges it before the relay has ended
        assert_eq!(first.resume("alice@host", "", None).unwrap_err().code, "resume.nothing");
        first.keep(&fault);
        let next = site.process(has_file, true);
        site.find(&next, None);
        assert_eq!(next.standing().map(|(_, place)| place), late);
    }
}

#[test]
fn where_one_place_cannot_be_written_the_stop_is_kept_in_the_other() {
    for (fault, full, down, place) in [
        (moved(), true, false, Some(Place::Topic)),
        (breaker(), false, true, Some(Place::StateFile)),
        (moved(), true, true, None),
        (breaker(), true, true, None),
    ] {
        let site = Site::new();
        let stops = site.process(true, true);
        site.file.set_full(full);
        site.set_down(down);
        stops.keep(&fault);
        assert_eq!(stops.standing().map(|(_, place)| place), place, "{} {full} {down}", fault.code);
    }
}

#[test]
fn the_breaker_is_kept_in_the_file_if_the_topic_cannot_be_read() {
    for (has_file, place) in [(true, Place::StateFile), (false, Place::Topic)] {
        let site = Site::new();
        let stops = site.process(has_file, true);
        stops.topic_is_readable(false);
        stops.keep(&breaker());
        assert_eq!(stops.standing().map(|(_, place)| place), Some(place));
        // THEN the next process finds that of the file, although it cannot read the topic either
        let next = site.process(has_file, true);
        assert_eq!(next.fault().is_some(), has_file);
    }
}

#[test]
fn a_stop_is_kept_once() {
    let site = Site::new();
    site.process(false, true).keep(&breaker());
    let next = site.process(false, true);
    site.find(&next, None);
    // WHEN the next process ends because of it
    next.keep(&next.fault().unwrap());
    // THEN the topic has one record of it
    assert_eq!(site.topic.lock().unwrap().records.len(), 1);
}

#[test]
fn a_fault_that_protects_no_data_is_not_kept() {
    let site = Site::new();
    site.process(true, true).keep(&missing());
    assert_eq!(site.process(true, true).standing(), None);
    let command = site.process(true, true);
    command.found_gap(&missing());
    assert_eq!(command.standing(), None);
}

#[test]
fn an_acknowledged_breaker_stops_nobody_and_nothing_is_left_to_acknowledge() {
    for (has_file, has_topic) in [(false, true), (true, false)] {
        let site = Site::new();
        site.process(has_file, has_topic).keep(&breaker());
        let command = site.process(has_file, has_topic);
        site.find(&command, None);
        assert_eq!(
            command.resume("alice@host", "all of it is poison", None).unwrap().code,
            BREAKER_OPEN
        );
        let next = site.process(has_file, has_topic);
        site.find(&next, None);
        assert_eq!(next.standing(), None);
        assert_eq!(next.resume("alice@host", "", None).unwrap_err().code, "resume.nothing");
    }
}

#[test]
fn an_acknowledged_gap_is_compared_with_what_postgres_says_now() {
    let site = Site::new();
    let stops = site.process(true, true);
    stops.keep(&moved());
    stops.resume("alice@host", "compared", None).unwrap();
    // THEN the next process knows the publication, the system and the end of the WAL of that moment
    let next = site.process(true, true);
    let last = Some((at("7", 2), Lsn::from_wire(300)));
    assert_eq!((next.standing(), next.last_place()), (None, last.clone()));
    assert_eq!(stops.last_place(), last);
    let known = next.known_publication();
    assert!(matches!(known.compare(look(400), &site.source(), true), Comparison::InOrder));
    // WHEN the topic keeps the stop THEN it has the publication that was acknowledged
    let gap = site.process(false, true);
    gap.found_gap(&moved());
    assert_eq!(gap.standing().map(|(_, place)| place), Some(Place::Topic));
    gap.resume("alice@host", "compared", None).unwrap();
    let found = site.find(&site.process(false, true), None);
    assert_eq!(found.publication, Some(look(0).found.digest()));
}

#[test]
fn an_acknowledged_restore_is_counted_for_the_next_process_and_for_one_that_waits() {
    let site = Site::new();
    let stops = site.process(true, true);
    for fault in [moved(), faults::earlier_timeline(&site.source(), 2, 1)] {
        stops.keep(&fault);
        stops.resume("alice@host", "compared", None).unwrap();
        let counted = (stops.restores(), site.process(true, true).restores());
        assert_eq!(counted, (0, 0), "not restored: {}", fault.code);
    }
    let [slot, found, seen] = [100, 200, 300].map(Lsn::from_wire);
    let went_back = faults::went_back(&site.source(), seen, found, slot);
    stops.keep(&went_back);
    stops.note_halt(&went_back);
    assert_eq!(site.process(true, true).restores(), 0, "not acknowledged");
    site.process(true, true).resume("alice@host", "compared", None).unwrap();
    assert!(stops.may_go_on());
    assert_eq!((stops.restores(), site.process(true, true).restores()), (1, 1));
}

#[test]
fn an_acknowledgement_that_cannot_be_written_leaves_the_stop() {
    for (has_file, code) in [(true, "resume.unwritten"), (false, "sink.unreachable")] {
        let site = Site::new();
        let stops = site.process(has_file, true);
        stops.keep(&moved());
        site.file.set_full(true);
        site.set_down(true);
        assert_eq!(stops.resume("alice@host", "", None).unwrap_err().code, code);
        assert!(stops.standing().is_some());
    }
}

#[test]
fn a_process_that_waits_goes_on_when_it_is_resumed_or_its_file_says_so() {
    let site = Site::new();
    // GIVEN one that waits because of a fault that nothing keeps
    let stops = site.process(true, false);
    assert_eq!(stops.note_halt(&missing()).code, "slot.missing");
    assert!(!stops.may_go_on());
    assert_eq!(stops.resume("token@host", "", None).unwrap().code, "slot.missing");
    assert!(stops.may_go_on());
    assert!(!stops.may_go_on(), "once");
    // GIVEN one that waits because of a stop in the file WHEN a command acknowledges it
    stops.keep(&breaker());
    stops.note_halt(&breaker());
    assert!(!stops.may_go_on());
    site.process(true, false).resume("alice@host", "", None).unwrap();
    assert!(stops.may_go_on());
    assert_eq!(stops.fault(), None);
}

#[test]
fn a_stop_that_is_kept_while_a_command_looks_is_not_acknowledged_unseen() {
    let site = Site::new();
    // GIVEN a command that has looked at the file, and found what would stop the next start
    let (relay, command) = (site.process(true, false), site.process(true, false));
    command.found_gap(&Fault { code: "publication.recreated", ..moved() });
    // WHEN the relay stops for another reason, and waits
    relay.keep(&moved());
    relay.note_halt(&moved());
    // THEN the command says so, and the relay still waits
    assert_eq!(command.resume("alice@host", "", None).unwrap_err().code, "resume.changed");
    assert_eq!(command.fault().unwrap().code, "slot.moved");
    assert!(!relay.may_go_on());
    assert_eq!(site.process(true, false).fault().unwrap().code, "slot.moved");
    // WHEN it acknowledges that THEN the relay goes on
    command.resume("alice@host", "", None).unwrap();
    assert!(relay.may_go_on());
}

#[test]
fn another_stop_than_was_shown_is_not_acknowledged() {
    let site = Site::new();
    let relay = site.process(true, false);
    let shown = relay.note_halt(&missing());
    relay.resume("bob@host", "", Some(&shown)).unwrap();
    assert!(relay.may_go_on());
    relay.keep(&moved());
    relay.note_halt(&moved());
    let refused = relay.resume("alice@host", "", Some(&shown)).unwrap_err();
    assert_eq!(refused.code, "resume.changed");
    assert!(!relay.may_go_on());
    assert_eq!(site.process(true, false).fault().unwrap().code, "slot.moved");
}

#[test]
fn what_is_seen_between_two_sessions_does_not_replace_what_was_seen_before() {
    let (site, place) = (Site::new(), at("7", 1));
    let relay = site.process(true, false);
    let saw = |lsn| Remembering(Arc::clone(&relay)).saw(Lsn::from_wire(lsn));
    let last = || site.process(true, false).last_place();
    relay.note_reading(&place);
    saw(900);
    relay.note_session_end();
    saw(50);
    assert_eq!(last(), Some((place.clone(), Lsn::from_wire(900))));
    relay.note_reading(&place);
    assert_eq!(last(), Some((place, Lsn::from_wire(50))));
}

#[test]
fn a_relay_that_has_not_seen_a_stop_does_not_take_it_away() {
    let site = Site::new();
    let (first, second) = (site.process(true, false), site.process(true, false));
    first.keep(&moved());
    first.note_halt(&moved());
    second.note_reading(&at("7", 2));
    assert!(!first.may_go_on());
    assert_eq!(site.process(true, false).fault().unwrap().code, "slot.moved");
    // AND a relay of another slot cannot write over it
    let other = Site { slot: "another".to_owned(), ..site.clone() };
    other.process(true, false).note_reading(&at("7", 1));
    assert!(!first.may_go_on());
}

#[test]
fn a_stop_that_was_found_is_not_acknowledged_before_the_relay_has_ended() {
    let site = Site::new();
    let relay = site.process(true, true);
    relay.keep(&moved());
    let next = site.process(true, true);
    let fault = next.fault().unwrap();
    next.keep_early(&fault);
    assert_eq!(next.resume("token@host", "", None).unwrap_err().code, "resume.nothing");
    next.keep(&fault);
    assert_eq!(next.resume("token@host", "", None).unwrap().code, "slot.moved");
}

#[test]
fn a_stop_of_another_process_that_was_acknowledged_does_not_come_back() {
    let site = Site::new();
    let (first, second) = (site.process(true, false), site.process(true, false));
    first.keep(&moved());
    second.note_reading(&at("7", 2));
    site.process(true, false).resume("alice@host", "", None).unwrap();
    second.note_reading(&at("7", 3));
    assert_eq!(site.process(true, false).standing(), None);
}

#[test]
fn a_relay_that_waits_stops_with_what_another_process_has_kept_meanwhile() {
    let site = Site::new();
    // GIVEN one that waits because of a stop in the topic
    let relay = site.process(true, true);
    relay.keep(&breaker());
    let shown = relay.note_halt(&breaker());
    // WHEN another process keeps one in the file
    site.process(true, false).keep(&moved());
    let refused = relay.resume("alice@host", "", Some(&shown)).unwrap_err();
    assert_eq!(refused.code, "resume.changed");
    // THEN the relay begins anew with that one
    assert!(relay.may_go_on());
    assert_eq!(relay.fault().unwrap().code, "slot.moved");
}

#[test]
fn a_stop_that_two_commands_acknowledge_counts_once() {
    let site = Site::new();
    let went_back = Fault { code: WENT_BACK, ..moved() };
    let relay = site.process(true, false);
    relay.keep(&went_back);
    relay.note_halt(&went_back);
    let (first, second) = (site.process(true, false), site.process(true, false));
    for command in [first, second] {
        assert_eq!(command.resume("alice@host", "", None).unwrap().code, WENT_BACK);
        assert_eq!(command.fault(), None);
    }
    assert!(relay.may_go_on());
    assert_eq!(site.process(true, false).state().remembered.restores, 1);
}

#[test]
fn what_the_file_holds_of_another_slot_is_ignored() {
    let mut site = Site::new();
    site.process(true, false).keep(&moved());
    site.slot = "another".to_owned();
    assert_eq!(site.process(true, false).standing(), None);
}

#[test]
fn the_first_event_waits_for_the_topic_while_a_stop_would_be_there() {
    for (has_file, has_topic, place) in [
        (true, true, Place::StateFile),
        (false, true, Place::Topic),
        (false, false, Place::Nowhere),
    ] {
        let stops = Site::new().process(has_file, has_topic);
        assert_eq!(stops.place_of_gaps(), place);
        assert_eq!(stops.waits_for_topic(), place == Place::Topic);
        // WHEN the topic cannot be read THEN nothing is kept there
        stops.topic_is_readable(false);
        assert_eq!(stops.place_of_gaps() == Place::StateFile, has_file);
        assert!(!stops.waits_for_topic());
    }
}

#[test]
fn another_system_an_earlier_timeline_or_end_of_wal_is_a_stop_and_a_slot_ahead_is_none() {
    let (source, last) = (SourceSettings::default(), (at("7", 1), Lsn::from_wire(100)));
    let judged = |place, end| {
        let end = Lsn::from_wire(end);
        let fault = not_the_last(&source, &last, &place, end, end);
        fault.map(|fault| (fault.code, fault.doubt.is_some()))
    };
    assert_eq!(judged(at("8", 1), 200), Some(("slot.other-system", true)));
    assert_eq!(judged(at("7", 1), 99), Some(("slot.went-back", true)));
    assert_eq!(judged(at("7", 1), 100), None);
    // A failover may have lost the end of the WAL, and says so by its timeline.
    assert_eq!(judged(at("7", 2), 99), None);
    // Timelines only rise.
    assert_eq!(judged(at("7", 0), 200), Some(("slot.earlier-timeline", true)));
}

#[test]
fn what_a_start_sees_before_it_is_judged_does_not_replace_what_the_last_process_saw() {
    let site = Site::new();
    let place = at("7", 1);
    let first = site.process(true, false);
    first.note_reading(&place);
    Remembering(Arc::clone(&first)).saw(Lsn::from_wire(900));
    // GIVEN a database that was set back WHEN the preflight of the next process looks at it
    let next = site.process(true, false);
    Remembering(Arc::clone(&next)).saw(Lsn::from_wire(50));
    // THEN it is judged against what was seen, and so is one after it, if this one is killed
    let last = Some((place.clone(), Lsn::from_wire(900)));
    assert_eq!(next.last_place(), last);
    assert_eq!(site.process(true, false).last_place(), last);
    // WHEN it was judged and reads the slot THEN what it sees counts
    next.note_reading(&place);
    assert_eq!(site.process(true, false).last_place(), Some((place, Lsn::from_wire(50))));
}

#[test]
fn the_next_process_knows_the_publication_once_this_one_reads_the_slot() {
    let site = Site::new();
    let compare = |stops: &Arc<StandingStops>| {
        stops.known_publication().compare(look(300), &site.source(), true)
    };
    // GIVEN a process that ends before a doubt about the publication was judged
    assert_eq!(compare(&site.process(true, false)), Comparison::First);
    // THEN the next one has the same doubt
    let next = site.process(true, false);
    assert_eq!(compare(&next), Comparison::First);
    next.note_reading(&at("7", 1));
    assert_eq!(compare(&site.process(true, false)), Comparison::InOrder);
}

#[test]
fn another_system_stops_the_next_process_which_is_of_that_system() {
    let site = Site::new();
    let stops = site.process(false, true);
    stops.parts.system.learn("7");
    stops.note_system("8");
    stops.keep(&faults::system_changed(&site.source(), "7", "8"));
    for (system, stands) in [("8", true), ("7", false)] {
        let next = site.process(false, true);
        site.find(&next, Some(system));
        assert_eq!(next.fault().is_some(), stands, "{system}");
    }
}

#[test]
fn a_breaker_that_the_file_keeps_is_acknowledged_in_the_topic_too() {
    let site = Site::new();
    site.process(true, true).keep(&breaker());
    let next = site.process(true, true);
    site.find(&next, None);
    let (stop, _) = next.standing().unwrap();
    // GIVEN that it is in the file, because the topic could not be written just then
    let held = site.process(true, true);
    held.state().standing = Some((stop, Place::StateFile));
    held.resume("alice@host", "", None).unwrap();
    // THEN the topic does not have it either
    assert_eq!(site.find(&site.process(true, true), None).standing, []);
}
