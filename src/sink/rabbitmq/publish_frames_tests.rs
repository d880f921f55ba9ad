//! The bytes are those of the codec that lapin uses.

use amq_protocol::frame::{AMQPContentHeader, AMQPFrame, gen_frame};
use amq_protocol::protocol::{AMQPClass, BasicProperties, basic};
use amq_protocol::types::{AMQPValue, FieldTable, LongString};
use proptest::prelude::*;

use super::*;
use crate::base::event::Outbound;
use crate::sink::rabbitmq::answers::frame_length;
use crate::sink::rabbitmq::limits::Limits;
use crate::sink::rabbitmq::probe::short;

const CHANNEL: u16 = 1;

fn properties(event: &Outbound<'_>, now_unix_s: u64) -> BasicProperties {
    let mut table = FieldTable::default();
    for (name, value) in event.headers.iter().copied().chain(event.key.map(|key| ("key", key))) {
        table.insert(short(name), AMQPValue::LongString(LongString::from(value)));
    }
    let mut properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_message_id(short(event.id))
        .with_app_id(short("walrelay"))
        .with_timestamp(now_unix_s)
        .with_headers(table);
    if let Some(event_type) = event.event_type {
        properties = properties.with_type(short(event_type));
    }
    if let Some(content_type) = event.content_type {
        properties = properties.with_content_type(short(content_type));
    }
    properties
}

fn codec(event: &Outbound<'_>, now_unix_s: u64, frame_bytes_max: usize) -> Vec<u8> {
    let publish = basic::AMQPMethod::Publish(basic::Publish {
        exchange: short(event.exchange),
        routing_key: short(event.topic),
        mandatory: true,
        immediate: false,
    });
    let body = event.value.unwrap_or_default();
    let (class_id, body_size) = (BASIC, body.len() as u64);
    let header =
        AMQPContentHeader { class_id, body_size, properties: properties(event, now_unix_s) };
    let head =
        [AMQPFrame::Method(CHANNEL, AMQPClass::Basic(publish)), AMQPFrame::Header(CHANNEL, header)];
    let parts = body.chunks(frame_bytes_max - 8);
    let frames = head.into_iter().chain(parts.map(|part| AMQPFrame::Body(CHANNEL, part.to_vec())));
    frames.fold(Vec::new(), |bytes, frame| gen_frame(&frame)(bytes.into()).unwrap().into_inner().0)
}

proptest! {
    #[test]
    fn a_publish_has_the_bytes_of_the_codec(
        names in prop::collection::vec("[a-z€]{0,40}", 3),
        optional in prop::collection::vec(prop::option::of("[a-z/]{0,20}"), 2),
        headers in prop::collection::vec(("[ab]{0,2}|key", any::<Vec<u8>>()), 0..8),
        key in any::<Option<Vec<u8>>>(),
        body in prop::collection::vec(any::<u8>(), 0..600),
        frame_bytes_max in 64_usize..300,
        now_unix_s in 0_u64..2_000_000_000,
    ) {
        let headers: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let event = Outbound {
            exchange: &names[0],
            topic: &names[1],
            key: key.as_deref(),
            value: Some(&body),
            id: &names[2],
            event_type: optional[0].as_deref(),
            content_type: optional[1].as_deref(),
            headers: &headers,
            commit_unix_us: 1,
            partition: None,
        };
        let message = AmqpMessage::event(&event, &Limits::default(), None).unwrap();
        let mut frames = b"before".to_vec();
        put_publish(&message, now_unix_s, CHANNEL, frame_bytes_max, &mut frames);
        let frames = &frames[6..];
        prop_assert_eq!(frames, codec(&event, now_unix_s, frame_bytes_max));
        let method = frame_length(frames).unwrap();
        prop_assert!(frame_length(&frames[method..]).unwrap() <= message.properties_bytes);
    }
}
