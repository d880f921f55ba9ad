//! A file. What breaks is its path; answers are lost in the faults of its sink.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use walrelay::sink::Broker;

use super::faulty_broker::{AnswerFaults, FaultyBroker};
use super::fixture::{Arrived, SinkFixture};
use crate::sinks::section::Values;
use crate::sinks::test_relay::Event;

const EVENT_BYTES_MAX: usize = 2 << 20;

pub(crate) struct FileFixture {
    folder: PathBuf,
    faults: Arc<AnswerFaults>,
}

impl FileFixture {
    pub(crate) fn start() -> FileFixture {
        let folder = format!("conformance-{}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
        // A process of that number may have left one.
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).unwrap();
        FileFixture { folder, faults: Arc::default() }
    }

    fn away(&self) -> PathBuf {
        self.folder.with_extension("away")
    }
}

impl SinkFixture for FileFixture {
    fn broker(&self) -> Arc<dyn Broker> {
        let values = Values::default()
            .set("path", self.folder.join("events.jsonl").display())
            .set("event_bytes_max", EVENT_BYTES_MAX);
        let (inner, faults) = (values.configure("file"), Arc::clone(&self.faults));
        Arc::new(FaultyBroker { inner, faults })
    }

    fn place(&mut self, name: &str) -> Event {
        Event::new(name, "")
    }

    fn count(&mut self, place: &Event) -> usize {
        self.take(place).len()
    }

    /// Dead letters go to a file of their own.
    fn take(&mut self, place: &Event) -> Vec<Arrived> {
        let files = ["events.jsonl", "outbox.dlq.jsonl"];
        let texts = files.map(|file| std::fs::read_to_string(self.folder.join(file)));
        let lines = texts.iter().flatten().flat_map(|text| text.split_inclusive('\n'));
        lines.filter(|line| line.ends_with('\n')).filter_map(|line| arrived(line, place)).collect()
    }

    fn poison(&mut self, event: Event) -> Event {
        Event { value: Some(vec![b'x'; EVENT_BYTES_MAX + 1]), ..event }
    }

    fn refuse_for_now(&mut self, _event: Event) -> Option<Event> {
        None
    }

    fn refuses_at_once(&self) -> bool {
        true
    }

    fn provide(&mut self, _place: &Event) {}

    fn lose_answers(&mut self) {
        self.faults.lose_answers();
    }

    fn cut(&mut self) {
        self.faults.cut();
    }

    fn stall(&mut self) {
        self.faults.stall(true);
    }

    fn go_on(&mut self) {
        self.faults.stall(false);
    }

    fn kill(&mut self) {
        std::fs::rename(&self.folder, self.away()).unwrap();
    }

    fn revive(&mut self) {
        std::fs::rename(self.away(), &self.folder).unwrap();
    }

    /// The number of connections: none, because events on their way are written when the sink is
    /// gone.
    fn connections(&self) -> usize {
        0
    }
}

fn arrived(line: &str, place: &Event) -> Option<Arrived> {
    let json: Json = serde_json::from_str(line).unwrap();
    let bytes = |value: &Json| match value {
        Json::Null => None,
        Json::String(text) => Some(text.clone().into_bytes()),
        other => Some(STANDARD.decode(other["base64"].as_str().unwrap()).unwrap()),
    };
    let headers = json["headers"].as_array().unwrap().chunks(2);
    let headers =
        headers.map(|pair| (pair[0].as_str().unwrap().to_owned(), bytes(&pair[1]).unwrap()));
    let (key, value, headers) = (bytes(&json["key"]), bytes(&json["payload"]), headers.collect());
    (json["topic"] == place.topic.as_str()).then_some(Arrived { key, value, headers })
}
