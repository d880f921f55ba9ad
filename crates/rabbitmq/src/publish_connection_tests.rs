//! A connection whose other end is a socket of the test.

use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};

use amq_protocol::frame::{AMQPFrame, parse_frame};
use amq_protocol::protocol::{AMQPClass, basic, connection};
use proptest::prelude::*;
use socket2::SockRef;
use walrelay_amqp::login::Agreed;
use walrelay_amqp::method::Tuning;
use walrelay_core::sink::Sink as _;
use walrelay_core::sink::rabbitmq::publish::RabbitSink;

use super::*;
use crate::connection_loss::AmqpAddress;
use crate::limits::Limits;
use crate::publish_port::PublishPort;
use crate::publisher::Publisher;
use crate::settings::RabbitSettings;
use walrelay_base::event::Outbound;

const SELECT_OK: &[u8] = b"\x01\0\x01\0\0\0\x04\0\x55\0\x0b\xce";
const BLOCKED: &[u8] = b"\x01\0\0\0\0\0\x08\0\x0a\0\x3c\x03low\xce";
/// A close of the connection with code 320.
const CLOSE: &[u8] = b"\x01\0\0\0\0\0\x0d\0\x0a\0\x32\x01\x40\x02no\0\0\0\0\xce";
const CLOSE_OK: &[u8] = b"\x01\0\0\0\0\0\x04\0\x0a\0\x33\xce";
const UNBLOCKED: &[u8] = b"\x01\0\0\0\0\0\x04\0\x0a\0\x3d\xce";
/// An ack of delivery tag 1 on channel 1.
const ACK: &[u8] = b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x50\0\0\0\0\0\0\0\x01\0\xce";
/// A close of channel 1 with code 406.
const CHANNEL_CLOSE: &[u8] = b"\x01\0\x01\0\0\0\x0d\0\x14\0\x28\x01\x96\x02no\0\0\0\0\xce";
const LARGE_BYTES: usize = 16_000_000;
const HOUR: Duration = Duration::from_secs(3600);

fn connection() -> (PublishConnection, TcpStream) {
    connection_since(Instant::now(), 0)
}

/// A connection whose other end has sent no byte since then.
fn connection_since(heard_at: Instant, heartbeat_s: u16) -> (PublishConnection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nodelay(true).unwrap();
    let (far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let tuning = Tuning { channel_max: 9, frame_max: 32 * 1024, heartbeat_s };
    let agreed = Agreed { cluster_name: "c".to_owned(), tuning };
    let mut session = Session::new(agreed, heard_at);
    assert!(session.open_channel(&mut Vec::new()));
    let transport = Transport::new(near, None).unwrap();
    let mut connection =
        PublishConnection::new(transport, session, 0, 1, Vec::new(), SELECT_OK.to_vec());
    assert_eq!(connection.next_event(), Some(AmqpEvent::ChannelOpened(1)));
    (connection, far)
}

fn message(id: &str, body: &[u8]) -> AmqpMessage {
    let value = Some(body);
    let event = Outbound { exchange: "x", topic: "r", value, id, ..Outbound::default() };
    AmqpMessage::event(&event, &Limits::default(), None).unwrap()
}

/// Reads until so many messages have arrived as a whole, and returns their ids.
fn ids(far: &mut impl Read, count: usize) -> Vec<String> {
    let (mut ids, mut bytes, mut left) = (Vec::new(), Vec::new(), None);
    let mut part = vec![0; 1 << 20];
    while ids.len() < count || left.is_some() {
        let frame = match parse_frame(&*bytes) {
            Ok((rest, frame)) => {
                let length = bytes.len() - rest.len();
                bytes.drain(..length);
                frame
            }
            Err(_) => {
                let read = far.read(&mut part).unwrap();
                assert!(read > 0, "{ids:?}, and the connection ended");
                bytes.extend(&part[..read]);
                continue;
            }
        };
        match frame {
            AMQPFrame::Header(_, header) => {
                ids.push(header.properties.message_id().as_ref().unwrap().to_string());
                left = Some(header.body_size).filter(|left| *left > 0);
            }
            AMQPFrame::Body(_, body) => {
                left = left.map(|left| left - body.len() as u64).filter(|left| *left > 0);
            }
            AMQPFrame::Method(_, AMQPClass::Basic(basic::AMQPMethod::Publish(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(bytes.is_empty(), "{} more bytes", bytes.len());
    ids
}

fn waits_for_socket(connection: &PublishConnection) -> bool {
    connection.readiness().unwrap().wants_write
}

/// Writes a message of which the socket takes a part.
fn begin(connection: &mut PublishConnection) {
    connection.publish(1, &message("large", &vec![b'x'; LARGE_BYTES]));
    connection.write(None);
    assert!(waits_for_socket(connection) && connection.messages.has_begun());
}

#[test]
fn a_message_that_is_begun_is_finished_only_once_there_is_time_again() {
    let (mut connection, mut far) = connection();
    begin(&mut connection);
    connection.publish(1, &message("later", b"y"));
    let now = Instant::now();
    // WHEN the time is over, and the other end reads
    let written = connection.transport.written_bytes();
    let mut arrived = vec![0; written as usize];
    far.read_exact(&mut arrived).unwrap();
    connection.write(Some(now));
    // THEN no more is written, and nothing waits for the socket
    assert_eq!(connection.transport.written_bytes(), written);
    assert!(written < LARGE_BYTES as u64 && !waits_for_socket(&connection));
    // WHEN there is time again THEN the rest is sent, and what waited behind it
    let reader = std::thread::spawn(move || ids(&mut Read::chain(&arrived[..], far), 2));
    while !connection.messages.is_empty() {
        connection.write(Some(now + HOUR));
        connection.wait(Duration::from_millis(10));
    }
    assert_eq!(reader.join().unwrap(), ["large", "later"]);
    assert!(!connection.has_ended);
}

#[test]
fn a_blocked_connection_sends_no_message_and_is_told_so_in_order() {
    let (mut connection, mut far) = connection();
    far.write_all(&[ACK, BLOCKED].concat()).unwrap();
    connection.wait(HOUR);
    let acked = (1, Answer::Confirm { tag: 1, multiple: false, acked: true });
    assert_eq!(connection.next_event(), Some(AmqpEvent::Answers(vec![acked])));
    assert_eq!(connection.next_event(), Some(AmqpEvent::Blocked("low".to_owned())));
    connection.publish(1, &message("a", b"y"));
    let before = connection.transport.written_bytes();
    connection.write(None);
    assert_eq!(connection.transport.written_bytes(), before);
    assert!(!waits_for_socket(&connection));
    far.write_all(UNBLOCKED).unwrap();
    connection.wait(HOUR);
    assert_eq!(connection.next_event(), Some(AmqpEvent::Unblocked));
    connection.write(None);
    assert_eq!(ids(&mut far, 1), ["a"]);
}

#[test]
fn a_confirm_behind_a_close_counts_no_more() {
    let (mut connection, mut far) = connection();
    far.write_all(&[CHANNEL_CLOSE, ACK].concat()).unwrap();
    connection.wait(HOUR);
    connection.read();
    connection.publish(1, &message("a", b"y"));
    assert!(connection.messages.is_empty());
    let closed = AmqpEvent::Closed(ConnectionLoss::refused(406, "no"));
    assert_eq!(connection.next_event(), Some(closed));
}

#[test]
fn a_close_is_answered_before_the_connection_ends() {
    let (mut connection, mut far) = connection();
    connection.transport.set_linger(Some(Duration::ZERO)).unwrap();
    far.write_all(BLOCKED).unwrap();
    connection.wait(HOUR);
    connection.read();
    connection.publish(1, &message("a", b"y"));
    far.write_all(CLOSE).unwrap();
    while !connection.awaits_close_ok {
        connection.reads_left = 1;
        connection.read();
    }
    connection.abandon();
    let mut bytes = Vec::new();
    far.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, CLOSE_OK);
}

#[test]
fn what_has_arrived_counts_before_a_missed_heartbeat() {
    let long_ago = Instant::now() - Duration::from_secs(60);
    // GIVEN a process that has stood still, and a server that was alive meanwhile, or was not
    for (arrived, ends) in [(ACK, false), (&[][..], true)] {
        let (mut connection, mut far) = connection_since(long_ago, 1);
        far.write_all(arrived).unwrap();
        if !arrived.is_empty() {
            connection.transport.wait(HOUR, false).unwrap();
        }
        connection.write(None);
        assert_eq!(connection.has_ended, ends);
    }
}

#[test]
fn reading_leaves_time_to_write() {
    let (mut connection, mut far) = connection();
    connection.reads_left = 0;
    far.write_all(ACK).unwrap();
    connection.transport.wait(HOUR, false).unwrap();
    assert_eq!(connection.next_event(), None);
    connection.write(None);
    assert!(matches!(connection.next_event(), Some(AmqpEvent::Answers(_))));
    assert_eq!(connection.reads_left, READS_MAX - 2);
}

/// Lets the sink work and reads a little at a time until a channel is opened. Returns its number.
fn read_question(
    sink: &mut RabbitSink<PublishPort>,
    far: &mut TcpStream,
    unread: &mut Vec<u8>,
    now: Instant,
) -> u16 {
    far.set_nonblocking(true).unwrap();
    loop {
        sink.poll(now, Duration::ZERO, &mut Vec::new());
        let mut part = [0; 4096];
        match far.read(&mut part) {
            Ok(0) => panic!("the connection ended"),
            Ok(count) => unread.extend(&part[..count]),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        while let Some((frame, length)) = Frame::split(unread).unwrap() {
            let opened = frame.payload.starts_with(&[0, 20, 0, 10]).then_some(frame.channel);
            unread.drain(..length);
            if let Some(channel) = opened {
                return channel;
            }
        }
    }
}

#[test]
fn what_waits_for_a_slow_reader_is_not_taken_for_unanswered() {
    let (connection, mut far) = connection();
    SockRef::from(&connection.transport).set_send_buffer_size(16 << 10).unwrap();
    let now = Instant::now();
    let mut publisher = Publisher::new(AmqpAddress::default(), 1);
    publisher.handle(AmqpEvent::Connected(connection.facts("/")), now);
    let port = PublishPort::new(RabbitSettings::default(), Some(connection));
    // GIVEN more bytes than may be in flight, and a broker that answers each question
    for sequence in 0..32 {
        let message = message(&sequence.to_string(), &vec![b'x'; 1_000_000]);
        publisher.publish(sequence, message);
    }
    let mut sink = RabbitSink::new(publisher, port, 1);
    let mut unread = Vec::new();
    let mut asks = |sink: &mut RabbitSink<PublishPort>, now, is_named| {
        let channel = read_question(sink, &mut far, &mut unread, now);
        let [high, low] = channel.to_be_bytes();
        let open_ok = [1, high, low, 0, 0, 0, 8, 0, 20, 0, 11, 0, 0, 0, 0, 0xce];
        let declare_ok = [1, high, low, 0, 0, 0, 4, 0, 40, 0, 11, 0xce];
        far.set_nonblocking(false).unwrap();
        far.write_all(&open_ok).unwrap();
        if is_named {
            far.write_all(&declare_ok).unwrap();
        }
    };
    asks(&mut sink, now, true);
    for round in 1..4 {
        let now = now + round * Duration::from_secs(5);
        asks(&mut sink, now, false);
        // THEN no more waits than may be in flight
        let connection = sink.port().connection.as_ref().unwrap();
        let waiting = connection.messages.rest(false).len();
        assert!(waiting < 10_000_000, "{waiting} bytes in round {round}");
    }
}

#[test]
fn a_connection_in_good_order_says_that_it_ends() {
    let (connection, mut far) = connection();
    connection.close();
    let mut bytes = Vec::new();
    far.read_to_end(&mut bytes).unwrap();
    let ([], AMQPFrame::Method(0, AMQPClass::Connection(connection::AMQPMethod::Close(close)))) =
        parse_frame(&*bytes).unwrap()
    else {
        panic!("{bytes:?}")
    };
    assert_eq!(close.reply_code, 200);
}

#[test]
fn a_connection_that_is_dropped_sends_nothing_more() {
    let (mut connection, mut far) = connection();
    connection.transport.set_linger(Some(Duration::ZERO)).unwrap();
    begin(&mut connection);
    drop(connection);
    // THEN it is reset: the kernel throws away what it has not sent
    let error = far.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

proptest! {
    #[test]
    fn the_frame_of_the_properties_is_no_larger_than_was_checked(
        names in prop::collection::vec("[a-z€]{0,40}", 2),
        optional in prop::collection::vec(prop::option::of("[a-z/]{0,20}"), 2),
        headers in prop::collection::vec(("[ab]{0,2}|key", any::<Vec<u8>>()), 0..8),
        key in any::<Option<Vec<u8>>>(),
    ) {
        let headers: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let event = Outbound {
            exchange: "x",
            topic: &names[0],
            key: key.as_deref(),
            id: &names[1],
            event_type: optional[0].as_deref(),
            content_type: optional[1].as_deref(),
            headers: &headers,
            ..Outbound::default()
        };
        let message = AmqpMessage::event(&event, &Limits::default(), None).unwrap();
        let mut frames = Vec::new();
        put_message(&message, 7, 1, 4096, &mut frames);
        let (_, publish_bytes) = Frame::split(&frames).unwrap().unwrap();
        let (_, header_bytes) = Frame::split(&frames[publish_bytes..]).unwrap().unwrap();
        prop_assert!(header_bytes <= message.properties_bytes);
    }
}
