//! Paths of files.

use std::path::Path;

/// The folder of a file; `.` for a bare name.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
