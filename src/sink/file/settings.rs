//! The `[sink.file]` section, typed.

use std::path::{self, Path, PathBuf};
use std::sync::Arc;

use crate::base::settings::kind::FILLED;
use crate::base::settings::{MIB, bytes, name_of, settings, text};
use crate::sink::broker::{Broker, SinkSettings};
use crate::sink::settings::{InvalidSetting, Surroundings};

settings! {
    /// The `[sink.file]` section.
    #[derive(Clone, Debug)]
    pub(crate) struct FileSettings {
        /// File that events are appended to. Dead letters go to a file beside it, named after
        /// `dead_letter.topic`.
        pub(super) path: PathBuf = text(FILLED).required("/var/lib/walrelay/events.jsonl"),
        /// Largest event, as bytes of key, value and headers. A larger one becomes a dead letter.
        pub(super) event_bytes_max: usize = bytes(64 << 10, 1024 * MIB).default("16MiB"),
        pub(super) dead_letters: PathBuf,
        /// Most bytes of lines that wait to be written, before the next is accepted.
        pub(super) waiting_bytes_max: usize,
    }
}

impl SinkSettings for FileSettings {
    /// Sets the path of the dead letters.
    fn complete(&mut self, around: &Surroundings<'_>) -> Vec<InvalidSetting> {
        let key = name_of!(FileSettings, path);
        // For `file_name`, the last component of these is a name.
        let written = self.path.as_os_str().as_encoded_bytes();
        let is_folder = written.ends_with(b"/") || written.ends_with(b"/.");
        if is_folder || self.path.file_name().is_none() {
            let what = format!("{:?} does not end in the name of a file", self.path);
            let mend = "path = \"/var/lib/walrelay/events.jsonl\"";
            return vec![InvalidSetting::new("config.bad-value", key, what, mend)];
        }
        let topic = &around.dead_letters.topic;
        self.dead_letters = self.path.with_file_name(format!("{topic}.jsonl"));
        self.waiting_bytes_max = around.window_bytes_max;
        if self.dead_letters == self.path {
            let place = self.path.display().to_string();
            return vec![InvalidSetting::taken_by_dead_letters(key, &place, "dead_letter.topic")];
        }
        let absolute = |path: &Path| path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let own_files = [&*self.path, &*self.dead_letters].map(absolute);
        if around.state_file.is_some_and(|file| own_files.contains(&absolute(file))) {
            let what = "delivery.state_file names the file of the events or of the dead letters";
            let mend = "give delivery.state_file a file of its own";
            return vec![InvalidSetting::new("config.conflict", key, what, mend)];
        }
        Vec::new()
    }

    fn into_broker(self) -> Arc<dyn Broker> {
        Arc::new(self)
    }
}
