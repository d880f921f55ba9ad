use super::*;
use crate::base::testing::TempFolder;

#[test]
fn a_line_says_what_runs_how_far_and_how_long() {
    let mut now = RunProgress {
        what: "cdc at 100/s".to_owned(),
        left: Duration::from_millis(1100),
        delivered: 40,
        events: 300,
        p50_ms: Some(1.234),
    };
    assert_eq!(line(&now), "cdc at 100/s: 40 of 300 delivered, p50 1.2 ms, 2 s left");
    (now.left, now.p50_ms) = (Duration::ZERO, None);
    assert_eq!(line(&now), "cdc at 100/s: 40 of 300 delivered");
}

#[test]
fn a_page_that_was_not_written_leaves_no_file_and_harms_none() {
    let folder = TempFolder::new();
    let [fresh, old] = ["new.html", "old.html"].map(|name| folder.path().join(name));
    std::fs::write(&old, "before").unwrap();
    drop(PageFile::open(&fresh).unwrap());
    drop(PageFile::open(&old).unwrap());
    assert!(!fresh.exists());
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "before");
    PageFile::open(&fresh).unwrap().write("page").unwrap();
    assert_eq!(std::fs::read_to_string(&fresh).unwrap(), "page");
    let refused = PageFile::open(&folder.path().join("no/where.html")).err().unwrap();
    assert_eq!((refused.exit, refused.code), (Exit::Usage, "output.unwritable"));
}
