use super::*;

#[test]
fn a_path_prints_as_it_is_written() {
    let path = Path::of(&["source", "outbox"]).index(1).child("table");
    assert_eq!(path.to_string(), "source.outbox[1].table");
    assert_eq!(path.header(), "source.outbox.table");
    let property = Path::of(&["sink", "kafka", "properties"]).child("compression.type");
    assert_eq!(property.to_string(), "sink.kafka.properties.\"compression.type\"");
    assert_eq!(property.last(), "compression.type");
}

#[test]
fn a_step_below_is_found_only_below() {
    let path = Path::of(&["source", "outbox"]).index(3).child("table");
    assert_eq!(path.step_below(&Path::of(&["source", "outbox"])), Some(&Segment::Index(3)));
    assert_eq!(path.step_below(&Path::of(&["source", "messages"])), None);
    assert_eq!(path.step_below(&path), None);
}
