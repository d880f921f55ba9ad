use super::*;

#[test]
fn a_column_of_a_user_defined_type_is_not_said_to_be_missing() {
    let column = |name: &str, builtin_type: Option<&str>| ColumnFacts {
        name: name.to_owned(),
        generated: false,
        builtin_type: builtin_type.map(str::to_owned),
    };
    let columns = [column("type", Some("text")), column("kind", None), column("um", None)];
    for message in [
        "column \"kind\" does not exist",
        "column outbox.kind does not exist",
        "Spalte »kind« existiert nicht",
    ] {
        let why = absence(message, &columns);
        assert!(why.starts_with("column kind has a user-defined type"), "{why}");
    }
    let message = "column \"kinds\" does not exist";
    assert_eq!(absence(message, &columns), message);
}
