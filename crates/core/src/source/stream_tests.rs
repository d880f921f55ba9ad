use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};

use super::*;

const UPDATE_BYTES: u64 = 39;

/// A socket that has more than is read at once, what was written to it, what was waited for, and how
/// long the records are that wait decrypted.
pub(crate) struct Backlog(Vec<u8>, Arc<Mutex<SentBytes>>, Arc<Mutex<Vec<Waited>>>, Option<usize>);

#[derive(Debug, PartialEq)]
enum Waited {
    Bytes,
    Pause(Duration),
}

impl Backlog {
    /// A socket of which only the bytes matter that have arrived.
    pub(crate) fn of(bytes: &[u8]) -> Backlog {
        Backlog(bytes.to_vec(), Arc::default(), Arc::default(), None)
    }
}

impl Wire for Backlog {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let length = buffer.len().min(self.0.len()).min(self.3.unwrap_or(usize::MAX));
        buffer[..length].copy_from_slice(&self.0[..length]);
        self.0.drain(..length);
        Ok(length)
    }

    fn has_buffered(&self) -> bool {
        self.3.is_some() && !self.0.is_empty()
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
    let backlog = Backlog(parameter_status(40_000), Arc::default(), Arc::clone(&waited), None);
    let mut stream = Stream::new(Box::new(backlog), began);
    stream.set_confirm_time(ms(6));
    assert_eq!(stream.pacing.confirm_time, ms(6));
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
    // The last read has found no bytes, or has left room for more than there were.
    for seconds in [8, 9] {
        stream.wire = Box::new(Backlog::of(b"S"));
        stream.fill(at(seconds)).expect("a byte");
        assert_eq!(stream.lived_at(), at(seconds - 1));
    }
}

#[test]
fn an_update_is_delivered_once_all_of_it_is_acknowledged() {
    let (began, sent) = (Instant::now(), Arc::new(Mutex::new(SentBytes::default())));
    let socket = Backlog(Vec::new(), Arc::clone(&sent), Arc::default(), None);
    let mut stream = Stream::new(Box::new(socket), began);
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

/// The message of a server that ends the session.
fn fatal() -> Vec<u8> {
    let said = b"SFATAL\0C57P01\0Mgone\0\0";
    [b"E".as_slice(), &(said.len() as u32 + 4).to_be_bytes(), said].concat()
}

fn is_fatal(found: Option<&StreamError>) -> bool {
    matches!(found, Some(StreamError::Server(error)) if error.sqlstate == "57P01")
}

#[test]
fn an_error_is_found_behind_a_full_buffer() {
    let now = Instant::now();
    let sent = [parameter_status(9_000).repeat(40), fatal()].concat();
    let mut stream = Stream::new(Box::new(Backlog::of(&sent)), now);
    // GIVEN a relay whose window is full: it reads and consumes nothing
    while stream.end < BUFFER_BYTES {
        stream.fill(now).expect("more bytes");
    }
    assert_eq!((stream.start, stream.end), (0, stream.buffer.len()));
    let found = stream.find_error(now);
    assert!(is_fatal(found.as_ref()), "{found:?}");
    // THEN nothing is lost, and the buffer does not grow again
    let (waiting, room) = (stream.end - stream.start, stream.buffer.len());
    assert!(stream.find_error(now).is_some());
    assert_eq!((waiting, room), (sent.len(), stream.buffer.len()));
}

#[test]
fn an_error_is_found_behind_what_was_consumed_and_during_a_pause() {
    let now = Instant::now();
    let mut stream = Stream::new(Box::new(Backlog::of(&parameter_status(9).repeat(2))), now);
    stream.fill(now).expect("two messages");
    stream.consume(10);
    stream.paused_until = Some(now + Duration::from_millis(12));
    stream.wire = Box::new(Backlog::of(&fatal()));
    let found = stream.find_error(now);
    assert!(is_fatal(found.as_ref()), "{found:?}");
}

#[test]
fn records_that_wait_decrypted_are_read_until_the_buffer_is_full() {
    let now = Instant::now();
    let sent = parameter_status(50_000);
    let socket = Backlog(sent.clone(), Arc::default(), Arc::default(), Some(16 * 1024));
    let mut stream = Stream::new(Box::new(socket), now);
    for end in [FIRST_BUFFER_BYTES, sent.len()] {
        stream.fill(now).expect("more bytes");
        assert_eq!(stream.end, end);
    }
}

#[test]
fn the_buffer_grows_for_a_large_message_and_shrinks_behind_it() {
    let now = Instant::now();
    let lengths = [2 * BUFFER_BYTES, 9_000];
    let sent = lengths.map(parameter_status).concat();
    let mut stream = Stream::new(Box::new(Backlog::of(&sent)), now);
    for (length, room) in lengths.into_iter().zip([2 * BUFFER_BYTES + 1, BUFFER_BYTES]) {
        while stream.peek().expect("messages").is_none() {
            stream.fill(now).expect("more bytes");
        }
        assert_eq!(stream.buffer.len(), room);
        stream.consume(length + 1);
        assert_eq!(stream.buffer.len(), BUFFER_BYTES);
    }
}
