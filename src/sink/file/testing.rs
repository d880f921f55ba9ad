//! A temporary folder for each test, and settings of the sink that point into it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::broker::SINK;
use super::settings::FileSettings;
use crate::base::event::Outbound;
use crate::base::settings::visit::section_of;
use crate::base::settings::{Settings as _, Visit};
use crate::base::testing::TempFolder;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::broker::{Broker, SinkSettings as _};
use crate::sink::settings::{InvalidSetting, Surroundings};

pub(super) struct Folder(pub(super) TempFolder);

impl Folder {
    pub(super) fn new() -> Folder {
        Folder(TempFolder::new())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// The section with `events.jsonl` of this folder.
    pub(super) fn settings(&self) -> FileSettings {
        let mut settings = FileSettings::read(&mut section(&self.path("events.jsonl")));
        assert_eq!(settings.complete(&around(&address())), []);
        settings
    }

    pub(super) fn broker(&self) -> Arc<dyn Broker> {
        configure(&self.path("events.jsonl"), None).unwrap()
    }
}

pub(super) fn configure(
    path: &Path,
    state_file: Option<&Path>,
) -> Result<Arc<dyn Broker>, Vec<InvalidSetting>> {
    let dead_letters = address();
    (SINK.read)(&mut section(path))(&Surroundings { state_file, ..around(&dead_letters) })
}

pub(super) fn address() -> DeadLetterAddress {
    DeadLetterAddress { exchange: String::new(), topic: "outbox.dlq".to_owned() }
}

fn around(dead_letters: &DeadLetterAddress) -> Surroundings<'_> {
    Surroundings {
        window_events_max: 16_384,
        window_bytes_max: 64 << 20,
        dead_letters,
        state_file: None,
    }
}

fn section(path: &Path) -> Visit {
    let path = path.display().to_string();
    section_of(&[("path", &path), ("event_bytes_max", "1MiB")])
}

pub(super) fn event<'a>(id: &'a str, value: Option<&'a [u8]>) -> Outbound<'a> {
    Outbound {
        topic: "orders",
        key: Some(b"a"),
        value,
        id,
        commit_unix_us: 1_700_000_000_123_456,
        ..Outbound::default()
    }
}
