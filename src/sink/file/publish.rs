//! The thread that appends lines and syncs, and the sink in front of it.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::append::AppendFile;
use super::settings::FileSettings;
use super::{fault, record};
use crate::base::clock::unix_now_us;
use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};
use crate::base::fingerprint::fingerprint;
use crate::base::runtime;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::publish::{PublishError, Sink, SinkReport};

const RETRY_EVERY: Duration = Duration::from_millis(200);
/// Bytes behind which no further line is written at once.
const WRITE_BYTES_MAX: usize = 1 << 20;

struct Line {
    sequence: Sequence,
    is_dead_letter: bool,
    text: Vec<u8>,
}

/// Events are refused when they are handed over or not at all: nothing that was accepted fails later.
pub(super) struct FileSink {
    settings: FileSettings,
    lines: Sender<Line>,
    /// Disconnected when the thread has ended.
    reports: Receiver<Vec<SinkReport>>,
    shared: Arc<Shared>,
    thread: Thread,
    ended: bool,
}

/// The state that the sink and its thread share.
#[derive(Default)]
struct Shared {
    closed: AtomicBool,
    /// Bytes of the lines that wait. As JSON an event takes up to six times its size.
    waiting_bytes: AtomicUsize,
}

impl FileSink {
    pub(super) fn open(
        settings: &FileSettings,
        events: AppendFile,
        dead_letters: AppendFile,
    ) -> Result<FileSink, Fault> {
        let ((lines, waiting), (sender, reports)) = (channel(), channel());
        let shared = Arc::<Shared>::default();
        let writer = Writer { waiting, sender, shared: Arc::clone(&shared) };
        let thread = runtime::spawn("file", move || writer.run(events, dead_letters))?;
        let (settings, thread) = (settings.clone(), thread.thread().clone());
        Ok(FileSink { settings, lines, reports, shared, thread, ended: false })
    }

    fn hand_over(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
        is_dead_letter: bool,
    ) -> Result<(), PublishError> {
        let waiting_bytes = &self.shared.waiting_bytes;
        if waiting_bytes.load(Ordering::Relaxed) > self.settings.waiting_bytes_max {
            return Err(PublishError::QueueFull);
        }
        let text = record::write(event, unix_now_us())
            .map_err(|error| PublishError::Failed(fault::not_json(event, &error)))?;
        waiting_bytes.fetch_add(text.len(), Ordering::Relaxed);
        // A thread that has ended is reported by the next poll.
        let _ended = self.lines.send(Line { sequence, is_dead_letter, text }).is_err();
        Ok(())
    }
}

impl Sink for FileSink {
    fn broker(&mut self) -> u64 {
        let found = std::fs::metadata(&self.settings.path);
        found.map_or(0, |it| fingerprint(&format!("file/{}/{}", it.dev(), it.ino())))
    }

    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        if event.size_bytes() > self.settings.event_bytes_max {
            return Err(PublishError::Failed(fault::too_large(event, &self.settings)));
        }
        self.hand_over(sequence, event, false)
    }

    fn publish_dead_letter(
        &mut self,
        sequence: Sequence,
        dead_letter: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        self.hand_over(sequence, dead_letter, true)
    }

    fn poll(&mut self, _now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        match self.reports.recv_timeout(patience) {
            Ok(first) => reports.extend(first.into_iter().chain(self.reports.try_iter().flatten())),
            Err(RecvTimeoutError::Disconnected) if !self.ended => {
                self.ended = true;
                reports.push(SinkReport::Broken("the thread that writes has ended".to_owned()));
            }
            Err(_) => {}
        }
    }

    /// Never called: nothing fails after it was accepted.
    fn retry(&mut self, _sequence: Sequence) {}

    /// Never called, for the same reason: the relay itself publishes the dead letter of an event
    /// that was not accepted.
    fn replace_with_dead_letter(
        &mut self,
        _sequence: Sequence,
        _writer: &DeadLetterWriter,
        _cause: &DeadLetterCause,
    ) {
    }
}

impl Drop for FileSink {
    /// Drops the lines that wait. The write that is under way is not waited for: until it has ended
    /// the next sink does not get the lock of the file.
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

struct Writer {
    waiting: Receiver<Line>,
    sender: Sender<Vec<SinkReport>>,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(self, mut events: AppendFile, mut dead_letters: AppendFile) {
        while let Ok(first) = self.waiting.recv() {
            let lines = self.batch(first);
            for lines in lines.chunk_by(|a, b| a.is_dead_letter == b.is_dead_letter) {
                let is_dead_letter = lines.iter().any(|line| line.is_dead_letter);
                let file = if is_dead_letter { &mut dead_letters } else { &mut events };
                let bytes = lines.iter().map(|line| line.text.as_slice()).collect::<Vec<_>>();
                let bytes = bytes.concat();
                if !self.write(file, &bytes) {
                    return;
                }
                self.shared.waiting_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
                let confirmed = lines.iter().map(|line| SinkReport::Confirmed(line.sequence));
                self.report(confirmed.collect());
            }
        }
    }

    /// Everything that waits, up to the limit.
    fn batch(&self, first: Line) -> Vec<Line> {
        let (mut bytes, mut lines) = (first.text.len(), vec![first]);
        while bytes < WRITE_BYTES_MAX
            && let Ok(line) = self.waiting.try_recv()
        {
            bytes += line.text.len();
            lines.push(line);
        }
        lines
    }

    /// Appends until it succeeds, and reports an outage and its end. False when the sink was dropped.
    fn write(&self, file: &mut AppendFile, bytes: &[u8]) -> bool {
        let mut reported: Option<String> = None;
        loop {
            let locked = file.lock();
            // Another sink may have had the lock before, and have written these lines and later ones.
            if self.shared.closed.load(Ordering::SeqCst) {
                return false;
            }
            let Err(error) = locked.and_then(|()| file.append(bytes)) else {
                if reported.is_some() {
                    self.report(vec![SinkReport::Reachable]);
                }
                return true;
            };
            let reason = format!("cannot write {}: {error}", file.path.display());
            if reported.as_ref() != Some(&reason) {
                self.report(vec![SinkReport::Unreachable(reason.clone())]);
                reported = Some(reason);
            }
            std::thread::park_timeout(RETRY_EVERY);
        }
    }

    fn report(&self, reports: Vec<SinkReport>) {
        let _dropped = self.sender.send(reports).is_err();
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
