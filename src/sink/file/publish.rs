//! The thread that appends lines and syncs, and the sink in front of it.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::append::{AppendFile, TAIL_BYTES};
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
/// How long dropping the sink may wait for the write that is under way.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

struct Line {
    sequence: Sequence,
    is_dead_letter: bool,
    text: Vec<u8>,
}

/// Events are refused when they are handed over or
/// not at all: nothing that was accepted fails later.
pub(super) struct FileSink {
    settings: FileSettings,
    lines: Sender<Line>,
    /// Disconnected when the thread has ended.
    reports: Receiver<Vec<SinkReport>>,
    closed: Arc<AtomicBool>,
    /// Bytes of the lines that wait. As JSON an event takes up to six times its size.
    waiting_bytes: Arc<AtomicUsize>,
    ended: bool,
}

impl FileSink {
    pub(super) fn open(
        settings: &FileSettings,
        mut events: AppendFile,
        mut dead_letters: AppendFile,
    ) -> Result<FileSink, Fault> {
        let ((lines, waiting), (sender, reports)) = (channel(), channel());
        let (closed, waiting_bytes) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        (events.closed, dead_letters.closed) = (Arc::clone(&closed), Arc::clone(&closed));
        let writer = Writer {
            waiting,
            pending: None,
            sender,
            is_away: false,
            closed: Arc::clone(&closed),
            waiting_bytes: Arc::clone(&waiting_bytes),
        };
        runtime::spawn("file", move || writer.run(events, dead_letters))?;
        let (settings, ended) = (settings.clone(), false);
        Ok(FileSink { settings, lines, reports, closed, waiting_bytes, ended })
    }

    fn hand_over(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
        is_dead_letter: bool,
    ) -> Result<(), PublishError> {
        if self.waiting_bytes.load(Ordering::Relaxed) > self.settings.waiting_bytes_max {
            return Err(PublishError::QueueFull);
        }
        let text = record::write(event, unix_now_us())
            .map_err(|error| PublishError::Failed(fault::not_json(event, &error)))?;
        self.waiting_bytes.fetch_add(text.len(), Ordering::Relaxed);
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
    /// What waits is not written any more, or it would come behind what the next sink writes.
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        (self.lines, _) = channel();
        let deadline = Instant::now() + CLOSE_WITHIN;
        let left = || deadline.saturating_duration_since(Instant::now());
        while self.reports.recv_timeout(left()).is_ok() {}
    }
}

/// Lines that go to the same file.
#[derive(Default)]
struct Batch {
    sequences: Vec<Sequence>,
    bytes: Vec<u8>,
}

struct Writer {
    waiting: Receiver<Line>,
    /// Taken from `waiting`, for the next batch.
    pending: Option<Line>,
    sender: Sender<Vec<SinkReport>>,
    is_away: bool,
    closed: Arc<AtomicBool>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Writer {
    fn run(mut self, mut events: AppendFile, mut dead_letters: AppendFile) {
        while let Some(first) = self.pending.take().or_else(|| self.waiting.recv().ok()) {
            let file = if first.is_dead_letter { &mut dead_letters } else { &mut events };
            let batch = self.batch(first);
            if !self.write(file, &batch.bytes) {
                return;
            }
            self.waiting_bytes.fetch_sub(batch.bytes.len(), Ordering::Relaxed);
            let back = self.is_away.then_some(SinkReport::Reachable);
            self.is_away = false;
            let confirmed = batch.sequences.into_iter().map(SinkReport::Confirmed);
            self.report(back.into_iter().chain(confirmed).collect());
        }
    }

    /// Everything that waits, up to a change of the file or as many bytes as a repair looks at.
    fn batch(&mut self, first: Line) -> Batch {
        let mut batch = Batch::default();
        let (is_dead_letter, mut next) = (first.is_dead_letter, Some(first));
        while let Some(line) = next {
            let size = batch.bytes.len() + line.text.len();
            let is_full = !batch.bytes.is_empty() && size > TAIL_BYTES as usize;
            if is_full || line.is_dead_letter != is_dead_letter {
                self.pending = Some(line);
                break;
            }
            batch.sequences.push(line.sequence);
            batch.bytes.extend(line.text);
            next = self.waiting.try_recv().ok();
        }
        batch
    }

    /// Appends until it succeeds; false when the sink was dropped.
    fn write(&mut self, file: &mut AppendFile, bytes: &[u8]) -> bool {
        let mut reported = String::new();
        while !self.closed.load(Ordering::SeqCst) {
            let Err(error) = file.append(bytes) else { return true };
            let reason = format!("cannot write {}: {error}", file.path.display());
            if reason != reported {
                self.is_away = true;
                self.report(vec![SinkReport::Unreachable(reason.clone())]);
                reported = reason;
            }
            std::thread::sleep(RETRY_EVERY);
        }
        false
    }

    fn report(&self, reports: Vec<SinkReport>) {
        let _dropped = self.sender.send(reports).is_err();
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
