//! The dead-letter queue as a log: every record in order, the end exactly, and nothing consumed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use walrelay::base::error::{Exit, Fault};
use walrelay::dead_letter::record::LogEntry;
use walrelay::dead_letter::writer::DeadLetterAddress;
use walrelay::sink::log::{DeadLetterLog, LogRead, ReadFrom};
use walrelay_harness::kit::now_us;
use walrelay_harness::rabbit::{Outcome, Properties, Queue, Rabbit, Value};

use crate::sinks::reading::{next, whole};
use crate::sinks::real;
use crate::sinks::section;
use crate::sinks::test_relay::LIMIT;
use crate::support::shared_rabbitmq;

const PATIENCE: Duration = Duration::from_millis(20);

fn address(name: &str) -> DeadLetterAddress {
    DeadLetterAddress { exchange: name.to_owned(), topic: name.to_owned() }
}

fn open(name: &str, from: ReadFrom) -> Box<dyn DeadLetterLog> {
    real::broker().log(&address(name), from).unwrap_or_else(|fault| panic!("{fault}"))
}

fn stream(name: &str) -> Rabbit {
    let mut rabbit = real::admin();
    rabbit.declare_stream(name).unwrap();
    rabbit.confirm().unwrap();
    rabbit
}

/// Writes bodies to the stream; they are there for good when this returns.
pub(crate) fn write(rabbit: &mut Rabbit, name: &str, bodies: &[String]) {
    for body in bodies {
        rabbit.publish(("", name), &Properties::default(), body.as_bytes(), true);
    }
    rabbit.flush().unwrap();
    let mut left = bodies.len();
    // Tags rise from one write to the next; a confirm of several names the last.
    let mut last = None;
    while left > 0 {
        let Some(Outcome::Acked(tag, several)) = rabbit.outcome(LIMIT).unwrap() else {
            panic!("not taken");
        };
        let count = if several { last.map_or(tag, |last| tag - last) } else { 1 };
        left -= usize::try_from(count).unwrap().min(left);
        last = Some(tag);
    }
}

/// Writes a record with a header of so many bytes.
fn write_header(rabbit: &mut Rabbit, name: &str, header_bytes: usize, body: &str) {
    let headers = vec![("large".to_owned(), Value::Bytes(vec![b'h'; header_bytes]))];
    let properties = Properties { headers, ..Properties::default() };
    rabbit.publish(("", name), &properties, body.as_bytes(), true);
    rabbit.flush().unwrap();
    assert!(matches!(rabbit.outcome(LIMIT).unwrap(), Some(Outcome::Acked(..))));
}

/// A header name that is no text by the time it is at the broker.
const NO_TEXT: &str = "no-text!";

/// The address of the broker, by a way on which [`NO_TEXT`] loses its meaning.
fn garbling() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut far = TcpStream::connect(("127.0.0.1", shared_rabbitmq().port())).unwrap();
        let (mut back, mut home) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut home));
        let mut bytes = vec![0; 1 << 20];
        while let Ok(count @ 1..) = near.read(&mut bytes) {
            let length = NO_TEXT.len();
            for at in 0..count.saturating_sub(length) {
                if bytes[at..at + length] == *NO_TEXT.as_bytes() {
                    bytes[at..at + length].fill(0xff);
                }
            }
            far.write_all(&bytes[..count]).unwrap();
        }
    });
    format!("amqp://guest:guest@127.0.0.1:{port}/%2f")
}

/// Writes a record that the relay's client cannot read.
fn write_garbled(name: &str) {
    let mut rabbit = Rabbit::open(&garbling()).unwrap();
    rabbit.confirm().unwrap();
    let headers = vec![(NO_TEXT.to_owned(), Value::from("x"))];
    let properties = Properties { headers, ..Properties::default() };
    rabbit.publish(("", name), &properties, b"garbled", true);
    rabbit.flush().unwrap();
    assert_eq!(rabbit.outcome(LIMIT).unwrap(), Some(Outcome::Acked(1, false)));
    rabbit.close();
}

pub(crate) fn bodies(entries: &[LogEntry]) -> Vec<String> {
    let text = |entry: &LogEntry| String::from_utf8(entry.value.clone().unwrap()).unwrap();
    entries.iter().map(text).collect()
}

pub(crate) fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("{number:0200}")).collect()
}

#[test]
fn ten_thousand_records_come_in_order_up_to_the_end_and_reading_takes_nothing() {
    // GIVEN a stream with ten thousand records
    const NAME: &str = "log.many";
    let mut rabbit = stream(NAME);
    let written = numbered(0..10_000);
    write(&mut rabbit, NAME, &written);
    // WHEN it is read THEN all come, in order, and the end behind the last, once
    let mut log = open(NAME, ReadFrom::Beginning);
    let read = whole(&mut *log);
    assert!(bodies(&read) == written, "{} records", read.len());
    let offsets: Vec<i64> = read.iter().map(|entry| entry.position.offset).collect();
    assert_eq!(offsets, (0..10_000).collect::<Vec<i64>>());
    assert_eq!(log.next(Duration::ZERO).unwrap(), LogRead::Nothing);
    // WHEN it is read once more THEN it is the same
    assert!(whole(&mut *open(NAME, ReadFrom::Beginning)) == read);
    // WHEN more is written THEN both who wait see it, and who comes now
    let more = numbered(10_000..10_003);
    write(&mut rabbit, NAME, &more);
    let followed: Vec<LogEntry> = more.iter().map(|_| next(&mut *log)).collect();
    assert_eq!(bodies(&followed), more);
    assert_eq!(whole(&mut *open(NAME, ReadFrom::Beginning)).len(), 10_003);
}

#[test]
fn an_empty_stream_ends_at_once_and_goes_on() {
    const NAME: &str = "log.empty";
    let mut rabbit = stream(NAME);
    for from in [ReadFrom::Beginning, ReadFrom::Time(0), ReadFrom::Time(now_us()), ReadFrom::End] {
        // The first word is the end, without waiting.
        assert_eq!(
            open(NAME, from.clone()).next(Duration::ZERO).unwrap(),
            LogRead::End,
            "{from:?}"
        );
    }
    let mut log = open(NAME, ReadFrom::Beginning);
    write(&mut rabbit, NAME, &numbered(0..1));
    // What came after it was opened may come before the end is told.
    assert_eq!(next_or_end(&mut *log), numbered(0..1));
}

#[test]
fn reading_begins_where_it_is_told_to() {
    const NAME: &str = "log.from";
    let mut rabbit = stream(NAME);
    write(&mut rabbit, NAME, &numbered(0..500));
    const HOUR_US: i64 = 3_600_000_000;
    let count = |from: ReadFrom| whole(&mut *open(NAME, from)).len();
    assert_eq!(count(ReadFrom::Time(0)), 500);
    assert_eq!(count(ReadFrom::Time(-1)), 500);
    assert_eq!(count(ReadFrom::Time(now_us() - HOUR_US)), 500);
    // What is before the time is not read.
    assert_eq!(count(ReadFrom::Time(now_us() + HOUR_US)), 0);
    assert_eq!(count(ReadFrom::Time(i64::MAX)), 0);
    // WHEN only news is wanted THEN it begins with what is written next
    let mut news = open(NAME, ReadFrom::End);
    write(&mut rabbit, NAME, &numbered(500..501));
    assert_eq!(next_or_end(&mut *news), numbered(500..501));
}

#[test]
fn reading_from_a_time_in_the_middle_misses_nothing_and_leaves_out_what_is_before() {
    // GIVEN two groups of records, one well before and one well after a time; what is written at
    // once is at most one chunk, and by chunks the broker seeks
    const NAME: &str = "log.middle";
    const AT_ONCE: usize = 100;
    const BEFORE: usize = 30 * AT_ONCE;
    const ALL: usize = BEFORE + 3 * AT_ONCE;
    let mut rabbit = stream(NAME);
    let mut write_range = |range: std::ops::Range<usize>| {
        for first in range.step_by(AT_ONCE) {
            write(&mut rabbit, NAME, &numbered(first..first + AT_ONCE));
        }
    };
    write_range(0..BEFORE);
    // A seek goes by whole seconds.
    wait_us(2_000_000);
    let between = now_us();
    wait_us(2_000_000);
    write_range(BEFORE..ALL);
    // WHEN it is read from this time on THEN all of the second group is there, and at most a chunk of
    // the first
    let found = bodies(&whole(&mut *open(NAME, ReadFrom::Time(between))));
    println!("{} of {ALL} records read", found.len());
    assert!(found.ends_with(&numbered(BEFORE..ALL)), "{:?}", found.first());
    assert!(found.len() <= ALL - BEFORE + AT_ONCE, "{} records", found.len());
    // THEN what is read has no gap
    assert_eq!(found, numbered(ALL - found.len()..ALL));
}

/// Until the clock, which is the broker's too, has moved on by so much.
fn wait_us(span: i64) {
    let end = now_us() + span;
    while now_us() < end {
        std::thread::sleep(PATIENCE);
    }
}

fn next_or_end(log: &mut dyn DeadLetterLog) -> Vec<String> {
    let mut seen = whole(log);
    if seen.is_empty() {
        seen.push(next(log));
    }
    bodies(&seen)
}

#[test]
fn large_records_come_whole() {
    const NAME: &str = "log.large";
    let mut rabbit = stream(NAME);
    let written: Vec<String> =
        (10..80).map(|number: u32| number.to_string().repeat(450_000)).collect();
    write(&mut rabbit, NAME, &written);
    assert!(bodies(&whole(&mut *open(NAME, ReadFrom::Beginning))) == written);
}

#[test]
fn what_is_no_stream_is_told_and_nothing_is_taken_from_it() {
    let mut rabbit = real::admin();
    rabbit.confirm().unwrap();
    rabbit.declare_queue("log.classic", Queue::Classic).unwrap();
    write(&mut rabbit, "log.classic", &numbered(0..1));
    let fault = real::broker().log(&address("log.classic"), ReadFrom::Beginning).err().unwrap();
    assert_eq!(fault.code, "sink.dead-letter-not-a-stream");
    assert!(fault.mend.contains("walrelay init"), "{fault}");
    let taken = rabbit.take("log.classic").unwrap();
    assert_eq!((taken.len(), taken[0].redelivered), (1, false));
    // One that is not there.
    let fault = real::broker().log(&address("log.none"), ReadFrom::Beginning).err().unwrap();
    assert_eq!(fault.code, "sink.dead-letter-missing");
    assert_eq!(fault.mend, "walrelay init", "{fault}");
}

#[test]
fn a_stream_that_goes_away_under_the_reader_is_told() {
    const NAME: &str = "log.deleted";
    let mut rabbit = stream(NAME);
    let mut log = open(NAME, ReadFrom::Beginning);
    assert_eq!(log.next(PATIENCE).unwrap(), LogRead::End);
    rabbit.delete_queue(NAME).unwrap();
    let fault = failure(&mut *log);
    assert_eq!(fault.exit, Exit::Sink, "{fault}");
    // WHEN it is opened again THEN it is known that it is missing
    let fault = real::broker().log(&address(NAME), ReadFrom::Beginning).err().unwrap();
    assert_eq!((fault.code, fault.may_pass), ("sink.dead-letter-missing", false), "{fault}");
}

#[test]
fn a_node_that_stops_and_a_password_that_is_changed_are_outages_of_the_reader() {
    const NAME: &str = "log.forced";
    let (_rabbit, node) = (stream(NAME), shared_rabbitmq());
    let eval = |call: &str| node.eval(&format!("User = <<\"{NAME}\">>, ok = {call}")).unwrap();
    node.add_user(NAME, NAME).unwrap();
    let broker = section::rabbitmq_as(NAME, node.port(), Duration::from_secs(10));
    let mut log = broker.log(&address(NAME), ReadFrom::Beginning).unwrap();
    assert_eq!(log.next(PATIENCE).unwrap(), LogRead::End);
    // WHEN the node ends the connection, as it does before it stops
    eval("rabbit_networking:close_all_user_connections(User, \"the node stops\")");
    let fault = failure(&mut *log);
    assert_eq!((fault.code, fault.may_pass), ("sink.unreachable", true), "{fault}");
    // WHEN the login is refused
    eval("rabbit_auth_backend_internal:change_password(User, <<\"other\">>, <<\"test\">>)");
    let fault = broker.log(&address(NAME), ReadFrom::Beginning).err().unwrap();
    assert_eq!((fault.code, fault.may_pass), ("sink.login", true), "{fault}");
}

/// Reads until that fails.
fn failure(log: &mut dyn DeadLetterLog) -> Fault {
    let began = Instant::now();
    loop {
        match log.next(PATIENCE) {
            Err(fault) => return fault,
            Ok(read) => assert!(began.elapsed() < LIMIT, "{read:?}"),
        }
    }
}

#[test]
fn records_that_the_client_cannot_read_are_passed_over_and_no_other() {
    // GIVEN such records at the beginning, two in a row in the middle, and at the end
    const NAME: &str = "log.garbled";
    let mut rabbit = stream(NAME);
    let written = numbered(0..300);
    write_garbled(NAME);
    write(&mut rabbit, NAME, &written[..100]);
    write_garbled(NAME);
    write_garbled(NAME);
    write(&mut rabbit, NAME, &written[100..]);
    write_garbled(NAME);
    // WHEN it is read THEN all the others come, each once and in order, and the end
    assert!(bodies(&whole(&mut *open(NAME, ReadFrom::Time(0)))) == written);
    let mut log = open(NAME, ReadFrom::Beginning);
    assert!(bodies(&whole(&mut *log)) == written);
    // AND what is written later, behind another one, too
    write_garbled(NAME);
    let more = numbered(300..301);
    write(&mut rabbit, NAME, &more);
    assert_eq!(bodies(&[next(&mut *log)]), more);
}

#[test]
fn headers_as_large_as_the_frames_of_others_are_read_and_larger_ones_passed_over() {
    const NAME: &str = "log.large-headers";
    let mut rabbit = stream(NAME);
    // GIVEN headers that fill more than a frame of the relay, and almost one of the broker's default
    write_header(&mut rabbit, NAME, 40 * 1024, "0");
    write_header(&mut rabbit, NAME, 127 * 1024, "1");
    // GIVEN headers that fill it, so that the broker, which adds the offset, sends a larger one
    write_header(&mut rabbit, NAME, 128 * 1024 - 40, "too large");
    write_header(&mut rabbit, NAME, 1, "2");
    // WHEN the stream is read THEN that one alone is passed over
    let mut log = open(NAME, ReadFrom::Beginning);
    let read = whole(&mut *log);
    assert_eq!(bodies(&read), ["0", "1", "2"]);
    assert_eq!(read[1].headers[0].1.len(), 127 * 1024);
    // AND what is written later is read
    write_header(&mut rabbit, NAME, 40 * 1024, "3");
    assert_eq!(bodies(&[next(&mut *log)]), ["3"]);
}

#[test]
fn a_stream_of_what_cannot_be_read_has_an_end() {
    const NAME: &str = "log.garbled-only";
    let _rabbit = stream(NAME);
    write_garbled(NAME);
    assert_eq!(whole(&mut *open(NAME, ReadFrom::Beginning)), []);
}

#[test]
fn news_behind_what_cannot_be_read_are_seen() {
    const NAME: &str = "log.garbled-news";
    let mut rabbit = stream(NAME);
    write(&mut rabbit, NAME, &numbered(0..1));
    let mut news = open(NAME, ReadFrom::End);
    write_garbled(NAME);
    write(&mut rabbit, NAME, &numbered(1..2));
    // What is a little older may come first.
    let (mut seen, began) = (Vec::new(), Instant::now());
    while !bodies(&seen).ends_with(&numbered(1..2)) {
        match news.next(PATIENCE).unwrap() {
            LogRead::Entry(entry) => seen.push(entry),
            _ => assert!(began.elapsed() < LIMIT, "no news within {LIMIT:?}"),
        }
    }
}
