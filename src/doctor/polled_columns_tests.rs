use super::*;
use crate::base::template::Template;
use crate::outbox::settings::{POLLED_KEY, POLLED_TOPIC};
use crate::polling::table_facts;
use crate::source::testing;

#[test]
fn the_shipped_columns_are_those_of_the_script() {
    let sql = include_str!("../../sql/polling.sql");
    let (_, table) = sql.split_once("CREATE TABLE IF NOT EXISTS public.outbox (").unwrap();
    let (lines, _) = table.split_once("\n);").unwrap();
    let names = lines.lines().filter_map(|line| line.split_whitespace().next());
    let names: Vec<&str> = names.filter(|name| *name != "CHECK").collect();
    assert_eq!(names, SHIPPED);
}

#[test]
fn columns_that_the_shipped_table_lacks_are_named() {
    // GIVEN the defaults of a polled table
    let (mut outbox, mut polling) = (OutboxTable::default(), PollingSettings::default());
    outbox.columns.key = POLLED_KEY.to_owned();
    outbox.route.topic = Template::parse(POLLED_TOPIC).unwrap();
    assert!(not_shipped(&outbox, &polling).is_empty());
    // WHEN the configuration names columns of another table
    outbox.columns.id = "message_id".to_owned();
    outbox.columns.event_type = "kind".to_owned();
    outbox.route.topic = Template::parse("${aggregate}").unwrap();
    polling.columns.order = "message_id".to_owned();
    assert_eq!(not_shipped(&outbox, &polling), ["message_id", "aggregate", "kind"]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_change_of_a_type_is_offered_where_postgres_makes_it() {
    let (client, _) = testing::logical().database("polled_columns").await;
    let outbox = OutboxTable::default();
    let polling = PollingSettings::default();
    let quoted = quote_table(&outbox.schema, &outbox.table);
    // By column the types that do not fit, and whether a change is offered.
    for (name, found, is_offered) in [
        ("next_retry_at", "bigint", false),
        ("next_retry_at", "boolean", false),
        ("next_retry_at", "time", false),
        ("next_retry_at", "time(3)", false),
        ("next_retry_at", "timetz", false),
        ("next_retry_at", "interval", false),
        ("next_retry_at", "date", true),
        ("next_retry_at", "date DEFAULT '2026-11-21'", false),
        ("next_retry_at", "text", true),
        ("failed_at", "varchar(40)", true),
        ("failed_at", "text DEFAULT 'never'", false),
        ("retry_count", "text", true),
        ("retry_count", "text DEFAULT '0'", false),
        ("retry_count", "boolean", true),
        ("retry_count", "timestamptz", false),
        ("retry_count", "uuid", false),
        ("failure_reason", "bigint", true),
        ("failure_reason", "numeric(9, 2)", true),
        ("failure_reason", "jsonb", true),
        ("locked_by", "uuid", true),
    ] {
        let made = format!("DROP TABLE IF EXISTS {quoted}; CREATE TABLE {quoted} ({name} {found})");
        client.batch_execute(&made).await.unwrap();
        let facts = async || table_facts::gather(&client, &outbox).await.unwrap().unwrap();
        let unfit = |facts: &PolledTableFacts| {
            let findings =
                unfit_columns(&PolledTable { facts, outbox: &outbox, polling: &polling });
            findings.into_iter().next().and_then(|finding| finding.fault)
        };
        let Some(fault) = unfit(&facts().await) else { panic!("{name} {found} fits") };
        assert_eq!(fault.code, "table.column-type", "{fault}");
        assert!(
            fault.mend.starts_with("name another column in [source.polling.columns]"),
            "{fault}"
        );
        let change = fault.mend.split_once("ALTER TABLE ");
        assert_eq!(change.is_some(), is_offered, "{name} {found}: {fault}");
        // THEN the change does what it is offered for
        let Some((_, change)) = change else { continue };
        client.batch_execute(&format!("ALTER TABLE {change}")).await.unwrap();
        assert_eq!(unfit(&facts().await), None, "{name} {found}");
    }
}
