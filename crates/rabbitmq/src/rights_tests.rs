use super::*;

#[test]
fn a_name_becomes_a_pattern_for_itself_alone() {
    assert_eq!(pattern(&["outbox.events"]), "^outbox\\.events$");
    assert_eq!(pattern(&["a+b(c)"]), "^a\\+b\\(c\\)$");
    assert_eq!(pattern(&["a.b", "c"]), "^(a\\.b|c)$");
    assert_eq!(pattern(&[]), "");
}

#[test]
fn the_rights_are_those_of_the_configured_names() {
    let letters = DeadLetterAddress::default();
    let events = Template::literal("outbox.events");
    let narrow = "'' '^(outbox\\.events|outbox\\.dlx)$' '^outbox\\.dlq$'";
    assert_eq!(rights(&events, Some(&letters)), narrow);
    assert_eq!(rights(&events, None), "'' '^outbox\\.events$' ''");
    let default = Template::literal("");
    assert_eq!(rights(&default, None), "'' '^amq\\.default$' ''");
    let of_rows = Template::parse("${exchange}").unwrap();
    assert_eq!(rights(&of_rows, Some(&letters)), "'' '.*' '^outbox\\.dlq$'");
    let quotation = Template::literal("it's");
    assert_eq!(rights(&quotation, None), r"'' '^it'\''s$' ''");
}
