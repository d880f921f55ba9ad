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

#[test]
fn a_member_of_a_column_is_joined_by_dots_and_a_name_with_a_dot_is_quoted() {
    let part = |text: &str| Template::parse(text).unwrap().parts().to_vec();
    let member = |column: &str, path: &[&str]| {
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        vec![Part::Member { column: column.to_owned(), path }]
    };
    assert_eq!(part("${headers.PARTITION_ID}"), member("headers", &["PARTITION_ID"]));
    assert_eq!(part("${\"Properties\".a.\"b.c\"}"), member("Properties", &["a", "b.c"]));
    assert_eq!(part("${\"a.b\"}"), [Part::Column("a.b".into())]);
    assert_eq!(part("${table}"), [Part::Table]);
    assert_eq!(part("${\"table\"}"), [Part::Column("table".into())]);
    for text in ["${a.}", "${.a}", "${a..b}", "${\"a}", "${\"a\"b}"] {
        let error = Template::parse(text).unwrap_err();
        assert!(matches!(error, TemplateError::BadName(0, _)), "{text}: {error}");
    }
    for text in ["${a.b}", "${\"a.b\".c}", "${table}", "${\"table\"}", "x-${a}-$${y"] {
        assert_eq!(Template::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn a_member_is_rendered_and_the_name_of_the_table_becomes_text() {
    let template = Template::parse("${table}.${meta.tenant.id}").unwrap();
    assert_eq!(template.columns().collect::<Vec<_>>(), ["meta"]);
    let of_table = template.for_table("events");
    assert_eq!(of_table.to_string(), "events.${meta.tenant.id}");
    let render = |json: &'static str| of_table.render(|_| Some(json));
    assert_eq!(render(r#"{"tenant": {"id": 7}}"#).as_deref(), Some("events.7"));
    assert_eq!(render(r#"{"tenant": {}}"#), None);
    assert_eq!(render("no JSON"), None);
    let alone = Template::parse("a.${table}").unwrap().for_table("t");
    assert_eq!(alone.constant(), Some("a.t"));
}
