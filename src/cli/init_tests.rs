use super::*;

#[test]
fn one_summary_is_about_both_sides() {
    let left = || InitStep::new("a superuser", "let role r replicate", "ALTER ROLE r REPLICATION;");
    let done = |made, left_to_superuser| InitReport {
        made: (0..made).map(|it: usize| format!("make {it}")).collect(),
        left: (0..left_to_superuser).map(|_: usize| left()).collect(),
        failed: Vec::new(),
    };
    let after = |report: &InitReport| summary(report, 0, false);
    assert_eq!(after(&done(0, 0)), "nothing is missing\n");
    assert_eq!(after(&done(1, 0)), "1 thing was made; now nothing is missing\n");
    assert_eq!(after(&done(4, 0)), "4 things were made; now nothing is missing\n");
    assert_eq!(after(&done(4, 1)), "4 things were made; 1 left to a superuser (!)\n");
    assert_eq!(after(&done(0, 1)), "1 left to a superuser (!)\n");
    // WHEN it is a dry run THEN nothing is said to be made
    let dry = "dry run, nothing was made; 4 things are missing";
    assert_eq!(summary(&done(4, 0), 0, true), format!("{dry}\n"));
    assert_eq!(summary(&done(4, 1), 0, true), format!("{dry}; 1 left to a superuser (!)\n"));
    assert_eq!(summary(&done(0, 0), 0, true), "nothing is missing\n");
    // WHEN something is wrong THEN nothing is said to be well
    let fault = Fault::new(Exit::Slot, "slot.plugin", "another plugin", "", "choose another");
    let left = InitReport { failed: vec![Finding::fail(fault)], ..done(2, 0) };
    assert_eq!(summary(&left, 1, false), "not ready: 2 problems (✗)\n");
    assert_eq!(summary(&done(2, 0), 1, false), "not ready: 1 problem (✗)\n");
    let value = left.to_json(true, &[]);
    assert_eq!((&value["dry_run"], &value["made"][1]), (&true.into(), &"make 1".into()));
    assert_eq!(value["failed"][0]["topic"], "slot.plugin");
}
