use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

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
    let queue = Arc::new(LogQueue::default());
    let (open, go_on) = channel();
    let (sender, lines) = channel();
    let own = Arc::clone(&queue);
    let write = move || {
        own.write_all(Gate { go_on, lines: sender }, |lost| format!("{lost} lost"));
    };
    drop(runtime::spawn("gated-log", write).unwrap());
    (queue, open, lines)
}

#[test]
fn a_line_is_written_before_its_writer_goes_on() {
    let (queue, open, lines) = gated();
    for line in ["one", "two"] {
        open.send(()).unwrap();
        assert!(queue.push(line.as_bytes(), LineRank::Ordinary));
        assert_eq!(lines.try_recv().as_deref(), Ok(line));
    }
}

#[test]
fn nobody_waits_for_a_stream_that_is_not_read_and_lines_keep_their_order() {
    let (queue, open, lines) = gated();
    // GIVEN one line that was not taken in time
    assert!(queue.push(b"0", LineRank::Ordinary));
    assert!(queue.locked().is_stuck);
    // THEN no other waits: all are left in the queue
    for n in 1..100 {
        assert!(queue.push(n.to_string().as_bytes(), LineRank::Ordinary));
    }
    assert_eq!(queue.locked().written, 0);
    queue.flush(Duration::from_millis(1));
    // WHEN the stream is read again
    (0..100).for_each(|_| open.send(()).unwrap());
    queue.flush(Duration::MAX);
    // THEN each line is there, and is waited for again
    assert!(lines.try_iter().eq((0..100).map(|n: u32| n.to_string())));
    assert!(!queue.locked().is_stuck);
}

#[test]
fn what_has_no_room_is_counted_and_half_of_the_room_is_for_what_must_be_kept() {
    let (queue, open, lines) = gated();
    let line = [b'x'; WAITING_BYTES_MAX / 4];
    // GIVEN ordinary lines, as many as may wait
    assert!(queue.push(&line, LineRank::Ordinary));
    assert!(queue.push(&line, LineRank::Ordinary));
    assert!(!queue.push(b"lost", LineRank::Ordinary));
    // THEN the others have as much again
    assert!(queue.push(&line, LineRank::Kept));
    assert!(queue.push(&line, LineRank::Kept));
    assert!(!queue.push(b"lost, too", LineRank::Kept));
    // WHEN the stream is read THEN the last line tells what is missing
    (0..5).for_each(|_| open.send(()).unwrap());
    queue.flush(Duration::MAX);
    assert_eq!(lines.iter().nth(4).as_deref(), Some("2 lost"));
    // THEN even a line that is longer than the room has its place
    open.send(()).unwrap();
    assert!(queue.push(&[b'y'; WAITING_BYTES_MAX + 1], LineRank::Ordinary));
}
