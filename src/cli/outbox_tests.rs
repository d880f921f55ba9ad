use super::*;
use crate::base::template::Template;

#[test]
fn the_next_steps_of_a_handover_name_only_the_keys_that_are_not_set() {
    let (mut outbox, mut polling) = (OutboxTable::default(), PollingSettings::default());
    outbox.columns.key = POLLED_KEY.to_owned();
    outbox.route.topic = Template::parse("${event_key}").unwrap();
    polling.columns.order = "seq".to_owned();
    let told = next_steps(&outbox, &polling);
    for words in [
        "remove the sections [source.polling...]",
        "columns.order = \"seq\"",
        "write columns.key = \"event_key\" and route.topic = \"${event_key}\"",
    ] {
        assert!(told.contains(words), "{told}");
    }
    outbox.columns.key = "customer".to_owned();
    outbox.route.topic = Template::literal("orders");
    assert!(!next_steps(&outbox, &polling).contains("write "));
}

#[test]
fn an_empty_list_says_whether_rows_were_selected() {
    let told = |ids: &[&str], key: Option<&str>| {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        empty_list("failed", &RowFilter { ids, key: key.map(str::to_owned) })
    };
    assert_eq!(told(&[], None), "no row is failed");
    for told in [told(&["7"], None), told(&[], Some("k"))] {
        assert_eq!(told, "no row with the given ids or key is failed");
    }
}

#[test]
fn a_retry_says_what_becomes_of_a_row_whose_key_is_parked() {
    let told = |count, dry_run, on_dead_letter| {
        let RetryText { line, notes } = RetryText::of(count, dry_run, on_dead_letter);
        (line, notes.join("\n"))
    };
    let (line, notes) = told(1, false, OnDeadLetter::Continue);
    assert_eq!(line, "1 row will be published again");
    assert!(notes.contains("could be replayed, too") && !notes.contains("release"), "{notes}");
    // WHEN keys are parked THEN the order of the commands is said before and after
    for dry_run in [true, false] {
        let (line, notes) = told(2, dry_run, OnDeadLetter::ParkKey);
        assert!(line.ends_with("published again, unless the key is parked"), "{line}");
        let commands = "walrelay dlq discard ID, for the dead letters of the rows; \
                        walrelay dlq release --key KEY; walrelay outbox retry";
        assert!(notes.ends_with(commands), "{notes}");
        assert_eq!(told(0, dry_run, OnDeadLetter::ParkKey).1, "");
    }
}
