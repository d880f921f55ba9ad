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
