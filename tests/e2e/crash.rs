//! An event that kills the process becomes a dead letter.

use crate::support::faults::{Scene, read};

/// Large enough that shaping it needs what the process may not have.
const GIANT_BYTES: u64 = 96 << 20;

#[test]
fn an_event_that_kills_the_process_three_times_is_a_dead_letter_the_fourth() {
    // GIVEN a format that copies the payload, and a relay at rest
    let mut scene = Scene::ready("crash_giant");
    scene.route = "format = \"cloudevents-structured\"\n".into();
    let letters = "crash_giant.dlq";
    scene.extra = format!("[dead_letter]\ntopic = {letters:?}\n");
    scene.make_topic(letters, 1);
    scene.insert("1", "{}");
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    let at_rest = relay.peak_address_bytes();
    relay.stop();
    // GIVEN an event that can be read, but not copied, in the memory there is
    let limit = at_rest + GIANT_BYTES + GIANT_BYTES / 2;
    let name = &scene.name;
    let held = scene.commit(&format!(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
             VALUES ('{name}', '2', 'T', '{{}}');
         INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
             VALUES ('{name}', '3', 'T', to_jsonb(repeat('x', {GIANT_BYTES})));
         INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
             VALUES ('{name}', '4', 'T', '{{}}')"
    ));
    // WHEN three processes die on it
    for death in 1..=3 {
        let ended = scene.run_within(limit).wait();
        assert_eq!(ended.code, -1, "death {death}: no signal\n{ended}");
        assert!(ended.all().contains("memory allocation of"), "{ended}");
        assert!(scene.held_before(&held), "death {death}");
    }
    assert_eq!(read(&[letters]), []);
    // THEN the fourth does not touch it, and goes on behind it
    let mut relay = scene.run_within(limit);
    scene.wait_confirmed(&mut relay);
    relay.stop();
    let found = read(&[letters]);
    let [letter] = &found[..] else { panic!("{} letters", found.len()) };
    assert_eq!(letter.key(), Some("3"));
    assert_eq!(letter.header("dlq-error-class"), Some("crash"));
    assert_eq!(letter.header("dlq-attempts"), Some("3"));
    assert_eq!(letter.header("dlq-value-size"), Some((GIANT_BYTES + 2).to_string().as_str()));
    let keys: Vec<_> =
        read(&[&scene.topic()]).iter().map(|it| it.key().unwrap().to_owned()).collect();
    assert_eq!((keys[0].as_str(), keys.last().unwrap().as_str()), ("1", "4"), "{keys:?}");
    // WHEN it is started once more THEN nothing comes twice
    scene.carry(&[]);
    assert_eq!(read(&[letters]).len(), 1);
}
