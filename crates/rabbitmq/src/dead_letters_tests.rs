use lapin::BasicProperties;

use super::*;

#[test]
fn after_what_cannot_be_read_it_goes_on_behind_the_last_record_and_one_further_each_time() {
    let at = |last, from, garbled| restart(last, &from, 120_000_000, garbled);
    let number = AMQPValue::LongLongInt;
    // Behind the last record, whatever was asked for.
    for from in [ReadFrom::Beginning, ReadFrom::Time(1), ReadFrom::End] {
        assert_eq!(at(Some(41), from.clone(), 1), number(42), "nothing is passed over yet");
        assert_eq!(at(Some(41), from, 3), number(44));
    }
    // Before the first record: from the beginning of the stream.
    assert_eq!(at(None, ReadFrom::Beginning, 1), number(0));
    assert_eq!(at(None, ReadFrom::Time(1), 2), number(1));
    // News that were missed are looked for once.
    assert_eq!(at(None, ReadFrom::End, 1), AMQPValue::Timestamp(60));
    assert_eq!(at(None, ReadFrom::End, 2), AMQPValue::LongString("next".into()));
    assert_eq!(passed_over(&number(44)), Some(43));
}

#[test]
fn headers_of_others_are_text_where_that_is_obvious_and_named_where_it_is_not() {
    let mut headers = FieldTable::default();
    headers.insert(OFFSET_HEADER.into(), AMQPValue::LongLongInt(7));
    headers.insert("dlq-attempts".into(), AMQPValue::LongInt(2));
    headers.insert("is_new".into(), AMQPValue::Boolean(true));
    headers.insert("ratio".into(), AMQPValue::Double(0.5));
    for name in OF_BROKER {
        headers.insert(name.into(), AMQPValue::FieldArray(Vec::new().into()));
    }
    let mut delivery = Delivery::mock(1, "".into(), "outbox.dlq".into(), false, Vec::new());
    delivery.properties = BasicProperties::default().with_headers(headers);
    let mut entry = entry(delivery).unwrap();
    entry.headers.sort();
    let text =
        |(name, value): &(String, Vec<u8>)| format!("{name}={}", String::from_utf8_lossy(value));
    let headers: Vec<String> = entry.headers.iter().map(text).collect();
    assert_eq!(headers, ["dlq-attempts=2", "dlq-headers-dropped=ratio", "is_new=true"]);
    assert_eq!(entry.position.offset, 7);
}
