//! SIGHUP reads the level of the log again, and ends nothing.

use rustix::process::Signal;

use crate::support::faults::{CliFixture, Relay};

#[test]
fn sighup_changes_the_level_of_the_log_and_nothing_else() {
    let mut scene = CliFixture::waiting("reload");
    scene.extra = "[log]\nlevel = \"warn\"\n".into();
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    let hang_up = |scene: &CliFixture<'_>, relay: &mut Relay, words: &str| {
        scene.write_config();
        relay.signal(Signal::HUP);
        let log = relay.log();
        relay.wait_until(words, || std::fs::read_to_string(&log).unwrap().contains(words));
    };
    // GIVEN another level, and a key that holds for the next process only
    scene.extra = "[delivery]\nattempts_max = 7\n[log]\nlevel = \"info\"\n".into();
    hang_up(&scene, &mut relay, "\"log_level\":\"info\"");
    hang_up(&scene, &mut relay, "\"keys\":\"delivery.attempts_max\"");
    // GIVEN a file that is no configuration THEN nothing changes, and it says so
    scene.extra = "[log]\nlevel = \"walrelay=loud\"\n".into();
    hang_up(&scene, &mut relay, "run.not-reloaded");
    scene.insert("2", "{}");
    scene.wait_confirmed(&mut relay);
    let ended = relay.stop();
    let lines = ["admin server listens", "stopping: settling what is in flight"];
    assert_eq!(lines.map(|line| ended.err.contains(line)), [false, true], "{ended}");
}
