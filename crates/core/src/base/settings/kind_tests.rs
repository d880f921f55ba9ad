use super::*;

fn word<K: Kind>(kind: &K, text: &str) -> Result<K::Value, BadValue> {
    kind.parse(&Raw::Word(text.into()))
}

fn complaint<T>(result: Result<T, BadValue>) -> String {
    result.err().unwrap().what
}

#[test]
fn words_become_what_the_key_takes() {
    assert_eq!(word(&Flag, "false"), Ok(false));
    assert_eq!(word(&Within(1, 9_999), "1_000"), Ok(1000));
    let topics = Strings(Text::of(TOPIC));
    assert_eq!(word(&topics, "a, b"), Ok(vec!["a".into(), "b".into()]));
    assert_eq!(word(&topics, ""), Ok(vec![]));
}

#[test]
fn types_of_the_file_are_not_guessed() {
    let text = |text: &str| Raw::Text(text.into());
    let got = Within(1, 9).parse(&text("5"));
    assert_eq!(complaint(got), "expected an integer, found a string");
    assert_eq!(complaint(Flag.parse(&text("true"))), "expected true or false, found a string");
    let got = Within(Duration::ZERO, Duration::MAX).parse(&Raw::Integer(5));
    assert_eq!(complaint(got), "expected a duration, found an integer");
    let list = |item| Strings(Text::of(TOPIC)).parse(&Raw::List(vec![text("a b"), item]));
    assert_eq!(complaint(list(Raw::Integer(1))), "expected a string, found an integer");
    assert!(complaint(list(text("a"))).starts_with("\"a b\" is not a topic name"));
}

#[test]
fn ranges_are_named_in_the_unit_of_the_key() {
    let kind = Within(Duration::from_millis(100), Duration::from_secs(3600));
    assert_eq!(complaint(word(&kind, "5ms")), "\"5ms\" is not in the range 100ms to 1h");
    assert_eq!(complaint(word(&kind, "30")), "\"30\" is not a duration");
    let kind = Within(Bytes(1 << 16), Bytes(1 << 34));
    assert_eq!(complaint(word(&kind, "1KiB")), "\"1KiB\" is not in the range 64KiB to 16GiB");
    assert_eq!(kind.show(&Bytes(1 << 20)), "1MiB");
}

#[test]
fn a_ratio_is_a_number_from_0_to_1() {
    let kind = Within(0.0, 1.0);
    assert_eq!(kind.parse(&Raw::Float("0.10".into())), Ok(0.1));
    assert_eq!(kind.parse(&Raw::Integer(1)), Ok(1.0));
    assert_eq!(word(&kind, "1e-3"), Ok(0.001));
    assert_eq!(complaint(word(&kind, "x")), "x is not a number");
    for wrong in ["1.5", "-0.1", "inf", "nan"] {
        let what = complaint(kind.parse(&Raw::Float(wrong.into())));
        assert_eq!(what, format!("{wrong} is not in the range 0.0 to 1.0"));
    }
    let got = kind.parse(&Raw::Text("0.5".into()));
    assert_eq!(complaint(got), "expected a number, found a string");
}

#[test]
fn a_choice_suggests_the_nearest() {
    let kind = Text::one_of(vec!["continue", "park_key", "halt"]);
    let wrong = word(&kind, "park-key").unwrap_err();
    assert_eq!(wrong.mend, "did you mean \"park_key\"? use one of continue, park_key, halt");
}

#[test]
fn a_secret_is_read_where_it_is_referred_to() {
    let kind = SecretText { is_url: false };
    let read = |secret: Result<Secret, BadValue>| {
        kind.parse(&Raw::Reference(Box::new(move || secret.clone())))
    };
    assert_eq!(read(Ok(Secret::new("hunter2"))), Ok(Secret::new("hunter2")));
    assert_eq!(complaint(read(bad("is not set", ""))), "is not set");
    // What may change at any time is equal to whatever it was.
    let of_file = Secret::of("hunter2".to_owned(), std::path::Path::new("/run/pw").into());
    assert_eq!((kind.expose(&of_file), kind.show(&of_file)), (Json::Null, "***".into()));
    assert_eq!(kind.expose(&Secret::new("hunter2")), "hunter2");
}

#[test]
fn an_empty_url_may_pass_if_its_file_has_yet_to_be_written() {
    let kind = SecretText { is_url: true };
    let read = |secret: Secret| {
        let secret: Result<Secret, BadValue> = Ok(secret);
        kind.parse(&Raw::Reference(Box::new(move || secret.clone()))).unwrap_err()
    };
    let of_file = read(Secret::of(String::new(), std::path::Path::new("/run/url").into()));
    assert_eq!((of_file.what.as_str(), of_file.may_pass), ("the file /run/url is empty", true));
    assert_eq!(of_file.mend, "write the URL into it: ls -l /run/url");
    let of_variable = read(Secret::default());
    assert_eq!((of_variable.what.as_str(), of_variable.may_pass), ("the value is empty", false));
}

#[test]
fn a_variable_in_place_of_a_url_is_told_how_it_is_written() {
    let read = |is_url, text: &str| SecretText { is_url }.parse(&Raw::Text(text.into()));
    for text in ["${DATABASE_URL}", "$DATABASE_URL"] {
        let told = read(true, text).unwrap_err();
        assert_eq!(told.what, "variables are not expanded in a value");
        assert_eq!(told.mend, "write { env = \"DATABASE_URL\" }");
        // A password may look like this.
        assert_eq!(read(false, text), Ok(Secret::new(text)));
    }
    for text in ["$", "${}", "$1", "postgres://${HOST}/app", "${A}${B}"] {
        assert!(read(true, text).is_ok(), "{text}");
    }
}

#[test]
fn a_complaint_about_a_secret_does_not_quote_it() {
    for is_url in [false, true] {
        let list = Raw::List(vec![Raw::Text("hunter2".into())]);
        let got = SecretText { is_url }.parse(&list).unwrap_err();
        assert!(!format!("{got:?}").contains("hunter2"));
    }
}
