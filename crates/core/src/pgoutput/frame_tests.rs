use super::*;

fn envelope(tag: u8, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = vec![tag];
    numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
    bytes
}

#[test]
fn data_keeps_its_body_in_place() {
    let mut bytes = envelope(b'w', &[16, 32, 99]);
    bytes.extend(b"Ibody");
    let frame = Frame::parse(&bytes).unwrap();
    assert_eq!(frame, Frame::XLogData { wal_end: Lsn::from_wire(32), body: b"Ibody" });
}

#[test]
fn a_keepalive_may_ask_for_a_reply_and_has_an_end() {
    let mut bytes = envelope(b'k', &[32, 99]);
    assert!(Frame::parse(&bytes).is_err());
    bytes.push(1);
    let wal_end = Lsn::from_wire(32);
    assert_eq!(Frame::parse(&bytes), Ok(Frame::Keepalive { wal_end, reply_requested: true }));
    bytes.push(0);
    assert!(Frame::parse(&bytes).is_err());
    assert!(Frame::parse(b"").is_err());
    assert_eq!(
        Frame::parse(b"zzz"),
        Err(DecodeError { what: "unknown replication frame", offset: 0 })
    );
}
