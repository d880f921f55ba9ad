use super::*;

#[test]
fn a_difference_is_read_from_the_brokers_words() {
    let parse = |argument: &str, current: &str| {
        ExchangeDifference::parse(&format!(
            "PRECONDITION_FAILED - inequivalent arg '{argument}' for exchange 'x' in vhost '/': received {current}"
        ))
    };
    assert_eq!(
        parse("type", "'topic' but current is 'fanout'"),
        Some(ExchangeDifference::OtherType("fanout".to_owned()))
    );
    assert_eq!(
        parse("durable", "'true' but current is 'false'"),
        Some(ExchangeDifference::NotDurable)
    );
    assert_eq!(
        parse("alternate-exchange", "none but current is the value 'ae' of type 'longstr'"),
        Some(ExchangeDifference::Alternate("ae".to_owned()))
    );
    assert_eq!(
        parse("internal", "'false' but current is 'true'"),
        Some(ExchangeDifference::Internal)
    );
    assert_eq!(
        parse("auto_delete", "'false' but current is 'true'"),
        Some(ExchangeDifference::AutoDelete)
    );
    assert_eq!(ExchangeDifference::parse("PRECONDITION_FAILED - something else"), None);
}
