use super::*;

fn letter(relay: &str, system: &str) -> DeadLetter {
    DeadLetter { relay: relay.to_owned(), system: system.to_owned(), ..DeadLetter::default() }
}

#[test]
fn a_relay_counts_what_its_slot_on_its_system_has_written() {
    let owner = LetterOwner::new("walrelay", Some("7"));
    for (relay, system, is_own) in [
        ("walrelay@a", "7", true),
        // Before its system was written, and by whichever host.
        ("walrelay@b", "", true),
        ("walrelay@a", "8", false),
        ("orders@a", "7", false),
        ("", "", false),
    ] {
        assert_eq!(owner.wrote(&letter(relay, system)), is_own, "{relay} {system}");
    }
    // A relay that does not know its system counts as before.
    assert!(LetterOwner::new("walrelay", None).wrote(&letter("walrelay@a", "8")));
}
