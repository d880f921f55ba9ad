use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::testing::Folder;
use super::*;

const ONE: &[u8] = b"{\"topic\":\"one\"}\n";
const TWO: &[u8] = b"{\"topic\":\"two\"}\n";

fn text(parts: &[&[u8]]) -> String {
    String::from_utf8(parts.concat()).unwrap()
}

#[test]
fn what_a_crash_has_left_of_a_line_is_ended_and_nothing_is_removed() {
    let folder = Folder::new();
    for torn in [&b"{\"topic\":\"torn"[..], b"{", b"\0\0\0\0", b"my notes"] {
        std::fs::write(folder.path("f"), [TWO, torn].concat()).unwrap();
        let mut file = AppendFile::new(&folder.path("f"));
        file.append(ONE).unwrap();
        file.append(TWO).unwrap();
        assert_eq!(folder.text("f"), text(&[TWO, torn, b"\n", ONE, TWO]), "{torn:?}");
    }
}

#[test]
fn a_file_that_was_moved_or_removed_is_made_again_and_a_truncated_one_goes_on() {
    let folder = Folder::new();
    let mut file = AppendFile::new(&folder.path("f"));
    file.append(ONE).unwrap();
    std::fs::rename(folder.path("f"), folder.path("f.1")).unwrap();
    file.append(TWO).unwrap();
    assert_eq!((folder.text("f.1"), folder.text("f")), (text(&[ONE]), text(&[TWO])));
    std::fs::remove_file(folder.path("f")).unwrap();
    file.append(ONE).unwrap();
    assert_eq!(folder.text("f"), text(&[ONE]));
    OpenOptions::new().write(true).truncate(true).open(folder.path("f")).unwrap();
    file.append(TWO).unwrap();
    assert_eq!(folder.text("f"), text(&[TWO]));
}

#[test]
fn whoever_renames_the_file_finds_every_line_that_was_written_before() {
    const LINES: usize = 100;
    let folder = Folder::new();
    let (path, rotated) = (folder.path("f"), folder.path("f.1"));
    let mut file = AppendFile::new(&path);
    let appended = AtomicUsize::new(0);
    // WHEN somebody renames the file again and again while a line is written, and reads it at once
    let found = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut found, mut seen) = (String::new(), 0);
            while seen < LINES {
                let now = appended.load(Ordering::SeqCst);
                // Once for each line, which would never be written otherwise.
                if now > seen && std::fs::rename(&path, &rotated).is_ok() {
                    found += &std::fs::read_to_string(&rotated).unwrap();
                    std::fs::remove_file(&rotated).unwrap();
                }
                seen = now;
            }
            found
        });
        for line in 0..LINES {
            // A slow reader may rename the file twice during one append, which its caller repeats.
            while let Err(error) = file.append(format!("{line}\n").as_bytes()) {
                if error.kind() != ErrorKind::Interrupted {
                    appended.store(LINES, Ordering::SeqCst);
                    panic!("{error}");
                }
            }
            appended.store(line + 1, Ordering::SeqCst);
        }
        reading.join().unwrap()
    });
    let found = found + &std::fs::read_to_string(&path).unwrap_or_default();
    let found: HashSet<&str> = found.lines().collect();
    let lost: Vec<usize> =
        (0..LINES).filter(|it| !found.contains(it.to_string().as_str())).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn a_second_writer_is_refused_until_the_first_is_gone() {
    let folder = Folder::new();
    let (mut first, mut second) =
        (AppendFile::new(&folder.path("f")), AppendFile::new(&folder.path("f")));
    first.append(ONE).unwrap();
    assert_eq!(second.append(TWO).unwrap_err().kind(), ErrorKind::ResourceBusy);
    first.append(ONE).unwrap();
    drop(first);
    second.append(TWO).unwrap();
    assert_eq!(folder.text("f"), text(&[ONE, ONE, TWO]));
}

#[test]
fn writers_of_a_shared_file_take_turns() {
    let folder = Folder::new();
    let mut files = [(); 2].map(|()| AppendFile::shared(&folder.path("f")));
    for file in &mut files {
        file.check().unwrap();
    }
    for (at, line) in [(0, ONE), (1, TWO), (0, ONE)] {
        files[at].append(line).unwrap();
    }
    assert_eq!(folder.text("f"), text(&[ONE, TWO, ONE]));
}

#[test]
fn a_full_disk_and_a_failed_sync_are_errors() {
    // GIVEN files whose write fails, and whose sync fails
    for (path, errno) in [("/dev/full", libc::ENOSPC), ("/dev/null", libc::EINVAL)] {
        let options = OpenOptions::new().read(true).append(true).clone();
        let mut file = AppendFile::opened(Path::new(path), &options);
        // WHEN lines are appended THEN that does not succeed, however often
        for _ in 0..2 {
            assert_eq!(file.append(ONE).unwrap_err().raw_os_error(), Some(errno), "{path}");
        }
    }
}
