use super::*;
use crate::base::error::Exit;
use crate::base::lsn::Lsn;
use crate::base::stop::{BREAKER_OPEN, RESUME};
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

    fn config(&mut self, has_file: bool, has_topic: bool) -> StopsConfig<'_> {
        self.config.delivery.state_file = has_file.then(|| self.file.clone());
        let broker: Arc<dyn Broker> = Arc::new(self.broker.clone());
        let dead_letters = (broker, self.config.dead_letter.address.clone());
        StopsConfig {
            source: &self.config.source,
            delivery: &self.config.delivery,
            is_polling: false,
            dead_letters: has_topic.then_some(dead_letters),
            system: SystemId::default(),
            relay: "slot@host".to_owned(),
        }
    }

    /// The stops that the next process finds in its file, which is made if it is missing.
    fn process(&mut self, has_file: bool, has_topic: bool) -> Stops {
        open(self.config(has_file, has_topic)).unwrap();
        Stops::look(self.config(has_file, has_topic)).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        std::fs::remove_file(&self.file).ok();
    }
}

fn breaker() -> Fault {
    Fault::new(Exit::Halted, BREAKER_OPEN, "too many", "", RESUME).standing(Lsn::ZERO, Lsn::ZERO)
}

fn moved() -> Fault {
    Fault::new(Exit::Slot, "slot.moved", "it was moved", "", RESUME).standing(Lsn::ZERO, Lsn::ZERO)
}

#[test]
fn a_stop_outlives_the_process_in_the_file_or_in_the_topic_until_it_is_acknowledged() {
    for (has_file, has_topic, fault, place) in [
        (true, true, moved(), Some(Place::StateFile)),
        (false, true, moved(), Some(Place::Topic)),
        (true, true, breaker(), Some(Place::Topic)),
        (true, false, breaker(), Some(Place::StateFile)),
        (false, false, moved(), None),
    ] {
        let name = format!("{}-{has_file}-{has_topic}", fault.code);
        let mut site = Site::new(&name);
        let first = site.process(has_file, has_topic).kept;
        assert_eq!(first.fault(), None);
        first.keep(&fault);
        // WHEN the next process begins THEN it finds it
        let next = site.process(has_file, has_topic);
        next.read_topic().unwrap();
        let (code, kept) = next.kept.standing().map(|(stop, place)| (stop.code, place)).unzip();
        assert_eq!(kept, place, "{name}");
        assert_eq!(code.as_deref(), place.map(|_| fault.code), "{name}");
        // WHEN it is acknowledged THEN the process after it does not find it
        if fault.code == BREAKER_OPEN {
            next.kept.resume("alice@host", "all of it is poison", None).unwrap();
            let last = site.process(has_file, has_topic);
            assert_eq!(last.read_topic().unwrap().standing, [], "{name}");
            assert_eq!(last.kept.standing(), None, "{name}");
        }
    }
}

#[test]
fn a_command_makes_no_state_file_and_says_that_it_is_missing() {
    let mut site = Site::new("missing");
    let stops = Stops::look(site.config(true, false)).unwrap();
    assert!(stops.kept.lacks_file() && !site.file.exists());
    let fault = stops.kept.resume("alice@host", "", None).unwrap_err();
    assert!(fault.place.contains(&site.file.display().to_string()), "{}", fault.place);
}
