//! Golden captures of a real Postgres, a round trip through a small encoder, and hostile bytes.

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::super::encoder::{Encoder, Form};
use super::super::frame::Frame;
use super::*;
use crate::base::encoding::push_unhexed;

fn form() -> impl Strategy<Value = Form> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        Just(Form::Null),
        Just(Form::Unchanged),
        bytes().prop_map(Form::Text),
        bytes().prop_map(Form::Binary),
    ]
}

fn from_hex(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_unhexed(line.as_bytes(), &mut bytes).unwrap();
    bytes
}

fn describe(message: &Message<'_>) -> String {
    let mut text = String::new();
    match message {
        Message::Insert { relation, tuple } => {
            write!(text, "Insert {relation}").unwrap();
            let mut values = tuple.values().unwrap();
            for value in values.by_ref() {
                match value.unwrap() {
                    Value::Null => text.push_str("\n    null"),
                    Value::Unchanged => text.push_str("\n    unchanged"),
                    Value::Text(v) => write!(text, "\n    text {}", v.escape_ascii()).unwrap(),
                    Value::Binary(v) => write!(text, "\n    binary {}", v.escape_ascii()).unwrap(),
                }
            }
            values.finish().unwrap();
        }
        Message::Relation(relation) => {
            write!(text, "Relation {} {}", relation.oid, relation.qualified_name()).unwrap();
            for column in &relation.columns {
                write!(text, "\n    {} {}", column.name, column.type_oid).unwrap();
            }
        }
        Message::Truncate { relations } => {
            write!(text, "Truncate {relations:?}").unwrap();
        }
        Message::Logical { transactional, lsn, prefix, content } => {
            let content = content.escape_ascii();
            write!(text, "Logical transactional={transactional} {lsn} {prefix:?} {content}")
                .unwrap();
        }
        Message::Begin { final_lsn, commit_ts, xid } => {
            write!(text, "Begin final={final_lsn} unix_us={commit_ts} xid={xid}").unwrap();
        }
        Message::Commit { commit_lsn, end_lsn, commit_ts } => {
            write!(text, "Commit {commit_lsn} end={end_lsn} unix_us={commit_ts}").unwrap();
        }
        other => write!(text, "{other:?}").unwrap(),
    }
    text
}

/// GIVEN bytes captured from Postgres WHEN they are decoded THEN the text twin comes out.
fn golden(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let hex = std::fs::read_to_string(folder.join(format!("{name}.hex"))).unwrap();
    let mut found = String::new();
    for line in hex.lines() {
        let bytes = from_hex(line);
        writeln!(found, "{}", describe(&Message::parse(&bytes).unwrap())).unwrap();
        for cut in 0..bytes.len() {
            assert_refused(&bytes[..cut]);
        }
        let longer = [bytes.as_slice(), b"\0"].concat();
        assert_refused(&longer);
    }
    let twin = folder.join(format!("{name}.txt"));
    if std::env::var_os("WALRELAY_BLESS").is_some() {
        std::fs::write(&twin, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(&twin).unwrap());
}

/// A message that was cut or lengthened must not pass.
fn assert_refused(bytes: &[u8]) {
    let walked = Message::parse(bytes).and_then(|message| match message {
        Message::Insert { tuple, .. } => {
            let mut values = tuple.values()?;
            values.by_ref().try_for_each(|value| value.map(drop))?;
            values.finish()
        }
        _ => Ok(()),
    });
    assert!(walked.is_err(), "{} was taken for a message", bytes.escape_ascii());
}

#[test]
fn golden_binary() {
    golden("binary");
}

#[test]
fn golden_text() {
    golden("text");
}

#[test]
fn unknown_and_streaming_messages_are_refused() {
    // S, E, c, A (streaming), b, P, K, r, p (two-phase): only later protocol versions send them.
    for tag in *b"SEcAbPKrpXw\0" {
        let error = Message::parse(&[tag]).unwrap_err();
        assert_eq!(error, DecodeError { what: "unknown message", offset: 0 });
    }
    assert_eq!(Message::parse(b"").unwrap_err().what, "message tag");
}

#[test]
fn hostile_counts_are_refused() {
    let insert = |count: u16| Encoder::tag(b'I').u32(1).u8(b'N').u16(count).0;
    let bytes = insert(0xFFFF);
    let Message::Insert { tuple, .. } = Message::parse(&bytes).unwrap() else { panic!() };
    assert_eq!(tuple.values().unwrap_err().what, "tuple column count");
    let relations = Encoder::tag(b'T').u32(0x7FFF_FFFF).u8(0).0;
    assert_eq!(Message::parse(&relations).unwrap_err().what, "truncate relations");
    let content = Encoder::tag(b'M').u8(1).u64(1).cstr("p").u32(0xFFFF_FFFF).0;
    assert_eq!(Message::parse(&content).unwrap_err().what, "message length");
    let old_only = Encoder::tag(b'I').u32(1).u8(b'O').u16(0).0;
    assert_eq!(Message::parse(&old_only).unwrap_err().what, "new tuple expected");
}

#[test]
fn times_far_away_saturate() {
    let bytes = Encoder::tag(b'B').u64(1).u64(i64::MAX as u64).u32(3).0;
    let begin = Message::Begin { final_lsn: Lsn::from_wire(1), commit_ts: i64::MAX, xid: 3 };
    assert_eq!(Message::parse(&bytes), Ok(begin));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        Frame::parse(&bytes).ok();
        if let Ok(Message::Insert { tuple, .. }) = Message::parse(&bytes)
            && let Ok(values) = tuple.values()
        {
            values.for_each(drop);
        }
    }

    #[test]
    fn random_bodies_under_true_tags_never_panic(
        tag in proptest::sample::select(b"BCORYIUDTM".to_vec()),
        body in proptest::collection::vec(prop_oneof![Just(0u8), Just(b'N'), Just(b'n'), any::<u8>()], 0..200),
    ) {
        let bytes = [&[tag], body.as_slice()].concat();
        if let Ok(Message::Insert { tuple, .. }) = Message::parse(&bytes)
            && let Ok(values) = tuple.values()
        {
            values.for_each(drop);
        }
    }

    #[test]
    fn rows_survive_the_round_trip(
        relation in any::<u32>(),
        forms in proptest::collection::vec(form(), 0..30),
    ) {
        let tuple = |encoder: Encoder| {
            forms.iter().fold(encoder.u16(forms.len() as u16), Encoder::column)
        };
        let bytes = tuple(Encoder::tag(b'I').u32(relation).u8(b'N')).0;
        let Message::Insert { relation: found, tuple: row } = Message::parse(&bytes).unwrap() else {
            panic!("not an insert");
        };
        prop_assert_eq!(found, relation);
        let mut values = row.values().unwrap();
        let walked: Vec<_> = values.by_ref().map(Result::unwrap).collect();
        prop_assert_eq!(values.finish(), Ok(()));
        prop_assert_eq!(walked, forms.iter().map(Form::value).collect::<Vec<_>>());

        for old in [None, Some(b'K'), Some(b'O')] {
            let mut update = Encoder::tag(b'U').u32(relation);
            if let Some(tag) = old {
                update = tuple(update.u8(tag));
            }
            let update = tuple(update.u8(b'N')).0;
            prop_assert_eq!(Message::parse(&update), Ok(Message::Update { relation }));
        }
        let delete = tuple(Encoder::tag(b'D').u32(relation).u8(b'K')).0;
        prop_assert_eq!(Message::parse(&delete), Ok(Message::Delete { relation }));
    }

    #[test]
    fn relations_survive_the_round_trip(
        oid in any::<u32>(),
        namespace in "[a-zÄ ]{0,8}",
        columns in proptest::collection::vec(("[a-z\"Ü]{1,10}", any::<u32>()), 0..40),
    ) {
        let start = Encoder::tag(b'R').u32(oid).cstr(&namespace).cstr("t").u8(b'd');
        let bytes = columns
            .iter()
            .fold(start.u16(columns.len() as u16), |e, (name, oid)| e.u8(0).cstr(name).u32(*oid).u32(9))
            .0;
        let Message::Relation(relation) = Message::parse(&bytes).unwrap() else { panic!() };
        prop_assert_eq!(relation.oid, oid);
        let schema = if namespace.is_empty() { "pg_catalog" } else { namespace.as_str() };
        prop_assert_eq!(relation.qualified_name(), format!("{schema}.t"));
        let found: Vec<_> = relation.columns.into_iter().map(|c| (c.name, c.type_oid)).collect();
        prop_assert_eq!(found, columns);
    }

    #[test]
    fn logical_messages_survive_the_round_trip(
        transactional in any::<bool>(),
        lsn in any::<u64>(),
        prefix in "[a-z]{0,9}",
        content in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let bytes = Encoder::tag(b'M').u8(u8::from(transactional)).u64(lsn).cstr(&prefix)
            .u32(content.len() as u32).bytes(&content).0;
        let lsn = Lsn::from_wire(lsn);
        let expected = Message::Logical { transactional, lsn, prefix: prefix.as_str().into(), content: &content };
        prop_assert_eq!(Message::parse(&bytes), Ok(expected));
    }
}
