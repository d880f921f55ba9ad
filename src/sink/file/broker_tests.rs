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
    let broker = configure(path, None).unwrap();
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
    let folder = Folder::new();
    assert_unusable(&folder.path("gone/events.jsonl"), ["No such file", "mkdir -p"]);
    assert_unusable(folder.0.path(), ["cannot be used", "set sink.file.path"]);
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
        (ErrorKind::ResourceBusy, "fuser '/data/e.jsonl'"),
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
        let invalid = configure(Path::new(path), None).unwrap_err();
        invalid.into_iter().map(|invalid| (invalid.key, invalid.code)).collect::<Vec<_>>()
    };
    for folder in ["/data/..", "/data/events/", "/data/events/.", "."] {
        assert_eq!(refused(folder), [("path", "config.bad-value")]);
    }
    assert_eq!(refused("/data/outbox.dlq.jsonl"), [("path", "config.conflict")]);
}

#[test]
fn the_state_file_is_neither_the_file_of_the_events_nor_that_of_the_dead_letters() {
    let configured = |path: &str, state_file: &str| {
        configure(Path::new(path), Some(Path::new(state_file))).map(drop)
    };
    for state_file in ["events.jsonl", "./events.jsonl", "outbox.dlq.jsonl"] {
        let invalid = configured("events.jsonl", state_file).unwrap_err();
        assert_eq!((invalid[0].key, invalid[0].code), ("path", "config.conflict"), "{state_file}");
    }
    assert!(configured("/data/events.jsonl", "/data/state/../events.state").is_ok());
    assert!(configured("/data/events.jsonl", "events.jsonl").is_ok());
}

#[test]
fn a_second_relay_is_refused_and_check_may_run_beside_it() {
    let folder = Folder::new();
    let (first, second) = (folder.broker(), folder.broker());
    let sink = start(&*first).unwrap();
    let Err(faults) = start(&*second) else { panic!("a second relay") };
    assert_eq!(faults[0].code, "sink.file-locked");
    assert!(faults[0].mend.contains("fuser") && faults[0].mend.contains("events.jsonl"));
    let found = second.inspect(&required());
    assert!(is_sound(&found) && found[0].topic == "sink.file-locked", "{found:?}");
    assert!(found[0].is_warning() && found[0].text.contains("another sink.file.path"), "{found:?}");
    drop(sink);
    start(&*second).map(drop).unwrap();
}

#[test]
fn dead_letters_are_read_with_other_tools() {
    let broker = Folder::new().broker();
    let Err(fault) = broker.log(&address(), ReadFrom::Beginning) else { panic!("it is read") };
    assert_eq!(
        (fault.code, fault.exit),
        ("dead-letter.in-a-file", crate::base::error::Exit::Usage)
    );
    assert!(fault.mend.starts_with("jq . ") && fault.mend.contains("outbox.dlq.jsonl"), "{fault}");
}

#[test]
fn init_creates_the_files_once_and_check_creates_none() {
    let folder = Folder::new();
    let broker = folder.broker();
    let findings = broker.inspect(&required());
    assert!(is_sound(&findings) && findings.len() == 2, "{findings:?}");
    assert!(findings[0].text.ends_with("does not exist yet and can be created"), "{findings:?}");
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 0);
    let names =
        ["events.jsonl", "outbox.dlq.jsonl"].map(|it| folder.path(it).display().to_string());
    let would = broker.prepare(&required(), true).unwrap();
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 0, "a dry run makes nothing");
    let made = broker.prepare(&required(), false).unwrap();
    assert_eq!(would, made);
    assert_eq!(made, names.map(|name| format!("file {name}")));
    assert_eq!(broker.prepare(&required(), false).unwrap(), [""; 0]);
    assert!(broker.inspect(&required()).iter().all(|it| it.text.ends_with("can be written")));
}
