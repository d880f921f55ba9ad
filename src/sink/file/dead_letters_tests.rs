use super::super::append::AppendFile;
use super::super::testing::{Folder, event};
use super::*;

const SOON: Duration = Duration::from_millis(1);

fn append(folder: &Folder, ids: &[&str]) {
    let lines = ids
        .iter()
        .map(|id| record::write(&event(id, Some(id.as_bytes())), 1_700_000_000_123_456).unwrap());
    AppendFile::new(&folder.path("f")).append(&lines.collect::<Vec<_>>().concat()).unwrap();
}

/// What comes until there is nothing more, with `-` for the end.
fn read(log: &mut FileLog) -> String {
    let mut text = String::new();
    loop {
        match log.next(SOON).unwrap() {
            LogRead::Entry(entry) => {
                text += std::str::from_utf8(&entry.value.unwrap_or_default()).unwrap()
            }
            LogRead::End => text.push('-'),
            LogRead::Nothing => return text,
        }
    }
}

#[test]
fn a_file_is_read_to_its_end_and_beyond() {
    let folder = Folder::new("log");
    // GIVEN a file that does not exist yet
    let mut early = FileLog::open(&folder.path("f"), &ReadFrom::Beginning).unwrap();
    assert_eq!(read(&mut early), "-");
    append(&folder, &["a", "b"]);
    let mut whole = FileLog::open(&folder.path("f"), &ReadFrom::Time(0)).unwrap();
    let mut new = FileLog::open(&folder.path("f"), &ReadFrom::End).unwrap();
    append(&folder, &["c"]);
    // THEN each reads what it asked for; what came after the opening is behind the end
    assert_eq!(read(&mut early), "abc");
    assert_eq!(read(&mut whole), "ab-c");
    assert_eq!(read(&mut new), "-c");
}

#[test]
fn offsets_are_those_of_the_lines() {
    let folder = Folder::new("offsets");
    append(&folder, &["a", "b"]);
    let mut log = FileLog::open(&folder.path("f"), &ReadFrom::Beginning).unwrap();
    let length = folder.text("f").lines().next().unwrap().len() as i64 + 1;
    let offsets = [(); 2].map(|()| log.read().unwrap().unwrap().position.offset);
    assert_eq!(offsets, [0, length]);
}

#[test]
fn a_line_that_is_being_written_is_waited_for_and_one_that_is_removed_forgotten() {
    let folder = Folder::new("partial");
    append(&folder, &["a"]);
    let torn =
        folder.text("f") + "{\"topic\":\"torn and long enough to reach behind what comes next";
    std::fs::write(folder.path("f"), &torn).unwrap();
    let mut log = FileLog::open(&folder.path("f"), &ReadFrom::Beginning).unwrap();
    assert_eq!(read(&mut log), "a-");
    append(&folder, &["b"]);
    assert_eq!(read(&mut log), "b");
}

#[test]
fn a_rotated_file_is_followed_and_foreign_lines_are_empty_records() {
    let folder = Folder::new("log-rotated");
    append(&folder, &["a"]);
    std::fs::write(folder.path("f"), folder.text("f") + "hello\n").unwrap();
    let mut log = FileLog::open(&folder.path("f"), &ReadFrom::Beginning).unwrap();
    assert_eq!(read(&mut log), "a-");
    std::fs::rename(folder.path("f"), folder.path("f.1")).unwrap();
    append(&folder, &["b"]);
    assert_eq!(read(&mut log), "b");
}
