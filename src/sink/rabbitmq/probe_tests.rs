use super::*;

fn told(text: &str) -> (ExchangeDifferences, bool) {
    let mut found = ExchangeDifferences::default();
    let on = found.agree(text);
    (found, on)
}

#[test]
fn a_difference_is_read_from_the_brokers_words() {
    let head = "PRECONDITION_FAILED - inequivalent arg";
    let tail = "for exchange 'x' in vhost '/': received";
    let (found, on) = told(&format!("{head} 'type' {tail} 'topic' but current is 'fanout'"));
    assert_eq!((found.other_type.as_deref(), on), (Some("fanout"), false));
    let (found, on) = told(&format!("{head} 'durable' {tail} 'true' but current is 'false'"));
    assert!(found.transient && !on);
    let (found, on) = told(&format!(
        "{head} 'alternate-exchange' {tail} none but current is the value 'ae' of type 'longstr'"
    ));
    assert_eq!((found.alternate.as_deref(), on), (Some("ae"), false));
    let internal = format!("{head} 'internal' {tail} 'false' but current is 'true'");
    let (mut found, on) = told(&internal);
    assert!(found.internal && on);
    // What was agreed to and is named again cannot go on for ever.
    assert!(!found.agree(&internal));
    assert_eq!(
        told("PRECONDITION_FAILED - something else"),
        (ExchangeDifferences::default(), false)
    );
}
