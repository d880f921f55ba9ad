use super::*;

#[test]
fn literals_and_columns_alternate() {
    let template = Template::parse("outbox.event.${aggregatetype}.v1").unwrap();
    assert_eq!(
        template.parts(),
        [
            Part::Literal("outbox.event.".into()),
            Part::Column("aggregatetype".into()),
            Part::Literal(".v1".into()),
        ]
    );
    assert_eq!(template.columns().collect::<Vec<_>>(), ["aggregatetype"]);
    assert_eq!(template.constant(), None);
    assert_eq!(Template::parse("orders").unwrap().constant(), Some("orders"));
    assert_eq!(Template::parse("${id}").unwrap(), Template::column("id"));
}

#[test]
fn a_doubled_dollar_is_literal() {
    assert_eq!(Template::parse("a$${b}").unwrap().constant(), Some("a${b}"));
}

#[test]
fn broken_templates_say_where() {
    assert_eq!(Template::parse("ab${cd"), Err(TemplateError::Unclosed(2)));
    assert_eq!(Template::parse("ab${ }"), Err(TemplateError::Empty(2)));
}

#[test]
fn a_template_could_become_what_has_its_constant_parts_in_order() {
    for (template, text, could) in [
        ("orders", "orders", true),
        ("orders", "orders.eu", false),
        ("outbox.event.${a}", "outbox.event.order", true),
        ("outbox.event.${a}", "outbox.order", false),
        ("${a}", "anything", true),
        ("${a}.${b}.v1", "x.y.v1", true),
        ("${a}.${b}.v1", "x.v1", false),
        ("${a}.v1", "x.v1.v1", true),
        ("a${b}a", "a", false),
        ("a${b}a", "aa", true),
    ] {
        assert_eq!(
            Template::parse(template).unwrap().could_become(text),
            could,
            "{template} {text}"
        );
    }
}
