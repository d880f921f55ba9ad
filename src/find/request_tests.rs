use super::*;

const NOW: i64 = 1_764_032_400_000_000;

fn parse(
    id: Option<&str>,
    key: Option<&str>,
    since: Option<&str>,
) -> Result<FindRequest, Vec<String>> {
    let text = |text: Option<&str>| text.map(str::to_owned);
    let given = FindText { id: text(id), key: text(key), since: text(since) };
    let places = |faults: Vec<Fault>| faults.into_iter().map(|fault| fault.place).collect();
    FindRequest::parse(&given, WITHIN_DEFAULT, NOW).map_err(places)
}

#[test]
fn an_id_or_a_key_is_looked_for_since_a_day_ago() {
    let request = parse(Some("7"), None, None).unwrap();
    assert_eq!(request.wanted, Wanted::Id("7".to_owned()));
    assert_eq!((request.since_unix_us, request.since_is_given), (NOW - DAY_US, false));
    assert_eq!(request.within, Duration::from_secs(30));
    let request = parse(None, Some(""), Some("15m")).unwrap();
    assert_eq!(request.wanted, Wanted::Key(String::new()));
    assert_eq!((request.since_unix_us, request.since_is_given), (NOW - 900_000_000, true));
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    assert_eq!(parse(None, None, Some("soon")).unwrap_err(), ["id", "since"]);
    assert_eq!(parse(Some("7"), Some("k"), None).unwrap_err(), ["id"]);
    assert_eq!(parse(Some(""), None, None).unwrap_err(), ["id"]);
    let given = FindText { id: Some("7".to_owned()), ..FindText::default() };
    for within in ["0s", "2h", "soon", ""] {
        let faults = FindRequest::parse(&given, within, NOW).unwrap_err();
        assert_eq!(faults[0].place, "within", "{within}");
    }
}
