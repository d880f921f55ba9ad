use super::*;

#[test]
fn a_name_becomes_a_pattern_for_itself_alone() {
    assert_eq!(pattern(&["outbox.events"]), "^outbox\\.events$");
    assert_eq!(pattern(&["a+b(c)"]), "^a\\+b\\(c\\)$");
    assert_eq!(pattern(&["a.b", "c"]), "^(a\\.b|c)$");
    assert_eq!(pattern(&[]), "");
}
