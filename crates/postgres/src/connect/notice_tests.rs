use super::*;

#[test]
fn a_warning_is_new_once_and_the_memory_is_bounded() {
    let mut logged = Logged(VecDeque::new());
    assert!(logged.is_new("db:5432 MD5") && logged.is_new("other:5432 MD5"));
    assert!(!logged.is_new("db:5432 MD5"));
    // WHEN as many others have come THEN the oldest is forgotten
    for number in 1..LOGGED_MAX {
        assert!(logged.is_new(&number.to_string()));
    }
    assert_eq!(logged.0.len(), LOGGED_MAX);
    assert!(!logged.is_new("other:5432 MD5"));
    assert!(logged.is_new("db:5432 MD5"));
}
