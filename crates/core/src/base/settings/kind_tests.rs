use super::*;

fn word(kind: ValueKind, text: &str) -> Result<SettingValue, BadValue> {
    kind.read(&RawValue::Word(text.into()), &|_| None, &no_files)
}

fn complaint(result: Result<SettingValue, BadValue>) -> String {
    result.unwrap_err().what
}

#[test]
fn words_become_what_the_key_takes() {
    assert_eq!(word(ValueKind::Bool, "false"), Ok(SettingValue::Bool(false)));
    assert_eq!(word(ValueKind::Integer(1, 9_999), "1_000"), Ok(SettingValue::Integer(1000)));
    let list = SettingValue::Strings(vec!["a".into(), "b".into()]);
    assert_eq!(word(ValueKind::Strings(TOPIC), "a, b"), Ok(list));
    assert_eq!(word(ValueKind::Strings(TOPIC), ""), Ok(SettingValue::Strings(vec![])));
}

#[test]
fn types_of_the_file_are_not_guessed() {
    let text = |text: &str| RawValue::Text(text.into());
    let got = ValueKind::Integer(1, 9).read(&text("5"), &|_| None, &no_files);
    assert_eq!(complaint(got), "expected an integer, found a string");
    let got = ValueKind::Bool.read(&text("true"), &|_| None, &no_files);
    assert_eq!(complaint(got), "expected true or false, found a string");
    let got = ValueKind::Duration(1, 9).read(&RawValue::Integer(5), &|_| None, &no_files);
    assert_eq!(complaint(got), "expected a duration, found an integer");
}

#[test]
fn ranges_are_named_in_the_unit_of_the_key() {
    let kind = ValueKind::Duration(100, 3_600_000);
    assert_eq!(complaint(word(kind, "5ms")), "\"5ms\" is not in the range 100ms to 1h");
    assert_eq!(complaint(word(kind, "30")), "\"30\" is not a duration");
    let kind = ValueKind::Bytes(1 << 16, 1 << 34);
    assert_eq!(complaint(word(kind, "1KiB")), "\"1KiB\" is not in the range 64KiB to 16GiB");
}

#[test]
fn a_ratio_is_a_number_from_0_to_1() {
    let text = |text: &str| Ok(SettingValue::Text(text.into()));
    let read = |raw| ValueKind::Ratio.read(&raw, &|_| None, &no_files);
    assert_eq!(read(RawValue::Float("0.10".into())), text("0.1"));
    assert_eq!(read(RawValue::Integer(1)), text("1.0"));
    assert_eq!(word(ValueKind::Ratio, "1e-3"), text("0.001"));
    assert_eq!(complaint(word(ValueKind::Ratio, "x")), "x is not a number");
    for wrong in ["1.5", "-0.1", "inf", "nan"] {
        let what = complaint(read(RawValue::Float(wrong.into())));
        assert_eq!(what, format!("{wrong} is not in the range 0.0 to 1.0"));
    }
    let got = read(RawValue::Text("0.5".into()));
    assert_eq!(complaint(got), "expected a number, found a string");
}

#[test]
fn a_choice_suggests_the_nearest() {
    let wrong =
        word(ValueKind::Choice(|| vec!["continue", "park_key", "halt"]), "park-key").unwrap_err();
    assert_eq!(wrong.mend, "did you mean \"park_key\"? use one of continue, park_key, halt");
}

#[test]
fn secrets_come_from_variables_and_files() {
    let env = |name: &str| (name == "PW").then(|| "hunter2".to_owned());
    let files = |path: &Path| match path.to_str() {
        Some("/run/pw") => Ok(Secret::of("hunter2".to_owned(), path.into())),
        _ => Err((format!("cannot read {}", path.display()), String::new())),
    };
    let secret = |raw: &RawValue| ValueKind::Secret.read(raw, &env, &files);
    let hidden = Ok(SettingValue::Secret(Secret::new("hunter2")));
    assert_eq!(secret(&RawValue::Variable("PW".into())), hidden);
    let missing = secret(&RawValue::Variable("PASSWORD".into()));
    assert_eq!(complaint(missing), "environment variable PASSWORD is not set");

    let Ok(SettingValue::Secret(of_file)) = secret(&RawValue::File("/run/pw".into())) else {
        panic!("no secret")
    };
    assert_eq!((of_file.expose(), of_file.is_of_file()), ("hunter2", true));
    let unread = secret(&RawValue::File("/run/none".into())).unwrap_err();
    assert_eq!((unread.what.as_str(), unread.may_pass), ("cannot read /run/none", true));
}

#[test]
fn a_complaint_about_a_secret_does_not_quote_it() {
    for kind in [ValueKind::Secret, ValueKind::Url] {
        let got = kind.read(
            &RawValue::List(vec![RawValue::Text("hunter2".into())]),
            &|_| None,
            &no_files,
        );
        assert!(!format!("{got:?}").contains("hunter2"));
    }
}
