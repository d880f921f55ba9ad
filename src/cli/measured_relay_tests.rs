//! Tests of the configuration that a measured relay gets, made from the user's.

use super::*;
use crate::base::error::Exit;
use crate::base::testing::TempFolder;
use crate::config::load;

fn config(sink: &str) -> Config {
    let text = format!(
        "[source]\nurl = \"postgres://u:s3cret@db/app\"\nslot = \"mine\"\npublication = \"mine\"\n\
         [[source.outbox]]\ntable = \"public.outbox\"\n[delivery]\nwindow_events_max = 77\n{sink}"
    );
    let folder = TempFolder::new();
    let file = folder.path().join("w.toml");
    std::fs::write(&file, text).unwrap();
    load(&Request { file: Some(file), ..Request::default() }).unwrap().config
}

const KAFKA: &str =
    "[sink]\nkind = \"kafka\"\n[sink.kafka]\nbrokers = \"k:9092\"\ntopics = [\"must.be\"]\n";
const RABBIT: &str = "[sink]\nkind = \"rabbitmq\"\n[sink.rabbitmq]\nurl = \"amqp://mq/%2f\"\nexchange = \"theirs\"\n";

fn order(interval_ms: Option<u64>) -> RelayOrder {
    RelayOrder { name: "walrelay_compare_x".to_owned(), interval_ms, ..RelayOrder::default() }
}

#[test]
fn the_scratch_site_takes_the_place_of_theirs_and_delivery_stays() {
    let adapted = adapt(&order(None), &config(KAFKA)).unwrap();
    assert_eq!(adapted.source.slot, "walrelay_compare_x");
    assert_eq!(adapted.source.publication, "walrelay_compare_x");
    assert_eq!(adapted.source.connection.application_name, "walrelay_compare_x_relay");
    let [outbox] = adapted.source.outboxes.as_slice() else { panic!("one outbox") };
    assert_eq!((outbox.schema.as_str(), outbox.table.as_str()), ("walrelay_compare_x", "outbox"));
    assert_eq!(outbox.route.topic.constant(), Some("walrelay_compare_x"));
    assert!(outbox.route.exchange.is_none());
    assert_eq!(adapted.delivery.window_events_max, 77);
    assert_eq!(adapted.delivery.on_dead_letter, OnDeadLetter::Halt);
    assert_eq!(adapted.polling, None);
    assert_eq!(adapted.admin.listen.port(), 0);
    let shown = format!("{:?}", adapted.sink);
    assert!(!shown.contains("must.be"), "{shown}");
}

#[test]
fn on_rabbitmq_the_exchange_is_the_scratch_one() {
    let adapted = adapt(&order(None), &config(RABBIT)).unwrap();
    let route = &adapted.source.outboxes[0].route;
    assert_eq!(route.exchange.as_ref().unwrap().constant(), Some("walrelay_compare_x"));
    let shown = format!("{:?}", adapted.sink);
    assert!(shown.contains("walrelay_compare_x") && !shown.contains("theirs"), "{shown}");
}

#[test]
fn polling_gets_its_interval_and_the_shipped_table() {
    let adapted = adapt(&order(Some(250)), &config(KAFKA)).unwrap();
    let polling = adapted.polling.unwrap();
    assert_eq!(polling.interval, Duration::from_millis(250));
    // Two claims of each worker fit into the window of 77.
    assert!(2 * polling.workers * polling.batch_max <= 77, "{polling:?}");
    let shipped = include_str!("../../sql/polling.sql");
    let WorkColumns { order, status, retry_count, next_retry_at, .. } = &polling.columns;
    for column in [order, status, retry_count, next_retry_at] {
        assert!(shipped.contains(&format!("    {column} ")), "{column}");
    }
    assert!(shipped.contains(&format!("'{}'", polling.status_values.in_progress)));
}

#[test]
fn a_sink_without_a_broker_is_refused() {
    let fault = adapt(&order(None), &config("[sink]\nkind = \"memory\"\n")).unwrap_err();
    assert_eq!((fault.exit, fault.code), (Exit::Usage, "sink.no-scratch"));
}

#[test]
fn an_order_survives_its_way() {
    let origin = Request {
        file: Some("a b.toml".into()),
        settings: vec!["source.url=postgres://u:p\"w@db".to_owned()],
        slot: Some("s".to_owned()),
        ..Request::default()
    };
    let sent = RelayOrder { config: to_order(&origin).unwrap(), ..order(Some(5)) };
    let line = serde_json::to_string(&sent).unwrap();
    assert!(!line.contains('\n'));
    let read: RelayOrder = serde_json::from_str(&line).unwrap();
    let request = request(&read, &Request::default()).unwrap();
    assert_eq!(
        (request.file, request.settings, request.slot),
        (origin.file, origin.settings, origin.slot)
    );
    assert_eq!(read.interval_ms, Some(5));
}
