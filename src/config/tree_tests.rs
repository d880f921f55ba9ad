use super::*;

#[test]
fn the_tree_knows_every_key() {
    let outbox = root().child("source").and_then(|node| node.child("outbox"));
    let Some(Node::Array(element)) = outbox else { panic!("{outbox:?}") };
    assert_eq!(element.names(), ["table", "columns", "route"]);
    let headers = root().child("route").and_then(|node| node.child("headers"));
    assert!(matches!(headers, Some(Node::Map(_))));
    assert_eq!(root().names(), ["source", "route", "sink", "delivery", "dead_letter", "admin"]);
}
