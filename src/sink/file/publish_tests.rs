use std::path::Path;

use super::super::testing::{Folder, event};
use super::*;
use crate::sink::publish::Disposition;

const LIMIT: Duration = Duration::from_secs(20);

fn open(folder: &Folder) -> FileSink {
    let settings = folder.settings();
    let files = [&settings.path, &settings.dead_letters].map(|path| AppendFile::new(path));
    let [events, dead_letters] = files;
    FileSink::open(&settings, events, dead_letters).unwrap()
}

/// Polls until `count` reports are there.
fn reports(sink: &mut FileSink, count: usize) -> Vec<SinkReport> {
    let (mut reports, began) = (Vec::new(), Instant::now());
    while reports.len() < count {
        sink.poll(Instant::now(), Duration::from_millis(10), &mut reports);
        assert!(began.elapsed() < LIMIT, "{reports:?}");
    }
    reports
}

#[test]
fn what_waits_is_confirmed_in_order_and_dead_letters_stand_apart() {
    let folder = Folder::new();
    let mut sink = open(&folder);
    for sequence in 0..100 {
        let id = sequence.to_string();
        match sequence % 10 {
            7 => sink.publish_dead_letter(sequence, &event(&id, Some(id.as_bytes()))).unwrap(),
            _ => sink.publish(sequence, &event(&id, Some(id.as_bytes()))).unwrap(),
        }
    }
    let confirmed: Vec<SinkReport> = (0..100).map(SinkReport::Confirmed).collect();
    assert_eq!(reports(&mut sink, 100), confirmed);
    assert_eq!(folder.text("events.jsonl").lines().count(), 90);
    assert_eq!(folder.text("outbox.dlq.jsonl").lines().count(), 10);
}

#[test]
fn an_outage_confirms_nothing_loses_nothing_and_is_reported_once() {
    // GIVEN a file that is gone, with its folder
    let folder = Folder::new();
    let mut sink = open(&folder);
    sink.publish(0, &event("0", None)).unwrap();
    assert_eq!(reports(&mut sink, 1), [SinkReport::Confirmed(0)]);
    std::fs::remove_dir_all(folder.0.path()).unwrap();
    for sequence in 1..50 {
        sink.publish(sequence, &event(&sequence.to_string(), None)).unwrap();
    }
    let mut told = reports(&mut sink, 1);
    for _ in 0..5 {
        sink.poll(Instant::now(), RETRY_EVERY, &mut told);
    }
    let [SinkReport::Unreachable(reason)] = told.as_slice() else { panic!("{told:?}") };
    assert!(reason.contains("events.jsonl") && reason.contains("No such file"), "{reason}");
    // WHEN it is back THEN that is reported, and everything confirmed in order
    std::fs::create_dir_all(folder.0.path()).unwrap();
    let confirmed = (1..50).map(SinkReport::Confirmed);
    let expected: Vec<SinkReport> = [SinkReport::Reachable].into_iter().chain(confirmed).collect();
    assert_eq!(reports(&mut sink, 50), expected);
    assert_eq!(folder.text("events.jsonl").lines().count(), 49);
}

#[test]
fn nothing_is_confirmed_that_cannot_be_synced() {
    // GIVEN a file that takes every write, and whose sync fails
    let (folder, null) = (Folder::new(), Path::new("/dev/null"));
    let settings = folder.settings();
    let unsynced = AppendFile::opened(null, std::fs::OpenOptions::new().append(true).read(true));
    let rest = AppendFile::new(&settings.dead_letters);
    let mut sink = FileSink::open(&settings, unsynced, rest).unwrap();
    // WHEN an event is published THEN only an outage is reported
    sink.publish(0, &event("0", None)).unwrap();
    let mut told = Vec::new();
    for _ in 0..5 {
        sink.poll(Instant::now(), RETRY_EVERY, &mut told);
    }
    assert!(matches!(told.as_slice(), [SinkReport::Unreachable(_)]), "{told:?}");
}

#[test]
fn a_sink_is_dropped_at_once_and_writes_nothing_afterwards() {
    // GIVEN a sink that waits for the lock of another writer
    let folder = Folder::new();
    let mut other = AppendFile::new(&folder.settings().path);
    other.append(b"{}\n").unwrap();
    let mut sink = open(&folder);
    sink.publish(0, &event("0", Some(b"zero"))).unwrap();
    let told = reports(&mut sink, 1);
    assert!(matches!(told.as_slice(), [SinkReport::Unreachable(_)]), "{told:?}");
    // WHEN it is dropped THEN that takes no time
    let began = Instant::now();
    drop(sink);
    assert!(began.elapsed() < RETRY_EVERY, "{:?}", began.elapsed());
    // THEN the next sink writes, and only that
    drop(other);
    let mut next = open(&folder);
    next.publish(1, &event("1", Some(b"one"))).unwrap();
    assert_eq!(reports(&mut next, 1), [SinkReport::Confirmed(1)]);
    let text = folder.text("events.jsonl");
    assert!(text.starts_with("{}\n") && text.contains("one"), "{text}");
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn an_event_that_is_too_large_is_refused_at_once_and_its_dead_letter_is_not() {
    let folder = Folder::new();
    let mut sink = open(&folder);
    let value = vec![b'x'; 2 << 20];
    let large = event("0", Some(&value));
    let Err(PublishError::Failed(failure)) = sink.publish(0, &large) else { panic!("taken") };
    assert_eq!(
        (failure.class.as_str(), failure.disposition),
        (fault::TOO_LARGE, Disposition::Terminal)
    );
    sink.publish_dead_letter(0, &large).unwrap();
    assert_eq!(reports(&mut sink, 1), [SinkReport::Confirmed(0)]);
    assert!(folder.text("outbox.dlq.jsonl").len() > value.len());
}

#[test]
fn a_batch_ends_at_its_limit() {
    let ((lines, waiting), (sender, _reports)) = (channel(), channel());
    let writer = Writer { waiting, sender, shared: Arc::default() };
    let line = |sequence, bytes| Line { sequence, is_dead_letter: false, text: vec![b'x'; bytes] };
    let limit = WRITE_BYTES_MAX;
    for (sequence, bytes) in [(0, 1), (1, limit - 2), (2, 1), (3, 1), (4, 2 * limit), (5, 1)] {
        lines.send(line(sequence, bytes)).unwrap();
    }
    let mut batches: Vec<Vec<Sequence>> = Vec::new();
    while let Ok(first) = writer.waiting.try_recv() {
        batches.push(writer.batch(first).iter().map(|line| line.sequence).collect());
    }
    assert_eq!(batches, [vec![0, 1, 2], vec![3, 4], vec![5]]);
}
