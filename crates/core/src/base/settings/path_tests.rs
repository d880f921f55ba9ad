use super::*;

#[test]
fn a_path_prints_as_it_is_written() {
    let path = Path::of(&["source", "outbox"]).index(1).child("table");
    assert_eq!(path.to_string(), "source.outbox[1].table");
    assert_eq!(path.header(), "source.outbox.table");
    assert_eq!(path.pattern(), "source.outbox[].table");
    let property = Path::of(&["sink", "kafka", "properties"]).child("compression.type");
    assert_eq!(property.to_string(), "sink.kafka.properties.\"compression.type\"");
    assert_eq!(property.name(), "compression.type");
    let quoted = ["a-b", "", "a\"b", "a\"'b", "a\tb"].map(bare_or_quoted);
    assert_eq!(quoted, ["a-b", "\"\"", "'a\"b'", "\"a\\\"'b\"", "\"a\\tb\""]);
}

#[test]
fn an_element_is_found_only_in_its_array() {
    let array = Path::of(&["source", "outbox"]);
    let path = array.index(3).child("table");
    assert_eq!(path.index_in(&array), Some(3));
    assert_eq!(path.index_in(&Path::of(&["source", "messages"])), None);
    assert_eq!(path.index_in(&path), None);
}
