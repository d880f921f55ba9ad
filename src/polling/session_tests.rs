use super::*;

#[test]
fn an_answer_that_did_not_come_is_told_with_the_time_that_it_had() {
    for (limit, told) in [
        (Duration::from_secs(30), "no answer within 30 s"),
        (Duration::from_secs(10) / 3, "no answer within 3.333 s"),
    ] {
        let text = unanswered(limit).to_string();
        assert!(text.ends_with(told), "{text}");
    }
}
