use super::*;

#[test]
fn one_question_is_outstanding_at_a_time() {
    let (mut exchanges, now) = (KnownExchanges::default(), Instant::now());
    assert_eq!(exchanges.exists("", now), Some(true));
    assert_eq!(exchanges.exists("a\n", now), Some(false), "the broker would answer for \"a\"");
    assert_eq!((exchanges.exists("a", now), exchanges.asked_at()), (None, None));
    assert!(exchanges.ask("a", now) && !exchanges.ask("b", now) && !exchanges.ask("a", now));
    assert_eq!(exchanges.take_answer(Existence::There, now), Some(now));
    assert!(exchanges.has_seen("a") && !exchanges.has_seen("b"));
    assert_eq!((exchanges.exists("a", now), exchanges.exists("b", now)), (Some(true), None));
    assert_eq!(exchanges.take_answer(Existence::There, now), None);
}

#[test]
fn a_missing_exchange_is_asked_for_again_after_a_while_or_at_a_retry() {
    let (mut exchanges, now) = (KnownExchanges::default(), Instant::now());
    for (name, existence) in [("gone", Existence::Missing), ("hidden", Existence::Hidden)] {
        assert!(exchanges.ask(name, now));
        exchanges.take_answer(existence, now);
    }
    assert_eq!(
        (exchanges.exists("gone", now), exchanges.exists("hidden", now)),
        (Some(false), Some(true))
    );
    assert!(!exchanges.has_seen("hidden"));
    assert_eq!(exchanges.exists("gone", now + MISSING_FOR), None);
    exchanges.ask_again("hidden");
    exchanges.ask_again("gone");
    assert_eq!(
        (exchanges.exists("gone", now), exchanges.exists("hidden", now)),
        (None, Some(true))
    );
}
