use super::*;

fn found(json: &str, path: &[&str]) -> Option<String> {
    let path: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
    let json = member(json.as_bytes(), &path).unwrap()?;
    Some(text_of(json).unwrap().into_owned())
}

#[test]
fn a_member_is_found_at_any_depth_and_keeps_its_text() {
    let json = r#" {"a": {"b": {"c": "x\u00e9\n", "n": 1.50}}, "t": true, "a b": [1, "2"]} "#;
    assert_eq!(found(json, &["a", "b", "c"]).as_deref(), Some("xé\n"));
    assert_eq!(found(json, &["a", "b", "n"]).as_deref(), Some("1.50"));
    assert_eq!(found(json, &["t"]).as_deref(), Some("true"));
    assert_eq!(found(json, &["a b"]).as_deref(), Some(r#"[1, "2"]"#));
    assert_eq!(found(r#"{"\u0061": 1, "a": 2}"#, &["a"]).as_deref(), Some("2"), "the last");
}

#[test]
fn what_is_not_there_is_none_and_what_is_no_json_is_an_error() {
    for (json, path) in [
        ("{}", &["a"][..]),
        (r#"{"a": null}"#, &["a"]),
        (r#"{"a": 1}"#, &["a", "b"]),
        ("[1]", &["0"]),
        ("\"text\"", &["a"]),
    ] {
        assert_eq!(found(json, path), None, "{json}");
    }
    for json in ["", "{", "{} x", "{\"a\" 1}"] {
        assert!(member(json.as_bytes(), &["a".to_owned()]).is_err(), "{json}");
    }
}
