//! The test is the broker at one end, lapin at the other, and the publisher.

use std::io::ErrorKind;

use amq_protocol::frame::{AMQPFrame, gen_frame};
use amq_protocol::protocol::{AMQPClass, basic, channel, connection};
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

const LIMIT: Duration = Duration::from_secs(20);
const CHANNEL: u16 = 1;

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LIMIT, test).await.expect("it hangs") });
}

/// lapin's socket, the multiplexer, and the broker, which is sent so many bytes at a time.
fn joined(bytes: usize) -> (TcpStream, Multiplexer, DuplexStream) {
    let (ours, broker) = duplex(bytes);
    let (lapin, multiplexer) = Multiplexer::over(ours).unwrap();
    multiplexer.serve(CHANNEL);
    (lapin, multiplexer, broker)
}

fn frame(frame: &AMQPFrame) -> Vec<u8> {
    gen_frame(frame)(Vec::new().into()).unwrap().into_inner().0
}

fn body(channel: u16, bytes: &[u8]) -> Vec<u8> {
    frame(&AMQPFrame::Body(channel, bytes.to_vec()))
}

fn ack(delivery_tag: u64) -> Vec<u8> {
    let ack = basic::AMQPMethod::Ack(basic::Ack { delivery_tag, multiple: false });
    frame(&AMQPFrame::Method(CHANNEL, AMQPClass::Basic(ack)))
}

fn connection(method: connection::AMQPMethod) -> Vec<u8> {
    frame(&AMQPFrame::Method(0, AMQPClass::Connection(method)))
}

async fn reads(from: &mut (impl AsyncRead + Unpin), expected: &[u8]) {
    let mut read = vec![0; expected.len()];
    from.read_exact(&mut read).await.unwrap();
    assert_eq!(read, expected);
}

#[test]
fn publishes_go_between_frames_of_lapin_and_never_into_one() {
    run(async {
        let (mut lapin, multiplexer, mut broker) = joined(7);
        let (theirs, ours) = (body(5, &[5; 40_000]), body(CHANNEL, &[1; 40_000]));
        lapin.write_all(b"AMQP\0\0\x09\x01").await.unwrap();
        reads(&mut broker, b"AMQP\0\0\x09\x01").await;
        // GIVEN a frame of which lapin has sent the first part
        let (first, rest) = theirs.split_at(20_000);
        lapin.write_all(first).await.unwrap();
        // WHEN messages are published
        let mut frames = ours.clone();
        multiplexer.publish(&mut frames);
        assert!(frames.is_empty());
        multiplexer.publish(&mut ours.clone());
        // THEN the broker reads them, and lapin's frame once it is whole
        reads(&mut broker, &ours).await;
        reads(&mut broker, &ours).await;
        lapin.write_all(rest).await.unwrap();
        reads(&mut broker, &theirs).await;
    });
}

#[test]
fn answers_are_kept_from_lapin_and_all_else_is_passed() {
    run(async {
        let (mut lapin, multiplexer, mut broker) = joined(1024);
        let other = body(5, &[5; 3_000]);
        let said = [ack(1), other.clone(), ack(2), HEARTBEAT.to_vec()].concat();
        broker.write_all(&said).await.unwrap();
        reads(&mut lapin, &[&other[..], &HEARTBEAT].concat()).await;
        multiplexer.answered().await;
        let confirm = |tag| (CHANNEL, Answer::Confirm { tag, multiple: false, acked: true });
        assert_eq!(multiplexer.answers(), [confirm(1), confirm(2)]);
        assert_eq!(multiplexer.answers(), []);
        // Garbage is lapin's to judge.
        broker.write_all(b"HTTP/1.1 400").await.unwrap();
        reads(&mut lapin, b"HTTP/1.1 400").await;
    });
}

#[test]
fn a_blocked_connection_sends_what_lapin_says_and_no_publishes() {
    run(async {
        let (mut lapin, multiplexer, mut broker) = joined(1024);
        let blocked = connection::Blocked { reason: "memory".into() };
        let blocked = connection(connection::AMQPMethod::Blocked(blocked));
        let unblocked = connection(connection::AMQPMethod::Unblocked(connection::Unblocked {}));
        broker.write_all(&blocked).await.unwrap();
        reads(&mut lapin, &blocked).await;
        assert!(multiplexer.is_blocked());
        multiplexer.publish(&mut body(CHANNEL, b"event"));
        for _ in 0..3 {
            lapin.write_all(&HEARTBEAT).await.unwrap();
            reads(&mut broker, &HEARTBEAT).await;
        }
        broker.write_all(&unblocked).await.unwrap();
        reads(&mut broker, &body(CHANNEL, b"event")).await;
        assert!(!multiplexer.is_blocked());
    });
}

#[test]
fn nothing_is_published_behind_the_close_of_the_channel() {
    run(async {
        let (mut lapin, multiplexer, mut broker) = joined(1024);
        let close = channel::Close {
            reply_code: 406,
            reply_text: "too large".into(),
            class_id: 60,
            method_id: 40,
        };
        let close = AMQPClass::Channel(channel::AMQPMethod::Close(close));
        let close = frame(&AMQPFrame::Method(CHANNEL, close));
        broker.write_all(&[ack(1), close.clone()].concat()).await.unwrap();
        reads(&mut lapin, &close).await;
        multiplexer.publish(&mut body(CHANNEL, b"event"));
        // Behind its close-ok the broker would close the connection over a publish.
        lapin.write_all(&HEARTBEAT).await.unwrap();
        drop(lapin);
        let mut read = Vec::new();
        broker.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, HEARTBEAT);
        let confirm = (CHANNEL, Answer::Confirm { tag: 1, multiple: false, acked: true });
        let closed = (NO_CHANNEL, Answer::Closed(ConnectionLoss::refused(406, "too large")));
        assert_eq!(multiplexer.answers(), [confirm, closed]);
    });
}

#[test]
fn lapin_hears_heartbeats_while_the_broker_only_confirms() {
    run(async {
        let (lapin, multiplexer, mut broker) = joined(1024);
        let mut heard = [0; 8];
        let count = loop {
            broker.write_all(&ack(1)).await.unwrap();
            multiplexer.answered().await;
            match lapin.try_read(&mut heard) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => break read.unwrap(),
            }
        };
        assert_eq!((count, heard), (8, HEARTBEAT));
    });
}

#[test]
fn the_end_of_either_side_is_the_end_of_both() {
    run(async {
        // WHEN the broker ends THEN lapin sees an end, and the publisher the reason
        let (mut lapin, multiplexer, broker) = joined(1024);
        drop(broker);
        assert_eq!(lapin.read(&mut [0; 8]).await.unwrap(), 0);
        multiplexer.answered().await;
        let closed = ConnectionLoss::of("the broker closed the connection");
        assert_eq!(multiplexer.answers(), [(NO_CHANNEL, Answer::Closed(closed))]);

        // WHEN lapin ends THEN the broker reads its last frames and an end
        let (mut lapin, multiplexer, mut broker) = joined(7);
        lapin.write_all(&body(5, &[5; 10_000])).await.unwrap();
        drop(lapin);
        reads(&mut broker, &body(5, &[5; 10_000])).await;
        assert_eq!(broker.read(&mut [0; 8]).await.unwrap(), 0);
        assert_eq!(multiplexer.answers(), [], "lapin reports why");
    });
}
