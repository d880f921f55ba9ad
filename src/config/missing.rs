//! Keys that only a build with another feature knows.

use crate::base::settings::{Origin, Path, Problem, Visit};
use crate::features;
use crate::sink;

const CODE: &str = "config.missing-feature";

/// Refuses a value that needs this feature.
pub(super) fn refuse(visit: &mut Visit, path: &Path, feature: &str) {
    let (what, mend) = features::missing(feature);
    visit.refuse(path, CODE, &what, mend);
}

/// The problem of a key or section of a sink that this build lacks.
pub(super) fn of_sink(path: &str, origin: &Origin) -> Option<Problem> {
    let name = path.strip_prefix("sink.")?.split('.').next()?;
    let (what, mend) = features::missing(name);
    sink::is_missing(name).then(|| Problem::at(origin, path, CODE, &what, mend))
}
