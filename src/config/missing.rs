//! Keys that this build does not know: those of a feature that it lacks, and those of an earlier version.

use super::removed;
use crate::base::settings::{Origin, Path, Problem, Visit};
use crate::features;
use crate::sink;

const CODE: &str = "config.missing-feature";

/// Refuses a value that needs this feature.
pub(super) fn refuse(visit: &mut Visit, path: &Path, feature: &str) {
    let (what, mend) = features::missing(feature);
    visit.refuse(path, CODE, &what, mend);
}

/// The problem of a key that was removed, or that another build knows; `named` is the key or the variable as it was
/// written.
pub(super) fn problem(path: &str, named: &str, origin: &Origin) -> Option<Problem> {
    removed::problem(path, named, origin).or_else(|| of_sink(path, origin))
}

/// The problem of a key or section of a sink that this build lacks.
fn of_sink(path: &str, origin: &Origin) -> Option<Problem> {
    let name = path.strip_prefix("sink.")?.split('.').next()?;
    let (what, mend) = features::missing(name);
    sink::is_missing(name).then(|| Problem::at(origin, path, CODE, &what, mend))
}
