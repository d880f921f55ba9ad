use super::*;

fn typed(wanted: &Wanted) -> WantedSpellings<'_> {
    WantedSpellings { typed: wanted, tables: &[] }
}

fn record<'a>(key: &'a str, offset: i64, headers: &'a [(String, Vec<u8>)]) -> StoredRecord<'a> {
    StoredRecord {
        topic: "orders",
        partition: 2,
        offset,
        written_unix_us: offset,
        key: Some(key.as_bytes()),
        headers,
    }
}

fn headers(pairs: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect()
}

#[test]
fn a_record_is_known_by_its_id_and_says_what_it_knows() {
    let wanted = Wanted::Id("e1".to_owned());
    let wanted = typed(&wanted);
    let mut filter = RecordFilter::new(&wanted);
    let time = "2026-01-02T03:04:05.000000Z";
    let all = [("id", "e1"), ("lsn", "0/A"), ("commit_ts", time), ("traceparent", "t")];
    filter.take(&record("k\u{1b}", 7, &headers(&all)));
    filter.take(&record("k", 8, &headers(&[("id", "e2")])));
    filter.take(&record("k", 9, &headers(&[])));
    filter.take(&record("k", 10, &headers(&[("cloudEvents_id", "e1"), ("lsn", "?")])));
    let RecordFilter { found, is_cut, .. } = filter;
    assert_eq!((found.len(), is_cut), (2, false));
    assert_eq!(found[0].key.as_deref(), Some("k\\u{1b}"));
    assert_eq!(found[0].lsn, Some("0/A".parse().unwrap()));
    assert_eq!(found[0].commit_unix_us, parse_rfc3339(time));
    assert_eq!((found[0].of.partition, found[0].of.offset), (2, 7));
    assert_eq!((found[1].lsn, found[1].commit_unix_us), (None, None));
}

#[test]
fn of_a_key_the_last_records_are_kept() {
    let wanted = Wanted::Key("k".to_owned());
    let wanted = typed(&wanted);
    let mut filter = RecordFilter::new(&wanted);
    let count = 2 * RECORDS_MAX as i64;
    for offset in 0..count {
        let id = offset.to_string();
        filter.take(&record("k", offset, &headers(&[("id", &id)])));
        filter.take(&record("other", offset, &headers(&[("id", &id)])));
        assert!(filter.found.len() <= RECORDS_MAX);
    }
    let RecordFilter { found, is_cut, .. } = filter;
    assert_eq!((found.len(), is_cut), (RECORDS_MAX, true));
    assert_eq!(found.last().unwrap().of.offset, count - 1);
}
