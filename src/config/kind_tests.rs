use super::*;

fn word(kind: Kind, text: &str) -> Result<Value, Wrong> {
    read(kind, &Raw::Word(text.into()), &|_| None)
}

fn complaint(result: Result<Value, Wrong>) -> String {
    result.unwrap_err().what
}

#[test]
fn words_become_what_the_key_takes() {
    assert_eq!(word(Kind::Bool, "false"), Ok(Value::Bool(false)));
    assert_eq!(word(Kind::Integer { min: 1, max: 9_999 }, "1_000"), Ok(Value::Integer(1000)));
    let list = Value::Strings(vec!["a".into(), "b".into()]);
    assert_eq!(word(Kind::Strings(rule::TOPIC), "a, b"), Ok(list));
    assert_eq!(word(Kind::Strings(rule::TOPIC), ""), Ok(Value::Strings(vec![])));
}

#[test]
fn types_of_the_file_are_not_guessed() {
    let text = |text: &str| Raw::Text(text.into());
    let got = read(Kind::Integer { min: 1, max: 9 }, &text("5"), &|_| None);
    assert_eq!(complaint(got), "expected an integer, found a string");
    let got = read(Kind::Bool, &text("true"), &|_| None);
    assert_eq!(complaint(got), "expected true or false, found a string");
    let got = read(Kind::Duration { min_ms: 1, max_ms: 9 }, &Raw::Integer(5), &|_| None);
    assert_eq!(complaint(got), "expected a duration, found an integer");
}

#[test]
fn ranges_are_named_in_the_unit_of_the_key() {
    let kind = Kind::Duration { min_ms: 100, max_ms: 3_600_000 };
    assert_eq!(complaint(word(kind, "5ms")), "\"5ms\" is not in the range 100ms to 1h");
    assert_eq!(complaint(word(kind, "30")), "\"30\" is not a duration");
    let kind = Kind::Bytes { min: 1 << 16, max: 1 << 34 };
    assert_eq!(complaint(word(kind, "1KiB")), "\"1KiB\" is not in the range 64KiB to 16GiB");
}

#[test]
fn a_choice_suggests_the_nearest() {
    let wrong = word(Kind::Choice(&["continue", "park_key", "halt"]), "park-key").unwrap_err();
    assert_eq!(wrong.mend, "did you mean \"park_key\"? use one of continue, park_key, halt");
}

#[test]
fn rules_refuse_what_postgres_and_kafka_would() {
    let holds = |rule: Rule, text: &str| (rule.holds)(text);
    assert!(holds(rule::SLOT, "walrelay_2"));
    assert!(
        !holds(rule::SLOT, "Walrelay")
            && !holds(rule::SLOT, "")
            && !holds(rule::SLOT, &"a".repeat(64))
    );
    assert!(holds(rule::TABLE, "outbox") && holds(rule::TABLE, "app.outbox"));
    assert!(
        !holds(rule::TABLE, "a.b.c")
            && !holds(rule::TABLE, ".outbox")
            && !holds(rule::TABLE, "a.\"b\"")
    );
    assert!(
        holds(rule::TOPIC, "outbox.dlq") && !holds(rule::TOPIC, "a b") && !holds(rule::TOPIC, "..")
    );
    assert!(holds(rule::BROKERS, "a:9092, b:9092") && holds(rule::BROKERS, "[::1]:9092"));
    assert!(holds(rule::BROKERS, "SASL_SSL://a:9092") && holds(rule::BROKERS, "kafka"));
    assert!(
        !holds(rule::BROKERS, "")
            && !holds(rule::BROKERS, "a:x")
            && !holds(rule::BROKERS, "a:1,,b:1")
    );
}

#[test]
fn secrets_come_from_variables_and_files() {
    let env = |name: &str| (name == "PW").then(|| "hunter2".to_owned());
    let secret = |raw: &Raw| read(Kind::Secret, raw, &env);
    let hidden = Ok(Value::Secret(Secret::new("hunter2")));
    assert_eq!(secret(&Raw::Variable("PW".into())), hidden);
    let missing = secret(&Raw::Variable("PASSWORD".into()));
    assert_eq!(complaint(missing), "environment variable PASSWORD is not set");

    let path = std::env::temp_dir().join(format!("walrelay-secret-{}", std::process::id()));
    std::fs::write(&path, "hunter2\n").unwrap();
    let path_text = path.to_str().unwrap().to_owned();
    assert_eq!(secret(&Raw::File(path_text.clone())), hidden);
    std::fs::remove_file(&path).unwrap();
    assert!(complaint(secret(&Raw::File(path_text))).ends_with("entity not found"));
}

#[test]
fn a_complaint_about_a_secret_does_not_quote_it() {
    for kind in [Kind::Secret, Kind::Url] {
        let got = read(kind, &Raw::List(vec![Raw::Text("hunter2".into())]), &|_| None);
        assert!(!format!("{got:?}").contains("hunter2"));
    }
}
