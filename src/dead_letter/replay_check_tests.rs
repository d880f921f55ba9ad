use super::super::replay::{ReplayAction, ReplayJob, run};
use super::super::testing::{Flaw, Spec, TopicFixture};
use super::*;

/// The fault of a dry run, and of the replay itself.
fn faults(fixture: &TopicFixture, destinations: &Destinations) -> [Option<Fault>; 2] {
    let filter = DeadLetterFilter::default();
    let broker = fixture.flawed(Flaw::Nothing);
    let topic = fixture.topic_at(&broker);
    let index = topic.index(&filter).unwrap();
    let would = check_replayable(&topic, &filter, &index, Some(destinations)).err();
    let open = fixture.open();
    assert_eq!((fixture.ids("orders"), open), (Vec::new(), index.open()), "nothing is changed");
    let job = ReplayJob {
        destinations: Some(destinations.clone()),
        ..ReplayJob::new(ReplayAction::Replay, filter, "me")
    };
    let report = run(&topic, &job, &|| fixture.clock(), &mut |_| ());
    [would, report.fault]
}

#[test]
fn a_dry_run_says_what_the_replay_says_of_what_it_passes_over() {
    // GIVEN dead letters that are cut, lead elsewhere, and follow such a one in their key
    let fixture = TopicFixture::new();
    let value = "more than sixteen bytes";
    fixture.write(Spec { id: "cut", key: Some("a"), value, ..Spec::default() });
    fixture.write(Spec { id: "forged", key: Some("b"), topic: "payments", ..Spec::default() });
    fixture.write(Spec { id: "behind", key: Some("b"), ..Spec::default() });
    fixture.write(Spec { id: "good", ..Spec::default() });
    let [would, did] = faults(&fixture, &Destinations::to("orders"));
    let would = would.unwrap();
    assert_eq!((would.exit, would.code), (Exit::Failed, "dead-letter.unfit"));
    assert!(would.what.starts_with("3 dead letters cannot be replayed: "), "{would}");
    assert_eq!(would.to_string(), did.unwrap().to_string());
    assert_eq!(fixture.ids("orders"), ["good"]);
}

#[test]
fn a_dry_run_finds_no_fault_with_what_is_replayed() {
    let fixture = TopicFixture::new();
    let nowhere = Destinations::default();
    assert!(faults(&fixture, &nowhere).iter().all(Option::is_none));
    fixture.write_many(3);
    let faults = faults(&fixture, &Destinations::to("orders"));
    assert!(faults.iter().all(Option::is_none), "{faults:?}");
}
