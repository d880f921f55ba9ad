use super::*;
use crate::pgoutput::message::{Tuple, Value};

#[test]
fn a_row_reads_back_as_the_stream_would_have_brought_it() {
    let bytes = encode(&[Some(b"1"), None, Some("{\"a\": \"ü\"}".as_bytes()), Some(b"")]);
    let mut values = Tuple::of(&bytes).values().unwrap();
    assert_eq!(values.left(), 4);
    let read: Vec<_> = values.by_ref().map(Result::unwrap).collect();
    assert_eq!(
        read,
        [
            Value::Text(b"1"),
            Value::Null,
            Value::Text("{\"a\": \"ü\"}".as_bytes()),
            Value::Text(b"")
        ]
    );
    values.finish().unwrap();
}
