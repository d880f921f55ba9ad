use super::*;
use crate::base::template::Template;
use crate::outbox::settings::{POLLED_KEY, POLLED_TOPIC};

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
