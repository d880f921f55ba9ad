use super::*;

fn record<'a>(value: &'a [u8]) -> Outbound<'a> {
    Outbound {
        exchange: "",
        topic: "outbox.dlq",
        key: Some(b"k"),
        value: Some(value),
        id: "e1",
        event_type: None,
        content_type: None,
        headers: &[("dlq-event-id", b"e1")],
        commit_unix_us: 0,
        partition: None,
    }
}

#[test]
fn a_letter_that_is_refused_is_cut_until_nothing_is_left_to_cut() {
    let value = vec![b'v'; 2_000_000];
    let limit = RecordLimit::new(None);
    let code = Code::MessageSizeTooLarge;
    let first = limit.fit(&record(&value), |letter| letter.value.map(<[u8]>::len)).unwrap();
    assert!((990_000..1_000_000).contains(&first), "{first}");
    assert_eq!(limit.fit_less(Code::InvalidRecord, &record(&value), |_| ()), None);
    let mut bytes = first;
    let mut rounds = 0;
    while let Some(less) =
        limit.fit_less(code, &record(&value[..bytes]), |less| less.value.map_or(0, <[u8]>::len))
    {
        assert!(less <= bytes / 2, "{less} of {bytes}");
        (bytes, rounds) = (less, rounds + 1);
    }
    assert_eq!(bytes, 0);
    assert!(rounds < 20, "{rounds}");
}

#[test]
fn the_least_of_all_limits_counts_and_clones_share_it() {
    let limit = RecordLimit::new(Some("500000"));
    let again = limit.clone();
    let value = vec![b'v'; 2_000_000];
    let fits = |limit: &RecordLimit| {
        limit.fit(&record(&value), |letter| letter.value.map_or(0, <[u8]>::len))
    };
    again.learn(1_048_588);
    assert!((490_000..500_000).contains(&fits(&limit)), "{}", fits(&limit));
    again.learn(20_000);
    assert!((15_000..20_000).contains(&fits(&limit)), "{}", fits(&limit));
}
