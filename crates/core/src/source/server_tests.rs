use super::*;

type Kind = fn(&ServerError) -> bool;

#[test]
fn an_error_is_told_by_its_sqlstate_and_its_function_together() {
    let raised = |sqlstate: &str, routine: &str| {
        let (sqlstate, routine) = (sqlstate.to_owned(), routine.to_owned());
        ServerError { sqlstate, routine, ..ServerError::default() }
    };
    let cases: [(Kind, &str, &str); 3] = [
        (ServerError::is_missing_publication, "42704", "get_publication_oid"),
        (ServerError::is_skipped_publication, "55000", "LoadPublications"),
        (ServerError::is_closed_database, "55000", "CheckMyDatabase"),
    ];
    for (is_it, sqlstate, routine) in cases {
        assert!(is_it(&raised(sqlstate, routine)), "{routine}");
        assert!(!is_it(&raised(sqlstate, "other")) && !is_it(&raised("0A000", routine)));
    }
    assert!(raised("42883", "").is_without_binary() && !raised("42704", "").is_without_binary());
}

#[test]
fn an_error_shows_its_outermost_function_and_no_value() {
    let parsed = |sqlstate: &str| {
        let context = "inner: canary\nfunction of the table\nportal with parameter: $1 = 'canary'";
        let fields = format!("C{sqlstate}\0Mrefused\0DRow (canary).\0W{context}\0\0");
        ServerError::parse(fields.as_bytes())
    };
    let of_value = parsed("23514");
    assert_eq!(of_value.to_string(), "refused (SQLSTATE 23514)");
    assert_eq!(of_value.context, "function of the table");
    assert_eq!(parsed("53300").to_string(), "refused (SQLSTATE 53300); Row (canary).");
}
