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
    assert_eq!(rights(&events, &[&letters]), narrow);
    let consumer = DeadLetterAddress::of_consumer("billing.dlq").unwrap();
    let both =
        "'' '^(outbox\\.events|outbox\\.dlx|billing\\.dlx)$' '^(outbox\\.dlq|billing\\.dlq)$'";
    assert_eq!(rights(&events, &[&letters, &consumer]), both);
    assert_eq!(rights(&events, &[]), "'' '^outbox\\.events$' ''");
    let default = Template::literal("");
    assert_eq!(rights(&default, &[]), "'' '^amq\\.default$' ''");
    let of_rows = Template::parse("${exchange}").unwrap();
    assert_eq!(rights(&of_rows, &[&letters]), "'' '.*' '^outbox\\.dlq$'");
    let quotation = Template::literal("it's");
    assert_eq!(rights(&quotation, &[]), r"'' '^it'\''s$' ''");
}
