use std::sync::atomic::AtomicBool;

use super::super::testing::{Folder, address, configure};
use super::*;
use crate::base::finding::{faults, is_sound};

fn required() -> Requirements {
    Requirements { dead_letters: Some(address()), ..Requirements::default() }
}

fn start(broker: &dyn Broker) -> Result<Box<dyn Sink>, Vec<Fault>> {
    let (required, stop) = (required(), AtomicBool::new(false));
    broker.open(Some(&StartupCheck { required: &required, stop: &stop }))
}

#[track_caller]
fn assert_unusable(path: &Path, words: [&str; 2]) {
    let broker = configure(path, &address()).unwrap();
    let Err(started) = start(&*broker) else { panic!("{} was opened", path.display()) };
    let found: Vec<Fault> = faults(&broker.inspect(&required())).cloned().collect();
    for fault in [&started[0], &found[0]] {
        assert_eq!(
            (fault.code, fault.exit),
            ("sink.file-unusable", crate::base::error::Exit::Sink)
        );
        assert!(words.iter().all(|word| fault.to_string().contains(word)), "{fault}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_a_fault_before_the_first_event() {
    let folder = Folder::new("unusable");
    assert_unusable(&folder.path("gone/events.jsonl"), ["No such file", "mkdir -p"]);
    assert_unusable(&folder.0, ["cannot be used", "set sink.file.path"]);
    let pipe = folder.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    assert_unusable(&pipe, ["not a regular file", "set sink.file.path"]);
}

#[test]
fn each_fault_names_the_file_and_what_mends_it() {
    for (kind, mend) in [
        (ErrorKind::NotFound, "mkdir -p /data"),
        (ErrorKind::PermissionDenied, "let this user read and write /data/e.jsonl and /data"),
        (ErrorKind::ReadOnlyFilesystem, "mount the file system read-write"),
        (ErrorKind::StorageFull, "make room: df -h /data"),
        (ErrorKind::InvalidData, "echo >> /data/e.jsonl"),
        (ErrorKind::Other, "set sink.file.path"),
    ] {
        let fault = fault::unusable(Path::new("/data/e.jsonl"), &kind.into());
        assert!(fault.mend.contains(mend), "{fault}");
        assert!(fault.what.starts_with("/data/e.jsonl cannot be used: "), "{fault}");
        assert_eq!(fault.place, "sink.file.path, /data/e.jsonl");
    }
}

#[test]
fn the_path_names_a_file_that_is_not_that_of_the_dead_letters() {
    let refused = |path: &str| {
        let invalid = configure(Path::new(path), &address()).unwrap_err();
        invalid.into_iter().map(|invalid| (invalid.key, invalid.code)).collect::<Vec<_>>()
    };
    assert_eq!(refused("/data/.."), [("path", "config.bad-value")]);
    assert_eq!(refused("/data/outbox.dlq.jsonl"), [("path", "config.conflict")]);
}

#[test]
fn a_second_relay_is_refused_and_a_replay_is_not() {
    let folder = Folder::new("locked");
    let (first, second) = (folder.broker(), folder.broker());
    let sink = start(&*first).unwrap();
    // A rebuilt sink of the same relay has no check; neither has a replay.
    drop(sink);
    first.open(None).map(drop).unwrap();
    second.open(None).map(drop).unwrap();
    let Err(faults) = start(&*second) else { panic!("a second relay") };
    assert_eq!(faults[0].code, "sink.file-locked");
    assert!(faults[0].mend.contains("events.jsonl.lock"), "{}", faults[0]);
    assert!(is_sound(&second.inspect(&required())), "check may run beside the relay");
    drop(first);
    start(&*second).map(drop).unwrap();
}

#[test]
fn init_creates_the_files_once_and_check_creates_none() {
    let folder = Folder::new("init");
    let broker = folder.broker();
    let findings = broker.inspect(&required());
    assert!(is_sound(&findings) && findings.len() == 2, "{findings:?}");
    assert!(findings[0].text.ends_with("does not exist yet and can be created"), "{findings:?}");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    let names =
        ["events.jsonl", "outbox.dlq.jsonl"].map(|it| folder.path(it).display().to_string());
    let would = broker.prepare(&required(), true).unwrap();
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0, "a dry run makes nothing");
    let made = broker.prepare(&required(), false).unwrap();
    assert_eq!(would, made);
    assert_eq!(made, names.map(|name| format!("file {name}")));
    assert_eq!(broker.prepare(&required(), false).unwrap(), [""; 0]);
    assert!(broker.inspect(&required()).iter().all(|it| it.text.ends_with("can be written")));
}

#[test]
fn a_bench_target_is_read_while_it_is_written_and_removed() {
    let folder = Folder::new("bench");
    let broker = folder.broker();
    let mut target = broker.create_bench_target("bench_1").unwrap();
    let mut sink = start(&*broker.for_bench_target("bench_1").unwrap()).unwrap();
    sink.publish(0, &super::super::testing::event("0", Some(b"value"))).unwrap();
    let arrival = target.consume(std::time::Duration::from_secs(20)).unwrap().expect("an event");
    assert_eq!(arrival.value, b"value");
    drop(sink);
    broker.remove_bench_target("bench_1").unwrap();
    broker.remove_bench_target("bench_1").unwrap();
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "only the file of dead letters");
}
