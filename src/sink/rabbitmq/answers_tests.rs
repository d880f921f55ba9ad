use amq_protocol::frame::{AMQPContentHeader, gen_frame};
use amq_protocol::protocol::BasicProperties;

use super::*;

fn bytes(frame: &AMQPFrame) -> Vec<u8> {
    gen_frame(frame)(Vec::new().into()).unwrap().into_inner().0
}

fn method(channel: u16, method: AMQPClass) -> Vec<u8> {
    bytes(&AMQPFrame::Method(channel, method))
}

fn basic(method: basic::AMQPMethod) -> AMQPClass {
    AMQPClass::Basic(method)
}

fn returned() -> AMQPClass {
    basic(basic::AMQPMethod::Return(basic::Return {
        reply_code: 312,
        reply_text: "NO_ROUTE".into(),
        exchange: "e".into(),
        routing_key: "r".into(),
    }))
}

fn header(channel: u16, id: Option<&str>) -> Vec<u8> {
    let mut properties = BasicProperties::default().with_content_type("c".into());
    if let Some(id) = id {
        properties = properties.with_message_id(id.into());
    }
    bytes(&AMQPFrame::Header(channel, AMQPContentHeader { class_id: 60, body_size: 3, properties }))
}

#[test]
fn answers_of_our_channel_are_told_from_all_else() {
    let mut answers = Answers::default();
    let ack = basic(basic::AMQPMethod::Ack(basic::Ack { delivery_tag: 7, multiple: true }));
    let confirm = FrameMeaning::Answer(2, Answer::Confirm { tag: 7, multiple: true, acked: true });
    assert_eq!(answers.read_frame(&method(2, ack.clone()), &[2]), confirm);
    assert_eq!(answers.read_frame(&method(3, ack.clone()), &[2]), FrameMeaning::Other);
    assert_eq!(answers.read_frame(&method(2, ack), &[]), FrameMeaning::Other);
    let nack = basic::Nack { delivery_tag: 9, multiple: false, requeue: false };
    let nacked = FrameMeaning::Answer(2, Answer::Confirm { tag: 9, multiple: false, acked: false });
    let nack = basic(basic::AMQPMethod::Nack(nack));
    assert_eq!(answers.read_frame(&method(2, nack), &[2]), nacked);
    assert_eq!(answers.read_frame(&HEARTBEAT, &[2]), FrameMeaning::Other);
    let opened = AMQPClass::Channel(channel::AMQPMethod::OpenOk(channel::OpenOk {}));
    assert_eq!(answers.read_frame(&method(2, opened), &[2]), FrameMeaning::Other);
}

#[test]
fn a_return_is_known_once_its_properties_are() {
    let mut answers = Answers::default();
    for id in ["e-1", ""] {
        assert_eq!(answers.read_frame(&method(2, returned()), &[2]), FrameMeaning::Part);
        // A consumer's channel may come between.
        assert_eq!(answers.read_frame(&header(3, Some("other")), &[2]), FrameMeaning::Other);
        let id = (!id.is_empty()).then_some(id);
        let known = ReturnedMessage {
            id: id.unwrap_or_default().to_owned(),
            code: 312,
            text: "NO_ROUTE".to_owned(),
        };
        assert_eq!(
            answers.read_frame(&header(2, id), &[2]),
            FrameMeaning::Answer(2, Answer::Returned(known))
        );
        let body = bytes(&AMQPFrame::Body(2, b"abc".to_vec()));
        assert_eq!(answers.read_frame(&body, &[2]), FrameMeaning::Part);
    }
}

#[test]
fn a_close_has_the_brokers_code_and_text() {
    let mut answers = Answers::default();
    let close = |code| {
        AMQPClass::Channel(channel::AMQPMethod::Close(channel::Close {
            reply_code: code,
            reply_text: "why".into(),
            class_id: 60,
            method_id: 40,
        }))
    };
    for code in [406, 599] {
        let loss = FrameMeaning::Closed(ConnectionLoss::refused(code, "why"));
        assert_eq!(answers.read_frame(&method(2, close(code)), &[2]), loss);
        // That of a question is the answer to it.
        assert_eq!(answers.read_frame(&method(1, close(code)), &[2]), FrameMeaning::Other);
    }
    let close = connection::AMQPMethod::Close(connection::Close {
        reply_code: 320,
        reply_text: "why".into(),
        class_id: 0,
        method_id: 0,
    });
    let loss = FrameMeaning::Closed(ConnectionLoss::refused(320, "why"));
    assert_eq!(answers.read_frame(&method(0, AMQPClass::Connection(close)), &[]), loss);
    let blocked = connection::AMQPMethod::Blocked(connection::Blocked { reason: "m".into() });
    let blocked = method(0, AMQPClass::Connection(blocked));
    assert_eq!(answers.read_frame(&blocked, &[]), FrameMeaning::Blocked(true));
    let unblocked = connection::AMQPMethod::Unblocked(connection::Unblocked {});
    let unblocked = method(0, AMQPClass::Connection(unblocked));
    assert_eq!(answers.read_frame(&unblocked, &[]), FrameMeaning::Blocked(false));
}

#[test]
fn a_close_whose_text_is_cut_inside_a_character_keeps_its_code() {
    let mut answers = Answers::default();
    let (code, text) = (403, "no access to schl\u{fc}ssel");
    let of_channel = AMQPClass::Channel(channel::AMQPMethod::Close(channel::Close {
        reply_code: code,
        reply_text: text.into(),
        class_id: 60,
        method_id: 40,
    }));
    let of_connection = AMQPClass::Connection(connection::AMQPMethod::Close(connection::Close {
        reply_code: code,
        reply_text: text.into(),
        class_id: 60,
        method_id: 40,
    }));
    for (number, close) in [(2, of_channel), (0, of_connection)] {
        let mut frame = method(number, close);
        // The second byte of the character becomes one that no character has.
        let at = frame.iter().position(|byte| *byte == 0xC3).unwrap() + 1;
        frame[at] = 0xFF;
        let text = "no access to schl\u{fffd}\u{fffd}ssel";
        let closed = FrameMeaning::Closed(ConnectionLoss::refused(code, text));
        assert_eq!(answers.read_frame(&frame, &[2]), closed);
        // A text that is longer than its frame is not read beyond it.
        for cut in 0..frame.len() {
            let read = answers.read_frame(&frame[..cut], &[2]);
            assert!(!matches!(read, FrameMeaning::Answer(..)), "{cut}");
        }
    }
}

#[test]
fn an_answer_that_cannot_be_read_closes_the_channel() {
    let mut answers = Answers::default();
    // A return whose text has no end, and properties of which no return was heard.
    let mut cut = method(2, returned());
    let at = cut.len() - 10;
    cut.drain(11..at);
    let length = u32::try_from(cut.len() - FRAME_COST_BYTES).unwrap();
    cut[3..7].copy_from_slice(&length.to_be_bytes());
    for frame in [cut, header(2, Some("e-1"))] {
        assert!(matches!(answers.read_frame(&frame, &[2]), FrameMeaning::Closed(_)));
        assert_eq!(answers.read_frame(&frame, &[3]), FrameMeaning::Other);
    }
}

#[test]
fn frames_end_where_the_codec_ends_them() {
    let frames = [
        method(2, returned()),
        header(2, Some("e-1")),
        bytes(&AMQPFrame::Body(2, vec![7; 40_000])),
        bytes(&AMQPFrame::Body(2, Vec::new())),
        HEARTBEAT.to_vec(),
        b"AMQP\0\0\x09\x01".to_vec(),
    ];
    for frame in frames {
        for cut in 0..frame.len() {
            assert_eq!(frame_length(&frame[..cut]), None);
        }
        let behind = [&frame[..], b"\x01\x00"].concat();
        assert_eq!(frame_length(&behind), Some(frame.len()));
    }
    assert_eq!(bytes(&AMQPFrame::Heartbeat), HEARTBEAT);
    // What is no frame goes whole to whoever finds that.
    for garbage in [&b"HTTP/1.1 400"[..], b"\x15\x03\x01\x00\x02\x02\x46", b"\x01\0\0\xFF\0\0\0"] {
        assert_eq!(frame_length(garbage), Some(garbage.len()));
    }
}
