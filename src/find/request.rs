//! The request: an id or a key, since when, and for how long, the same on the command line and in the admin
//! API.

use std::time::Duration;

use crate::base::error::{Exit, Fault};
use crate::base::settings::units;
use crate::dead_letter::filter::parse_time;

const DAY_US: i64 = 86_400_000_000;
pub(crate) const WITHIN_DEFAULT: &str = "30s";
const WITHIN_MAX: Duration = Duration::from_secs(3600);

/// A request as it is typed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FindText {
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) since: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The event of this id.
    Id(String),
    /// The events of this ordering key.
    Key(String),
}

impl Wanted {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Wanted::Id(_) => "id",
            Wanted::Key(_) => "key",
        }
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Wanted::Id(text) | Wanted::Key(text) => text,
        }
    }
}

/// The id or key that is looked for, as the records of one table have it: it may be typed in another way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Spelling {
    Bytes(Vec<u8>),
    #[default]
    Unknown,
    /// The text is no value of the column, so the table has no such event; a sentence that says so.
    NoValue(String),
}

impl Spelling {
    pub(super) fn no_value(&self) -> Option<&str> {
        match self {
            Spelling::NoValue(what) => Some(what),
            Spelling::Bytes(_) | Spelling::Unknown => None,
        }
    }
}

/// The id or key that is looked for, as it was typed and as records may have it.
#[derive(Debug)]
pub(super) struct WantedSpellings<'a> {
    pub(super) typed: &'a Wanted,
    /// For each table, in the order of the configuration; empty if Postgres was not asked.
    pub(super) tables: &'a [Spelling],
}

impl WantedSpellings<'_> {
    pub(super) fn is_id(&self, id: &str) -> bool {
        id == self.typed.text() || self.any(|bytes| bytes == id.as_bytes())
    }

    pub(super) fn any(&self, is_it: impl Fn(&[u8]) -> bool) -> bool {
        self.tables.iter().any(|it| matches!(it, Spelling::Bytes(bytes) if is_it(bytes)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FindRequest {
    pub(crate) wanted: Wanted,
    /// Older rows and records are not looked for; if nobody has said so, the row of the event may be older.
    pub(crate) since_unix_us: i64,
    pub(crate) since_is_given: bool,
    pub(crate) within: Duration,
}

impl FindRequest {
    /// Parses `given`, or returns everything that is wrong with it.
    pub(crate) fn parse(
        given: &FindText,
        within: &str,
        now_unix_us: i64,
    ) -> Result<FindRequest, Vec<Fault>> {
        let mut faults = Vec::new();
        let wanted = match (&given.id, &given.key) {
            (Some(id), None) if !id.is_empty() => Ok(Wanted::Id(id.clone())),
            // A key may be empty.
            (None, Some(key)) => Ok(Wanted::Key(key.clone())),
            (Some(_), None) => Err(("the event id is empty", "write the id of the event")),
            (Some(_), Some(_)) => Err(("an id and a key are given", "leave one of them out")),
            (None, None) => Err(("neither an id nor a key is given", "give one of them")),
        };
        let wanted = wanted.map_err(|(what, mend)| faults.push(bad("id", what, mend)));
        let since = given.since.as_deref().map(|text| {
            parse_time(text, now_unix_us).unwrap_or_else(|| {
                let what = format!("{text:?} is not a valid value of since");
                let mend =
                    "expected a time (2026-11-21T14:00:00Z, 2026-11-21) or an age (15m, 2h, 3d)";
                faults.push(bad("since", &what, mend));
                now_unix_us
            })
        });
        let limit = units::parse_duration_ms(within).map(Duration::from_millis);
        let limit = limit.filter(|limit| !limit.is_zero() && *limit <= WITHIN_MAX);
        if limit.is_none() {
            let what = format!("{within:?} is not a valid value of within");
            faults.push(bad("within", &what, "expected a duration up to 1h, as in 30s or 2m"));
        }
        match (wanted, limit) {
            (Ok(wanted), Some(within)) if faults.is_empty() => Ok(FindRequest {
                wanted,
                since_unix_us: since.unwrap_or(now_unix_us.saturating_sub(DAY_US)),
                since_is_given: since.is_some(),
                within,
            }),
            _ => Err(faults),
        }
    }
}

fn bad(place: &str, what: &str, mend: &str) -> Fault {
    Fault::new(Exit::Usage, "find.bad-request", what, place, mend)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
