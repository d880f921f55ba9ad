use super::*;
use crate::codec_tests::{ack, bytes, channel_method, close, header, method, returned};
use crate::method::Tuning;
use amq_protocol::frame::AMQPFrame;
use amq_protocol::protocol::{AMQPClass, channel, confirm, connection, exchange};

fn session() -> Session {
    let tuning = Tuning { channel_max: 3, frame_max: 4096, heartbeat_s: 10 };
    Session::new(Agreed { cluster_name: "c".to_owned(), tuning }, Instant::now())
}

fn take(session: &mut Session, bytes: &[u8]) -> (Result<Option<Event>, Malformed>, Vec<u8>) {
    let (frame, length) = Frame::split(bytes).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    let mut out = Vec::new();
    (session.take(frame, &mut out), out)
}

fn event(session: &mut Session, bytes: &[u8]) -> Option<Event> {
    take(session, bytes).0.unwrap()
}

fn put(method: ClientMethod<'_>, channel: u16) -> Vec<u8> {
    let mut out = Vec::new();
    method.put(channel, &mut out);
    out
}

fn body(number: u16, payload: &[u8]) -> Vec<u8> {
    bytes(&AMQPFrame::Body(number, payload.to_vec()))
}

fn open_ok(number: u16) -> Vec<u8> {
    method(number, channel_method(channel::AMQPMethod::OpenOk(channel::OpenOk {})))
}

fn close_ok(number: u16) -> Vec<u8> {
    method(number, channel_method(channel::AMQPMethod::CloseOk(channel::CloseOk {})))
}

fn select_ok(number: u16) -> Vec<u8> {
    let select_ok = confirm::AMQPMethod::SelectOk(confirm::SelectOk {});
    method(number, AMQPClass::Confirm(select_ok))
}

/// A session whose channel 1 is published on.
fn publishing() -> Session {
    let (mut session, mut out) = (session(), Vec::new());
    assert!(session.open_channel(&mut out));
    assert_eq!(
        out,
        [put(ClientMethod::ChannelOpen, 1), put(ClientMethod::ConfirmSelect, 1)].concat()
    );
    assert_eq!(event(&mut session, &open_ok(1)), None);
    assert_eq!(event(&mut session, &select_ok(1)), Some(Event::ChannelOpened(1)));
    session
}

#[test]
fn confirms_count_only_on_a_channel_that_is_published_on() {
    let mut session = publishing();
    let confirm = Event::Confirm { channel: 1, tag: 7, multiple: true, acked: true };
    assert_eq!(event(&mut session, &ack(1, 7, true)), Some(confirm));
    assert_eq!(event(&mut session, &ack(2, 7, true)), None);
    assert_eq!(event(&mut session, &HEARTBEAT_FRAME), None);
}

#[test]
fn a_return_is_known_once_its_properties_are() {
    let mut session = publishing();
    for id in ["e-1", ""] {
        assert_eq!(event(&mut session, &returned(1)), None);
        let known = Event::Returned {
            channel: 1,
            message_id: id.to_owned(),
            code: 312,
            text: "NO_ROUTE".to_owned(),
        };
        let id = (!id.is_empty()).then_some(id);
        assert_eq!(event(&mut session, &header(1, id)), Some(known));
        // The body, in two frames.
        assert_eq!(event(&mut session, &body(1, b"ab")), None);
        assert_eq!(event(&mut session, &body(1, b"c")), None);
    }
}

#[test]
fn the_frames_of_a_return_follow_each_other_and_have_its_size() {
    let (returned, header) = (returned(1), header(1, None));
    let cases: [&[&[u8]]; 7] = [
        &[&header],
        &[&body(1, b"a")],
        &[&returned, &returned],
        &[&returned, &ack(1, 1, false)],
        &[&returned, &body(1, b"a")],
        &[&returned, &header, &ack(1, 1, false)],
        &[&returned, &header, &body(1, b"abcd")],
    ];
    for frames in cases {
        let mut session = publishing();
        let (last, first) = frames.split_last().unwrap();
        first.iter().for_each(|frame| assert!(take(&mut session, frame).0.is_ok()));
        assert_eq!(take(&mut session, last).0, Err(Malformed::Order), "{frames:?}");
    }
    // WHEN the channel is closed meanwhile, or is another one THEN that is in order
    let mut session = publishing();
    assert_eq!(event(&mut session, &returned), None);
    assert_eq!(event(&mut session, &ack(2, 1, false)), None);
    assert_eq!(event(&mut session, &body(2, b"a")), None);
    assert!(event(&mut session, &close(1, 406, "")).is_some());
}

#[test]
fn a_question_has_a_channel_of_its_own_which_is_used_again() {
    let mut session = publishing();
    for _ in 0..5 {
        let mut out = Vec::new();
        assert!(session.ask("x", &mut out));
        let asked = put(ClientMethod::ExchangeDeclarePassive { exchange: "x" }, 2);
        assert_eq!(out, [put(ClientMethod::ChannelOpen, 2), asked].concat());
        assert_eq!(event(&mut session, &open_ok(2)), None);
        let there = exchange::AMQPMethod::DeclareOk(exchange::DeclareOk {});
        let (answer, out) = take(&mut session, &method(2, AMQPClass::Exchange(there)));
        assert_eq!(answer, Ok(Some(Event::Answered(Ok(())))));
        assert_eq!(out, put(ClientMethod::ChannelClose, 2));
        assert_eq!(event(&mut session, &close_ok(2)), None);
    }
    // WHEN the answer is no THEN the channel is free at once
    assert!(session.ask("x", &mut Vec::new()));
    let (answer, out) = take(&mut session, &close(2, 404, "NOT_FOUND"));
    assert_eq!(answer, Ok(Some(Event::Answered(Err((404, "NOT_FOUND".to_owned()))))));
    assert_eq!(out, put(ClientMethod::ChannelCloseOk, 2));
    // WHEN nothing is named THEN the channel itself is the question
    let mut out = Vec::new();
    assert!(session.ask("", &mut out));
    assert_eq!(out, put(ClientMethod::ChannelOpen, 2));
    assert_eq!(event(&mut session, &open_ok(2)), Some(Event::Answered(Ok(()))));
}

#[test]
fn no_more_channels_are_opened_than_agreed() {
    let mut session = publishing();
    assert!(session.open_channel(&mut Vec::new()));
    assert!(session.ask("x", &mut Vec::new()));
    let mut out = Vec::new();
    assert!(!session.open_channel(&mut out));
    assert!(!session.ask("x", &mut out));
    assert!(out.is_empty());
}

#[test]
fn a_question_waits_for_a_channel_that_is_being_closed() {
    let mut session = publishing();
    for number in [2, 3] {
        assert!(session.ask("", &mut Vec::new()));
        assert_eq!(event(&mut session, &open_ok(number)), Some(Event::Answered(Ok(()))));
    }
    let mut out = Vec::new();
    assert!(session.ask("x", &mut out));
    assert!(out.is_empty());
    let asked = put(ClientMethod::ExchangeDeclarePassive { exchange: "x" }, 3);
    assert_eq!(
        take(&mut session, &close_ok(3)),
        (Ok(None), [put(ClientMethod::ChannelOpen, 3), asked].concat())
    );
    // AND it is asked once
    assert_eq!(take(&mut session, &close_ok(2)), (Ok(None), Vec::new()));
}

#[test]
fn only_a_close_ok_frees_a_channel_that_both_sides_close() {
    let mut session = publishing();
    assert!(session.ask("", &mut Vec::new()));
    assert_eq!(event(&mut session, &open_ok(2)), Some(Event::Answered(Ok(()))));
    // GIVEN that the server's close has crossed that of this side
    let (closed, out) = take(&mut session, &close(2, 541, ""));
    assert_eq!((closed, out), (Ok(None), put(ClientMethod::ChannelCloseOk, 2)));
    // WHEN a channel is opened THEN it has another number
    let mut out = Vec::new();
    assert!(session.open_channel(&mut out));
    assert!(out.starts_with(&put(ClientMethod::ChannelOpen, 3)));
    assert_eq!(event(&mut session, &close_ok(2)), None);
    // WHEN a channel is not being closed THEN a close-ok changes nothing
    assert_eq!(event(&mut session, &close_ok(3)), None);
    assert_eq!(event(&mut session, &select_ok(3)), Some(Event::ChannelOpened(3)));
}

#[test]
fn a_close_is_answered_and_tells_why() {
    let mut session = publishing();
    let (closed, out) = take(&mut session, &close(1, 406, "the reason"));
    assert_eq!(closed, Ok(Some(Event::ChannelClosed { code: 406, text: "the reason".to_owned() })));
    assert_eq!(out, put(ClientMethod::ChannelCloseOk, 1));
    let reply = connection::Close {
        reply_code: 320,
        reply_text: "CONNECTION_FORCED".into(),
        class_id: 0,
        method_id: 0,
    };
    let reply = AMQPClass::Connection(connection::AMQPMethod::Close(reply));
    let (closed, out) = take(&mut session, &method(0, reply));
    let text = "CONNECTION_FORCED".to_owned();
    assert_eq!(closed, Ok(Some(Event::Closed { code: 320, text })));
    assert_eq!(out, put(ClientMethod::CloseOk, 0));
}

#[test]
fn a_text_that_is_cut_inside_a_character_is_kept() {
    let mut session = publishing();
    let mut bytes = close(1, 406, "abc€");
    // The last byte of the text goes, and both lengths with it.
    let text_ends_at = bytes.len() - 5;
    bytes.remove(text_ends_at - 1);
    bytes[6] -= 1;
    bytes[13] -= 1;
    let Some(Event::ChannelClosed { text, .. }) = event(&mut session, &bytes) else { panic!() };
    assert_eq!(text, "abc\u{fffd}");
}

#[test]
fn heartbeats_are_sent_in_silence_and_missed_after_two() {
    let (mut session, began) = (session(), Instant::now());
    let at = |seconds| began + Duration::from_secs(seconds);
    session.note_write(began);
    session.note_read(began);
    let mut out = Vec::new();
    session.put_heartbeat(at(4), &mut out);
    assert!(out.is_empty());
    // WHEN one waits to be written THEN no other is added
    session.put_heartbeat(at(5), &mut out);
    session.put_heartbeat(at(11), &mut out);
    assert_eq!(out, HEARTBEAT_FRAME);
    out.clear();
    session.note_write(at(12));
    session.put_heartbeat(at(16), &mut out);
    assert!(out.is_empty());
    session.note_read(at(18));
    assert!(!session.is_silent(at(37)));
    assert!(session.is_silent(at(38)));
}
