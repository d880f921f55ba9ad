use super::*;

#[test]
fn identifiers_keep_every_character() {
    assert_eq!(quote_ident("outbox"), "\"outbox\"");
    assert_eq!(quote_ident("a\"; DROP TABLE x; --"), "\"a\"\"; DROP TABLE x; --\"");
    assert_eq!(quote_table("Sales", "out.box"), "\"Sales\".\"out.box\"");
}

#[test]
fn literals_cannot_be_left() {
    assert_eq!(quote_literal("it's"), "'it''s'");
    assert_eq!(quote_literal("a\\' OR 1=1"), " E'a\\\\'' OR 1=1'");
}
