//! The page as a whole.

use super::*;

#[test]
#[ignore]
fn write_it() {
    std::fs::write("/tmp/pal/page.html", render(&testing::report())).unwrap();
}
