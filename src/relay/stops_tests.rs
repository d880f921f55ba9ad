use super::*;
use crate::base::error::Exit;
use crate::base::stop::RESUME;
use crate::config;
use crate::sink::testing::MemoryBroker;

/// A state file of its own, gone with the value.
struct Site {
    file: std::path::PathBuf,
    broker: MemoryBroker,
    config: crate::config::Config,
}

impl Site {
    fn new(name: &str) -> Site {
        let file = format!("walrelay-stops-{}-{name}.state", std::process::id());
        let settings = ["source.url=postgres://u@db/app", "route.topic=t", "sink.kind=memory"];
        let settings = settings.map(str::to_owned).to_vec();
        let request = config::Request { settings, ..config::Request::default() };
        let config = config::load(&request).unwrap().config;
        let file = std::env::temp_dir().join(file);
        Site { file, broker: MemoryBroker::default(), config }
    }

    /// What the next process finds.
    fn process(&mut self, has_file: bool, has_topic: bool) -> Arc<Stops> {
        self.config.delivery.state_file = has_file.then(|| self.file.clone());
        let broker: Arc<dyn Broker> = Arc::new(self.broker.clone());
        let dead_letters = (broker, self.config.dead_letter.address.clone());
        let stops = Stops::open(StopsConfig {
            source: &self.config.source,
            delivery: &self.config.delivery,
            is_polling: false,
            dead_letters: has_topic.then_some(dead_letters),
            system: SystemId::default(),
            relay: "slot@host".to_owned(),
        });
        Arc::new(stops.unwrap())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        std::fs::remove_file(&self.file).ok();
    }
}

fn breaker() -> Fault {
    Fault::new(Exit::Halted, BREAKER_OPEN, "too many", "", RESUME).stays(Lsn::ZERO, Lsn::ZERO)
}

fn moved() -> Fault {
    Fault::new(Exit::Slot, "slot.moved", "it was moved", "", RESUME).stays(Lsn::ZERO, Lsn::ZERO)
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
        let mut site = Site::new(&name);
        let first = site.process(has_file, has_topic);
        assert_eq!(first.fault(), None);
        first.keep(&fault);
        // WHEN the next process begins THEN it finds it
        let next = site.process(has_file, has_topic);
        let found = next.read_topic().unwrap();
        let (code, kept) = next.standing().map(|(stop, place)| (stop.code, place)).unzip();
        assert_eq!(kept, place, "{name}");
        assert_eq!(code.as_deref(), place.map(|_| fault.code), "{name}");
        assert_eq!(found.standing.len(), usize::from(place == Some(Place::Topic)), "{name}");
        assert_eq!(next.fault().map(|fault| fault.exit), place.map(|_| fault.exit));
    }
}

#[test]
fn a_stop_is_kept_once() {
    let mut site = Site::new("once");
    site.process(false, true).keep(&breaker());
    let next = site.process(false, true);
    next.read_topic().unwrap();
    // WHEN the next process ends because of it
    next.keep(&next.fault().unwrap());
    // THEN the topic has one record of it
    assert_eq!(site.process(false, true).read_topic().unwrap().standing.len(), 1);
}

#[test]
fn a_fault_that_protects_no_data_is_not_kept() {
    let mut site = Site::new("plain");
    let fault = Fault::new(Exit::Slot, "slot.missing", "it is not there", "", "make it");
    site.process(true, true).keep(&fault);
    assert_eq!(site.process(true, true).standing(), None);
}

#[test]
fn an_acknowledged_breaker_stops_nobody_and_nothing_is_left_to_acknowledge() {
    for (has_file, has_topic) in [(false, true), (true, false)] {
        let mut site = Site::new(&format!("resumed-{has_file}"));
        site.process(has_file, has_topic).keep(&breaker());
        let command = site.process(has_file, has_topic);
        command.read_topic().unwrap();
        assert_eq!(command.resume("alice@host", "all of it is poison").unwrap().code, BREAKER_OPEN);
        let next = site.process(has_file, has_topic);
        next.read_topic().unwrap();
        assert_eq!(next.standing(), None);
        assert_eq!(next.resume("alice@host", "").unwrap_err().code, "resume.nothing");
    }
}

#[test]
fn a_process_that_waits_goes_on_when_it_is_resumed_or_its_file_says_so() {
    let mut site = Site::new("waits");
    // GIVEN one that waits because of a fault that nothing keeps
    let stops = site.process(true, false);
    let fault = Fault::new(Exit::Slot, "slot.missing", "it is not there", "", "make it");
    assert_eq!(stops.waits(&fault).code, "slot.missing");
    assert!(!stops.may_go_on());
    assert_eq!(stops.resume("token@host", "").unwrap().code, "slot.missing");
    assert!(stops.may_go_on());
    assert!(!stops.may_go_on(), "once");
    // GIVEN one that waits because of a stop in the file WHEN a command acknowledges it
    stops.keep(&breaker());
    stops.waits(&breaker());
    assert!(!stops.may_go_on());
    site.process(true, false).resume("alice@host", "").unwrap();
    assert!(stops.may_go_on());
    assert_eq!(stops.fault(), None);
}

#[test]
fn what_the_file_holds_of_another_slot_is_ignored() {
    let mut site = Site::new("slot");
    site.process(true, false).keep(&moved());
    site.config.source.slot = "another".to_owned();
    assert_eq!(site.process(true, false).standing(), None);
}

#[test]
fn another_system_or_an_earlier_end_of_wal_is_a_stop_and_a_slot_ahead_is_none() {
    let site = Site::new("last");
    let at = |system: &str, timeline| SystemTimeline { system_id: system.to_owned(), timeline };
    let last = (at("7", 1), Lsn::from_wire(100));
    let judged = |place, end| {
        let fault = not_the_last(&site.config.source, &last, &place, Lsn::from_wire(end));
        fault.map(|fault| (fault.code, fault.doubt.is_some()))
    };
    assert_eq!(judged(at("8", 1), 200), Some(("slot.other-system", true)));
    assert_eq!(judged(at("7", 1), 99), Some(("slot.went-back", true)));
    assert_eq!(judged(at("7", 1), 100), None);
    // A failover may have lost the end of the WAL, and says so by its timeline.
    assert_eq!(judged(at("7", 2), 99), None);
}

#[test]
fn where_the_slot_was_read_last_outlives_the_process() {
    let mut site = Site::new("place");
    let stops = site.process(true, false);
    assert_eq!(stops.last_place(), None);
    let place = SystemTimeline { system_id: "7".to_owned(), timeline: 2 };
    stops.reads_at(&place);
    Remembering(Arc::clone(&stops)).saw(Lsn::from_wire(9));
    assert_eq!(site.process(true, false).last_place(), Some((place, Lsn::from_wire(9))));
}

#[test]
fn what_a_start_sees_before_it_is_judged_does_not_replace_what_the_last_process_saw() {
    let mut site = Site::new("judged");
    let place = SystemTimeline { system_id: "7".to_owned(), timeline: 1 };
    let first = site.process(true, false);
    first.reads_at(&place);
    Remembering(Arc::clone(&first)).saw(Lsn::from_wire(900));
    // GIVEN a database that was set back WHEN the preflight of the next process looks at it
    let next = site.process(true, false);
    Remembering(Arc::clone(&next)).saw(Lsn::from_wire(50));
    // THEN it is judged against what was seen, and so is one after it, if this one is killed
    let last = Some((place.clone(), Lsn::from_wire(900)));
    assert_eq!(next.last_place(), last);
    assert_eq!(site.process(true, false).last_place(), last);
    // WHEN it was judged and reads the slot THEN what it sees counts
    next.reads_at(&place);
    assert_eq!(site.process(true, false).last_place(), Some((place, Lsn::from_wire(50))));
}

#[test]
fn another_system_stops_the_next_process_which_is_of_that_system() {
    let mut site = Site::new("other-system");
    let stops = site.process(false, true);
    stops.system.learn("7");
    stops.meets("8");
    stops.keep(&faults::system_changed(&site.config.source, "7", "8"));
    for (system, stands) in [("8", true), ("7", false)] {
        let next = site.process(false, true);
        next.system.learn(system);
        next.read_topic().unwrap();
        assert_eq!(next.fault().is_some(), stands, "{system}");
    }
}

#[test]
fn a_breaker_that_the_file_keeps_is_acknowledged_in_the_topic_too() {
    let mut site = Site::new("both");
    site.process(true, true).keep(&breaker());
    let (stop, _) = {
        let next = site.process(true, true);
        next.read_topic().unwrap();
        next.standing().unwrap()
    };
    // GIVEN that it is in the file, because the topic could not be written just then
    let held = site.process(true, true);
    held.state().standing = Some((stop, Place::StateFile));
    held.resume("alice@host", "").unwrap();
    // THEN the topic does not have it either
    assert_eq!(site.process(true, true).read_topic().unwrap().standing, []);
}
