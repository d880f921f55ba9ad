use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use super::*;
use crate::runtime;

/// A stream that takes a line when it is told to.
struct Gate {
    go_on: Receiver<()>,
    lines: Sender<String>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.go_on.recv().is_ok() {
            self.lines.send(String::from_utf8_lossy(bytes).into_owned()).ok();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A queue whose thread writes through a gate.
fn gated() -> (Arc<LogQueue>, Sender<()>, Receiver<String>) {
    let (queue, waiting) = LogQueue::new();
    let queue = Arc::new(queue);
    let (open, go_on) = channel();
    let (sender, lines) = channel();
    let (own, gate) = (Arc::clone(&queue), Gate { go_on, lines: sender });
    let write = move || own.write_all(&waiting, gate, |lost| format!("{lost} lost"), || {});
    drop(runtime::spawn("gated-log", write).unwrap());
    (queue, open, lines)
}

#[test]
fn nobody_waits_for_a_stream_that_is_not_read_and_what_has_no_room_is_counted() {
    let (queue, open, lines) = gated();
    // GIVEN more lines than may wait, while the stream takes none
    let pushed = 2 * WAITING_LINES_MAX;
    (0..pushed).for_each(|n| queue.push(n.to_string().as_bytes()));
    // WHEN the stream is read again
    (0..pushed).for_each(|_| open.send(()).unwrap());
    // THEN the first lines are there in their order, and then how many were lost
    let mut first = Vec::new();
    let last = loop {
        let line = lines.recv().unwrap();
        if line.ends_with("lost") {
            break line;
        }
        first.push(line);
    };
    // One may be under way beside those that wait, from whenever the thread takes it.
    assert!((0..=1).contains(&(first.len() - WAITING_LINES_MAX)), "{}", first.len());
    let numbers: Vec<usize> = first.iter().map(|line| line.parse().unwrap()).collect();
    assert!(numbers[..WAITING_LINES_MAX].iter().copied().eq(0..WAITING_LINES_MAX));
    assert!(numbers.is_sorted(), "{:?}", numbers.last());
    assert_eq!(last, format!("{} lost", pushed - first.len()));
    // THEN the count is written once
    queue.push(b"later");
    assert_eq!(lines.recv().unwrap(), "later");
    queue.push(b"last");
    assert_eq!(lines.recv().unwrap(), "last");
}

#[test]
fn the_end_does_not_wait_for_a_reader_that_does_not_come() {
    let (queue, _open, lines) = gated();
    // GIVEN a line that is not taken THEN flushing returns
    queue.push(b"one");
    queue.flush();
    // GIVEN no room for even the mark THEN so it does
    (0..2 * WAITING_LINES_MAX).for_each(|_| queue.push(b"more"));
    queue.flush();
    assert_eq!(lines.try_iter().count(), 0);
}
