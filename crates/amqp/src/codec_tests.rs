//! The bytes are those of the codec that lapin uses, in both directions.

use amq_protocol::frame::{AMQPContentHeader, AMQPFrame, gen_frame, parse_frame};
use amq_protocol::protocol::{
    AMQPClass, BasicProperties, basic, channel, confirm, connection, exchange,
};
use amq_protocol::types::{AMQPValue, FieldTable, LongString, ShortString};
use proptest::prelude::*;

use crate::content::{Message, read_header};
use crate::frame::{Frame, FrameKind, PROTOCOL_HEADER};
use crate::login::{Agreed, Login, LoginError, LoginRequest};
use crate::method::{ClientMethod, Mechanism, ServerMethod, Tuning};
use crate::wire::{Malformed, find_string};

const CHANNEL: u16 = 258;

pub(crate) fn bytes(frame: &AMQPFrame) -> Vec<u8> {
    gen_frame(frame)(Vec::new().into()).unwrap().into_inner().0
}

pub(crate) fn method(channel: u16, method: AMQPClass) -> Vec<u8> {
    bytes(&AMQPFrame::Method(channel, method))
}

pub(crate) fn channel_method(method: channel::AMQPMethod) -> AMQPClass {
    AMQPClass::Channel(method)
}

pub(crate) fn ack(channel: u16, delivery_tag: u64, multiple: bool) -> Vec<u8> {
    let ack = basic::AMQPMethod::Ack(basic::Ack { delivery_tag, multiple });
    method(channel, AMQPClass::Basic(ack))
}

pub(crate) fn returned(channel: u16) -> Vec<u8> {
    let returned = basic::Return {
        reply_code: 312,
        reply_text: "NO_ROUTE".into(),
        exchange: "e".into(),
        routing_key: "r".into(),
    };
    method(channel, AMQPClass::Basic(basic::AMQPMethod::Return(returned)))
}

pub(crate) fn header(channel: u16, id: Option<&str>) -> Vec<u8> {
    let mut properties = BasicProperties::default().with_content_type("c".into());
    if let Some(id) = id {
        properties = properties.with_message_id(id.into());
    }
    bytes(&AMQPFrame::Header(channel, AMQPContentHeader { class_id: 60, body_size: 3, properties }))
}

pub(crate) fn close(channel: u16, reply_code: u16, text: &str) -> Vec<u8> {
    let close = channel::Close { reply_code, reply_text: text.into(), class_id: 60, method_id: 40 };
    method(channel, channel_method(channel::AMQPMethod::Close(close)))
}

fn split(bytes: &[u8]) -> (Frame<'_>, usize) {
    Frame::split(bytes).unwrap().unwrap()
}

/// The method as the other codec reads it.
fn read(method: ClientMethod<'_>, channel: u16) -> AMQPClass {
    let mut out = Vec::new();
    method.put(channel, &mut out);
    match parse_frame(&*out).unwrap() {
        ([], AMQPFrame::Method(number, class)) if number == channel => {
            assert_eq!(bytes(&AMQPFrame::Method(number, class.clone())), out);
            class
        }
        other => panic!("{other:?}"),
    }
}

fn short() -> impl Strategy<Value = String> {
    "[a-z€]{0,80}"
}

fn value() -> impl Strategy<Value = AMQPValue> {
    prop_oneof![
        any::<bool>().prop_map(AMQPValue::Boolean),
        any::<i8>().prop_map(AMQPValue::ShortShortInt),
        any::<u8>().prop_map(AMQPValue::ShortShortUInt),
        any::<i16>().prop_map(AMQPValue::ShortInt),
        any::<u16>().prop_map(AMQPValue::ShortUInt),
        any::<i32>().prop_map(AMQPValue::LongInt),
        any::<u32>().prop_map(AMQPValue::LongUInt),
        any::<i64>().prop_map(AMQPValue::LongLongInt),
        (0.0_f32..9.0).prop_map(AMQPValue::Float),
        (0.0_f64..9.0).prop_map(AMQPValue::Double),
        any::<u64>().prop_map(AMQPValue::Timestamp),
        "[a-z]{0,9}".prop_map(|text| AMQPValue::LongString(text.as_str().into())),
        any::<Vec<u8>>().prop_map(|bytes| AMQPValue::ByteArray(bytes.into())),
        any::<bool>().prop_map(|flag| {
            let mut table = FieldTable::default();
            table.insert("inner".into(), AMQPValue::Boolean(flag));
            AMQPValue::FieldTable(table)
        }),
        Just(AMQPValue::Void),
    ]
}

proptest! {
    #[test]
    fn a_message_has_the_bytes_of_the_other_codec(
        names in prop::collection::vec(short(), 3),
        optional in prop::collection::vec(prop::option::of("[a-z/]{0,20}"), 2),
        headers in prop::collection::btree_map("[a-c]{0,3}", any::<Vec<u8>>(), 0..8),
        body in prop::collection::vec(any::<u8>(), 0..600),
        frame_bytes_max in 64_usize..300,
        timestamp_unix_s in 0_u64..2_000_000_000,
    ) {
        let message = Message {
            exchange: &names[0],
            routing_key: &names[1],
            content_type: optional[0].as_deref(),
            headers: headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())),
            message_id: &names[2],
            timestamp_unix_s,
            kind: optional[1].as_deref(),
            app_id: "walrelay",
            body: &body,
        };
        let mut frames = Vec::new();
        message.put(CHANNEL, frame_bytes_max, &mut frames);

        let publish = basic::AMQPMethod::Publish(basic::Publish {
            exchange: names[0].as_str().into(),
            routing_key: names[1].as_str().into(),
            mandatory: true,
            immediate: false,
        });
        let mut table = FieldTable::default();
        for (name, value) in &headers {
            let value = AMQPValue::LongString(LongString::from(value.as_slice()));
            table.insert(name.as_str().into(), value);
        }
        let mut properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_message_id(names[2].as_str().into())
            .with_app_id("walrelay".into())
            .with_timestamp(timestamp_unix_s)
            .with_headers(table);
        if let Some(name) = &optional[0] {
            properties = properties.with_content_type(name.as_str().into());
        }
        if let Some(name) = &optional[1] {
            properties = properties.with_type(name.as_str().into());
        }
        let header = AMQPContentHeader { class_id: 60, body_size: body.len() as u64, properties };
        let mut expected = method(CHANNEL, AMQPClass::Basic(publish));
        expected.extend(bytes(&AMQPFrame::Header(CHANNEL, header)));
        for part in body.chunks(frame_bytes_max - 8) {
            let part = bytes(&AMQPFrame::Body(CHANNEL, part.to_vec()));
            prop_assert!(part.len() <= frame_bytes_max);
            expected.extend(part);
        }
        prop_assert_eq!(frames, expected);
    }

    #[test]
    fn the_size_and_the_id_are_found_behind_any_other_property(
        has in prop::collection::vec(any::<bool>(), 13),
        names in prop::collection::vec(short(), 9),
        body_size in any::<u64>(),
    ) {
        let name = |index: usize| ShortString::from(names[index].as_str());
        let mut properties = BasicProperties::default();
        let setters: [fn(BasicProperties, ShortString) -> BasicProperties; 9] = [
            BasicProperties::with_content_type,
            BasicProperties::with_content_encoding,
            BasicProperties::with_correlation_id,
            BasicProperties::with_reply_to,
            BasicProperties::with_expiration,
            BasicProperties::with_message_id,
            BasicProperties::with_type,
            BasicProperties::with_user_id,
            BasicProperties::with_app_id,
        ];
        for (index, set) in setters.into_iter().enumerate().filter(|(index, _)| has[*index]) {
            properties = set(properties, name(index));
        }
        if has[9] {
            let mut table = FieldTable::default();
            table.insert("a".into(), AMQPValue::Boolean(true));
            properties = properties.with_headers(table);
        }
        if has[10] {
            properties = properties.with_delivery_mode(2);
        }
        if has[11] {
            properties = properties.with_priority(7);
        }
        if has[12] {
            properties = properties.with_timestamp(1);
        }
        let header = AMQPContentHeader { class_id: 60, body_size, properties };
        let header = bytes(&AMQPFrame::Header(CHANNEL, header));
        let (frame, _) = split(&header);
        prop_assert_eq!((frame.kind, frame.channel), (FrameKind::Header, CHANNEL));
        let id = if has[5] { names[5].clone() } else { String::new() };
        prop_assert_eq!(read_header(frame.payload), Ok((body_size, id)));
        for cut in 0..frame.payload.len() {
            let _no_panic = read_header(&frame.payload[..cut]);
        }
    }

    #[test]
    fn answers_are_read_as_the_other_codec_wrote_them(
        code in any::<u16>(),
        text in short(),
        tuning in (any::<u16>(), any::<u32>(), any::<u16>()),
        tag in any::<u64>(),
        multiple in any::<bool>(),
    ) {
        let (channel_max, frame_max, heartbeat) = tuning;
        let tune = connection::Tune { channel_max, frame_max, heartbeat };
        let blocked = connection::Blocked { reason: text.as_str().into() };
        let closed = connection::Close {
            reply_code: code,
            reply_text: text.as_str().into(),
            class_id: 1,
            method_id: 2,
        };
        let returned = basic::Return {
            reply_code: code,
            reply_text: text.as_str().into(),
            exchange: text.as_str().into(),
            routing_key: "r".into(),
        };
        let ack = basic::Ack { delivery_tag: tag, multiple };
        let nack = basic::Nack { delivery_tag: tag, multiple, requeue: false };
        let (connection, basic) = (AMQPClass::Connection, AMQPClass::Basic);
        let reply = || crate::method::Reply { code, text: text.as_str().into() };
        let confirmed = |acked| ServerMethod::Confirm { tag, multiple, acked };
        let expected_tuning = Tuning { channel_max, frame_max, heartbeat_s: heartbeat };
        for (written, expected) in [
            (connection(connection::AMQPMethod::Tune(tune)), ServerMethod::Tune(expected_tuning)),
            (
                connection(connection::AMQPMethod::Blocked(blocked)),
                ServerMethod::Blocked(text.as_str().into()),
            ),
            (
                connection(connection::AMQPMethod::Unblocked(connection::Unblocked {})),
                ServerMethod::Unblocked,
            ),
            (
                connection(connection::AMQPMethod::OpenOk(connection::OpenOk {})),
                ServerMethod::OpenOk,
            ),
            (connection(connection::AMQPMethod::Close(closed)), ServerMethod::Close(reply())),
            (
                AMQPClass::Exchange(exchange::AMQPMethod::DeclareOk(exchange::DeclareOk {})),
                ServerMethod::ExchangeDeclareOk,
            ),
            (
                AMQPClass::Confirm(confirm::AMQPMethod::SelectOk(confirm::SelectOk {})),
                ServerMethod::ConfirmSelectOk,
            ),
            (basic(basic::AMQPMethod::Ack(ack)), confirmed(true)),
            (basic(basic::AMQPMethod::Nack(nack)), confirmed(false)),
            (basic(basic::AMQPMethod::Return(returned)), ServerMethod::Return(reply())),
            (
                basic(basic::AMQPMethod::GetEmpty(basic::GetEmpty {})),
                ServerMethod::Other(60, 72),
            ),
        ] {
            let written = method(CHANNEL, written);
            let (frame, length) = split(&written);
            prop_assert_eq!(length, written.len());
            prop_assert_eq!((frame.kind, frame.channel), (FrameKind::Method, CHANNEL));
            prop_assert_eq!(ServerMethod::read(frame.payload), Ok(expected));
            for cut in 0..written.len() {
                prop_assert_eq!(Frame::split(&written[..cut]), Ok(None));
            }
        }
    }

    #[test]
    fn a_string_is_found_in_any_table(
        entries in prop::collection::btree_map("[a-c]{1,2}", value(), 0..9),
        cluster in "[a-z@]{0,9}",
    ) {
        let mut table = FieldTable::default();
        for (name, value) in &entries {
            table.insert(name.as_str().into(), value.clone());
        }
        table.insert("cluster_name".into(), AMQPValue::LongString(cluster.as_str().into()));
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: table,
            mechanisms: "PLAIN".into(),
            locales: "en_US".into(),
        };
        let start = connection::AMQPMethod::Start(start);
        let written = method(0, AMQPClass::Connection(start));
        let cluster_name = cluster.as_str().into();
        prop_assert_eq!(
            ServerMethod::read(split(&written).0.payload),
            Ok(ServerMethod::Start { cluster_name })
        );
    }

    #[test]
    fn a_string_is_found_behind_a_value_of_an_unknown_type(
        kind in any::<u8>().prop_filter("known", |kind| !b"SxFAVtbBsuUIifDlLdT".contains(kind)),
        value in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut table = b"\x01a".to_vec();
        table.push(kind);
        table.extend(value);
        table.extend(b"\x0ccluster_nameS\0\0\0\x02mq");
        prop_assert_eq!(find_string(&table, "cluster_name"), Some(&b"mq"[..]));
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _frame = Frame::split(&bytes);
        let _method = ServerMethod::read(&bytes);
        let _header = read_header(&bytes);
        let _found = find_string(&bytes, "a");
    }

    #[test]
    fn what_is_sent_is_read_by_the_other_codec(
        user in short(),
        password in short(),
        exchange in short(),
    ) {
        let plain = Mechanism::Plain(user.clone(), password.clone());
        let login = ClientMethod::StartOk { mechanism: &plain, connection_name: "walrelay" };
        let AMQPClass::Connection(connection::AMQPMethod::StartOk(sent)) = read(login, 0) else {
            return Err(TestCaseError::fail("another method"));
        };
        prop_assert_eq!(sent.mechanism.as_str(), "PLAIN");
        let response = format!("\0{user}\0{password}");
        prop_assert_eq!(sent.response.as_bytes(), response.as_bytes());
        let properties = sent.client_properties.inner();
        let capabilities = properties["capabilities"].as_field_table().unwrap().inner();
        for name in ["publisher_confirms", "basic.nack", "connection.blocked"] {
            prop_assert_eq!(capabilities[name].as_bool(), Some(true));
        }
        let opened = read(ClientMethod::Open { vhost: &exchange }, 0);
        let open = connection::Open { virtual_host: exchange.as_str().into() };
        prop_assert_eq!(opened, AMQPClass::Connection(connection::AMQPMethod::Open(open)));
        let asked = read(ClientMethod::ExchangeDeclarePassive { exchange: &exchange }, 2);
        let declare = exchange::Declare {
            exchange: exchange.as_str().into(),
            kind: "topic".into(),
            passive: true,
            durable: false,
            auto_delete: false,
            internal: false,
            nowait: false,
            arguments: FieldTable::default(),
        };
        prop_assert_eq!(asked, AMQPClass::Exchange(exchange::AMQPMethod::Declare(declare)));
    }
}

#[test]
fn methods_without_a_name_are_those_of_the_other_codec() {
    let tuning = Tuning { channel_max: 5, frame_max: 4096, heartbeat_s: 7 };
    let tune_ok = connection::TuneOk { channel_max: 5, frame_max: 4096, heartbeat: 7 };
    let connection = |method| AMQPClass::Connection(method);
    let close = || ("".into(), 200);
    let (reply_text, reply_code) = close();
    let closed = connection::Close { reply_code, reply_text, class_id: 0, method_id: 0 };
    let (reply_text, reply_code) = close();
    let channel_closed = channel::Close { reply_code, reply_text, class_id: 0, method_id: 0 };
    for (sent, expected) in [
        (ClientMethod::TuneOk(tuning), connection(connection::AMQPMethod::TuneOk(tune_ok))),
        (ClientMethod::Close, connection(connection::AMQPMethod::Close(closed))),
        (
            ClientMethod::CloseOk,
            connection(connection::AMQPMethod::CloseOk(connection::CloseOk {})),
        ),
        (ClientMethod::ChannelOpen, channel_method(channel::AMQPMethod::Open(channel::Open {}))),
        (ClientMethod::ChannelClose, channel_method(channel::AMQPMethod::Close(channel_closed))),
        (
            ClientMethod::ChannelCloseOk,
            channel_method(channel::AMQPMethod::CloseOk(channel::CloseOk {})),
        ),
        (
            ClientMethod::ConfirmSelect,
            AMQPClass::Confirm(confirm::AMQPMethod::Select(confirm::Select { nowait: false })),
        ),
    ] {
        assert_eq!(read(sent, CHANNEL), expected);
    }
    let external = ClientMethod::StartOk { mechanism: &Mechanism::External, connection_name: "" };
    let AMQPClass::Connection(connection::AMQPMethod::StartOk(sent)) = read(external, 0) else {
        panic!("another method");
    };
    assert_eq!((sent.mechanism.as_str(), sent.response.as_bytes()), ("EXTERNAL", &b""[..]));
}

fn request() -> LoginRequest {
    LoginRequest {
        mechanism: Mechanism::Plain("u".to_owned(), "p".to_owned()),
        vhost: "/".to_owned(),
        frame_max: 32 * 1024,
        heartbeat_s: 10,
        connection_name: "walrelay".to_owned(),
    }
}

fn tune(channel_max: u16, frame_max: u32, heartbeat: u16) -> Vec<u8> {
    let tune = connection::Tune { channel_max, frame_max, heartbeat };
    method(0, AMQPClass::Connection(connection::AMQPMethod::Tune(tune)))
}

fn open_ok() -> Vec<u8> {
    method(0, AMQPClass::Connection(connection::AMQPMethod::OpenOk(connection::OpenOk {})))
}

#[test]
fn the_lower_limit_of_both_sides_is_agreed_on() {
    for ((channel_max, frame_max, heartbeat), expected) in [
        ((2047, 131_072, 60), (2047, 32_768, 10)),
        ((0, 0, 0), (u16::MAX, 32_768, 10)),
        ((3, 8_192, 5), (3, 8_192, 5)),
    ] {
        let mut out = Vec::new();
        let mut login = Login::begin(request(), &mut out);
        assert_eq!(out, PROTOCOL_HEADER);
        let offered = tune(channel_max, frame_max, heartbeat);
        assert_eq!(login.take(split(&offered).0, &mut out), Ok(None));
        assert_eq!(login.frame_max_offered(), frame_max);
        let (channel_max, frame_max, heartbeat_s) = expected;
        let tuning = Tuning { channel_max, frame_max, heartbeat_s };
        let agreed = Agreed { cluster_name: String::new(), tuning };
        assert_eq!(login.take(split(&open_ok()).0, &mut out), Ok(Some(agreed)));
    }
}

#[test]
fn a_login_ends_with_the_reason_of_the_server() {
    let refused = connection::Close {
        reply_code: 403,
        reply_text: "ACCESS_REFUSED".into(),
        class_id: 0,
        method_id: 0,
    };
    let refused = method(0, AMQPClass::Connection(connection::AMQPMethod::Close(refused)));
    let mut out = Vec::new();
    let mut login = Login::begin(request(), &mut out);
    let reason = LoginError::Refused(403, "ACCESS_REFUSED".to_owned());
    assert_eq!(login.take(split(&refused).0, &mut out), Err(reason));
    // An open connection that agreed on nothing is none.
    let mut login = Login::begin(request(), &mut out);
    assert!(login.take(split(&open_ok()).0, &mut out).is_err());
}

#[test]
fn bytes_that_are_no_frame_are_refused() {
    assert_eq!(Frame::split(b"AMQP\0\0\x09\0"), Err(Malformed::OtherVersion));
    assert_eq!(Frame::split(b"\x15\x03\x01"), Err(Malformed::Frame));
    assert_eq!(Frame::split(b"\x08\0\0\0\0\0\0\0"), Err(Malformed::Frame));
    assert_eq!(Frame::split(b"\x01\0\0\xff\0\0\0"), Err(Malformed::TooLarge));
}
