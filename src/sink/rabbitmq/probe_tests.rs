use super::*;

fn told(text: &str) -> (Shape, bool) {
    let mut shape = Shape::default();
    let on = agree(&mut shape, text);
    (shape, on)
}

#[test]
fn a_difference_is_read_from_the_brokers_words() {
    let head = "PRECONDITION_FAILED - inequivalent arg";
    let tail = "for exchange 'x' in vhost '/': received";
    let (shape, on) = told(&format!("{head} 'type' {tail} 'topic' but current is 'fanout'"));
    assert_eq!((shape.other_type.as_deref(), on), (Some("fanout"), false));
    let (shape, on) = told(&format!("{head} 'durable' {tail} 'true' but current is 'false'"));
    assert!(shape.transient && !on);
    let (shape, on) = told(&format!(
        "{head} 'alternate-exchange' {tail} none but current is the value 'ae' of type 'longstr'"
    ));
    assert_eq!((shape.alternate.as_deref(), on), (Some("ae"), false));
    let internal = format!("{head} 'internal' {tail} 'false' but current is 'true'");
    let (mut shape, on) = told(&internal);
    assert!(shape.internal && on);
    // What was agreed to and is named again cannot go on for ever.
    assert!(!agree(&mut shape, &internal));
    assert_eq!(told("PRECONDITION_FAILED - something else"), (Shape::default(), false));
}
