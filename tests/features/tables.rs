//! Several tables, and tables in parts.

use crate::support::faults::{CliFixture, read};

#[test]
fn each_table_has_its_own_route() {
    let mut scene = CliFixture::bare("tables_many");
    scene.sql(
        "CREATE TABLE public.orders (id int, aggregateid text, payload text);
         CREATE TABLE public.bills (no int, customer text, doc text, kind text);
         CREATE TABLE public.noise (id int);",
    );
    scene.publish("TABLE orders, bills, noise");
    scene.make_slot();
    for topic in ["tables.orders", "tables.bills.a", "tables.bills.b"] {
        scene.make_topic(topic, 1);
    }
    scene.source = r#"
        [[source.outbox]]
        table = "public.orders"
        route = { topic = "tables.orders", preset = "debezium" }
        [[source.outbox]]
        table = "public.bills"
        columns = { id = "no", key = "customer", payload = "doc" }
        route = { topic = "tables.bills.${kind}", headers = { own = "${kind}" } }
    "#
    .into();
    // GIVEN one transaction over all of them
    scene.sql(
        "BEGIN; INSERT INTO orders VALUES (1, 'o', 'order'); INSERT INTO noise VALUES (1);
         INSERT INTO bills VALUES (2, 'c', 'bill', 'a'), (3, 'c', 'bill', 'b');
         INSERT INTO orders VALUES (4, 'o', 'order again'); COMMIT",
    );
    scene.carry(&[]);
    let orders = read(&["tables.orders"]);
    let found: Vec<_> = orders.iter().map(|r| (r.header("id").unwrap(), r.text())).collect();
    assert_eq!(found, [("1", "order"), ("4", "order again")]);
    assert_eq!(orders[0].header_names(), ["id"]);
    for (kind, id) in [("a", "2"), ("b", "3")] {
        let bills = read(&[&format!("tables.bills.{kind}")]);
        let [bill] = &bills[..] else { panic!("{bills:?}") };
        assert_eq!((bill.header("id"), bill.key()), (Some(id), Some("c")));
        assert_eq!(bill.header_names(), ["id", "commit_ts", "lsn", "own"]);
    }
}

#[test]
fn a_partitioned_table_arrives_under_its_own_name_and_new_partitions_too() {
    let mut scene = CliFixture::bare("tables_parts");
    scene.sql(
        "CREATE TABLE public.outbox (id int, aggregateid text, payload text) PARTITION BY RANGE (id);
         CREATE TABLE public.outbox_a PARTITION OF outbox FOR VALUES FROM (0) TO (10);",
    );
    scene.prepare("TABLE public.outbox", "tables.parts");
    scene.route = "topic = \"tables.parts\"".into();
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.sql("INSERT INTO outbox VALUES (1, 'k', 'a')");
    scene.wait_confirmed(&mut relay);
    // WHEN a partition is made, and one with other columns' order is attached, while streaming
    scene.sql(
        "CREATE TABLE public.outbox_b PARTITION OF outbox FOR VALUES FROM (10) TO (20);
         CREATE TABLE public.outbox_c (gone int, payload text, aggregateid text, id int);
         ALTER TABLE outbox_c DROP COLUMN gone;
         ALTER TABLE outbox ATTACH PARTITION outbox_c FOR VALUES FROM (20) TO (30);
         INSERT INTO outbox VALUES (11, 'k', 'b'), (21, 'k', 'c'); INSERT INTO outbox_c VALUES ('d', 'k', 22);
         DROP TABLE outbox_a; INSERT INTO outbox VALUES (12, 'k', 'e');",
    );
    scene.wait_confirmed(&mut relay);
    relay.stop();
    let records = read(&["tables.parts"]);
    let found: Vec<_> = records.iter().map(|r| (r.header("id").unwrap(), r.text())).collect();
    assert_eq!(found, [("1", "a"), ("11", "b"), ("21", "c"), ("22", "d"), ("12", "e")]);
}
