//! An event that kills the process becomes a dead letter.

use serde_json::Value;

use crate::support::faults::{CliFixture, read};

/// Large enough that shaping it needs what the process may not have.
const GIANT_BYTES: u64 = 32 << 20;

#[test]
fn an_event_that_kills_the_process_three_times_is_a_dead_letter_the_fourth() {
    let mut scene = CliFixture::ready("crash_giant");
    scene.extra = "[dead_letter]\ntopic = \"crash_giant.dlq\"\n".into();
    scene.make_topic("crash_giant.dlq", 1);
    let topic = scene.topic();
    // GIVEN a format that copies the payload, and a relay at rest
    scene.route = "format = \"cloudevents-structured\"\n".into();
    // The limit below is one of addresses: without this the C library reserves 64 MiB for each of some threads.
    scene.env.push(("MALLOC_ARENA_MAX".into(), "1".into()));
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
    assert!(letters(&scene).is_empty());
    // THEN the fourth does not touch it, and goes on behind it
    let mut relay = scene.run_within(limit);
    scene.wait_confirmed(&mut relay);
    relay.stop();
    let found = letters(&scene);
    let [letter] = &found[..] else { panic!("{} letters", found.len()) };
    assert_eq!(letter["key"], "3");
    assert_eq!((&letter["error_class"], &letter["attempts"]), (&"crash".into(), &3.into()));
    assert_eq!((&letter["cut"], &letter["value_bytes"]), (&true.into(), &(GIANT_BYTES + 2).into()));
    // WHEN it is started once more THEN nothing comes twice
    scene.carry(&[]);
    assert_eq!(letters(&scene), found);
    // THEN the others are there, once but for what each process began with
    let keys: Vec<String> = read(&[&topic]).iter().map(|it| it.key().unwrap().to_owned()).collect();
    let [first, again @ .., last] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!((first.as_str(), last.as_str()), ("1", "4"), "{keys:?}");
    assert!((1..=4).contains(&again.len()) && again.iter().all(|key| key == "2"), "{keys:?}");
}

fn letters(scene: &CliFixture<'_>) -> Vec<Value> {
    let ended = scene.walrelay(&["dlq", "list", "--state", "all", "--json"]);
    ended.assert_done();
    ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
