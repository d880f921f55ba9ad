use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};

use super::*;

const UPDATE_BYTES: u64 = 39;

/// A socket that has more than is read at once, what was written to it, and what was waited for.
pub(crate) struct Backlog(Vec<u8>, Arc<Mutex<SentBytes>>, Arc<Mutex<Vec<Waited>>>);

#[derive(Debug, PartialEq)]
enum Waited {
    Bytes,
    Pause(Duration),
}

impl Backlog {
    /// A socket of which only the bytes matter that have arrived.
    pub(crate) fn of(bytes: &[u8]) -> Backlog {
        Backlog(bytes.to_vec(), Arc::default(), Arc::default())
    }
}

impl Wire for Backlog {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.0.len());
        if length == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        buffer[..length].copy_from_slice(&self.0[..length]);
        self.0.drain(..length);
        Ok(length)
    }

    fn has_buffered(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn report(&mut self, _: Lsn, _: i64, _: bool) -> io::Result<()> {
        self.1.lock().unwrap().written += UPDATE_BYTES;
        Ok(())
    }

    fn sent(&self) -> SentBytes {
        *self.1.lock().unwrap()
    }

    fn send_copy_done(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, _: Duration, _: Option<Readiness<'_>>) -> io::Result<()> {
        self.2.lock().unwrap().push(Waited::Bytes);
        Ok(())
    }

    fn pause(&mut self, length: Duration, _: Option<Readiness<'_>>) {
        self.2.lock().unwrap().push(Waited::Pause(length));
    }
}

fn parameter_status(length: usize) -> Vec<u8> {
    let mut message = vec![b'S'; length + 1];
    message[1..HEADER_BYTES].copy_from_slice(&(length as u32).to_be_bytes());
    message
}

#[test]
fn a_backlog_is_read_with_the_full_buffer_and_in_its_order() {
    let lengths: Vec<usize> = [40_000, 5].into_iter().chain((0..90).map(|it| 9_000 + it)).collect();
    let now = Instant::now();
    let sent: Vec<u8> = lengths.iter().flat_map(|length| parameter_status(*length)).collect();
    let mut stream = Stream::new(Box::new(Backlog::of(&sent)), now);
    let (mut received, mut read_max) = (Vec::new(), 0);
    while received.len() < lengths.len() {
        let before = stream.end - stream.start;
        stream.fill(now).expect("more bytes");
        read_max = read_max.max(stream.end - stream.start - before);
        while let Some((packet, length)) = stream.peek().expect("a message") {
            assert!(matches!(packet, Packet::Other));
            stream.consume(length);
            received.push(length - 1);
        }
    }
    assert_eq!(received, lengths);
    assert!(read_max > BUFFER_BYTES / 2, "{read_max} bytes at once");
}

#[test]
fn a_pause_that_the_sink_has_ended_goes_on() {
    let (began, waited) = (Instant::now(), Arc::default());
    let ms = Duration::from_millis;
    let backlog = Backlog(parameter_status(40_000), Arc::default(), Arc::clone(&waited));
    let mut stream = Stream::new(Box::new(backlog), began);
    let stdin = io::stdin();
    let sink = Readiness { socket: stdin.as_fd(), wants_write: false };
    // GIVEN a pause of 12 ms behind a large read that was the last
    assert!(stream.fill(began + ms(1)).unwrap());
    assert!(!stream.fill(began + ms(2)).unwrap());
    let paused = stream.end;
    assert_eq!(stream.pause, Some(ms(12)));
    // WHEN the sink is readable THEN nothing is read before the pause is over
    for at in [2, 5, 13] {
        stream.wait(ms(10), Some(sink), began + ms(at)).unwrap();
        assert!(!stream.fill(began + ms(at)).unwrap());
        assert_eq!(stream.end, paused);
    }
    let pauses = [10, 9, 1].map(|length| Waited::Pause(ms(length)));
    assert_eq!(*waited.lock().unwrap(), pauses);
    stream.wait(ms(10), Some(sink), began + ms(14)).unwrap();
    assert_eq!(waited.lock().unwrap().last(), Some(&Waited::Bytes));
    stream.fill(began + ms(14)).unwrap();
    assert_eq!(stream.paused_until, None);
    // WHEN nobody else is waited for THEN it pauses as long as it wants to
    stream.pause = Some(ms(12));
    stream.wait(ms(10), None, began).unwrap();
    assert_eq!(waited.lock().unwrap().last(), Some(&Waited::Pause(ms(12))));
}

#[test]
fn bytes_may_have_waited_since_the_socket_was_empty() {
    let began = Instant::now();
    let waiting = parameter_status(2 * FIRST_BUFFER_BYTES);
    let mut stream = Stream::new(Box::new(Backlog::of(&waiting)), began);
    let at = |seconds| began + Duration::from_secs(seconds);
    stream.fill(at(5)).expect("more bytes");
    assert_eq!(stream.lived_at(), began, "the buffer is full, and more may wait");
    stream.fill(at(6)).expect("the rest");
    assert_eq!(stream.lived_at(), began);
    stream.fill(at(7)).expect("no bytes");
    assert_eq!(stream.lived_at(), began, "nothing has come");
}

#[test]
fn an_update_is_delivered_once_all_of_it_is_acknowledged() {
    let (began, sent) = (Instant::now(), Arc::new(Mutex::new(SentBytes::default())));
    let mut stream =
        Stream::new(Box::new(Backlog(Vec::new(), Arc::clone(&sent), Arc::default())), began);
    let at = |seconds| began + Duration::from_secs(seconds);
    let report = |stream: &mut Stream, seconds| {
        let now = Moment { instant: at(seconds), unix_us: 0 };
        stream.report(Lsn::ZERO, now, false).unwrap();
    };
    report(&mut stream, 1);
    report(&mut stream, 2);
    sent.lock().unwrap().acknowledged = UPDATE_BYTES - 1;
    assert_eq!(stream.delivered_at(), None);
    // Others follow it at once, so that something is always under way.
    sent.lock().unwrap().acknowledged = UPDATE_BYTES;
    report(&mut stream, 3);
    assert_eq!(stream.delivered_at(), Some(at(1)));
    report(&mut stream, 4);
    report(&mut stream, 5);
    sent.lock().unwrap().acknowledged = 4 * UPDATE_BYTES - 1;
    assert_eq!(stream.delivered_at(), Some(at(1)));
    sent.lock().unwrap().acknowledged = 4 * UPDATE_BYTES;
    assert_eq!(stream.delivered_at(), Some(at(4)));
}

#[test]
fn an_error_is_found_behind_a_full_buffer() {
    let now = Instant::now();
    let said = b"SFATAL\0C57P01\0Mgone\0\0";
    let mut sent: Vec<u8> = parameter_status(9_000).repeat(40);
    sent.push(b'E');
    sent.extend((said.len() as u32 + 4).to_be_bytes());
    sent.extend(said);
    let mut stream = Stream::new(Box::new(Backlog::of(&sent)), now);
    // GIVEN a relay whose window is full: it reads and consumes nothing
    while stream.end < BUFFER_BYTES {
        stream.fill(now).expect("more bytes");
    }
    assert_eq!((stream.start, stream.end), (0, stream.buffer.len()));
    let found = stream.find_error(now);
    let is_fatal = |error: &ServerError| error.sqlstate == "57P01";
    assert!(matches!(&found, Some(StreamError::Server(it)) if is_fatal(it)), "{found:?}");
    // THEN nothing is lost, and the buffer does not grow again
    let (waiting, room) = (stream.end - stream.start, stream.buffer.len());
    assert!(stream.find_error(now).is_some());
    assert_eq!((waiting, room), (sent.len(), stream.buffer.len()));
}
