//! Releasing parked keys: from then on their events are published again.
//!
//! While dead letters of a key are open, a release would publish later events before earlier ones,
//! so it is refused unless the request insists.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use walrelay_core::base::clock::Moment;

use super::filter::DeadLetterFilter;
use super::fold::{Change, DeadLetterIndex};
use super::reader::{DeadLetterTopic, TOO_MANY};
use super::record::{LogRecord, RecordKey, Resolution, ResolutionKind};
use super::replay::{self, ReplayAction, ReplayJob, ReplayReport};
use super::writer::KeyHash;
use crate::base::error::{Exit, Fault};
use crate::base::text::{escaped, quoted};

/// A log that brings nothing for so long is at rest.
const REST: Duration = Duration::from_millis(200);
/// A log that does not come to rest is left after this.
const WATCH_MAX: Duration = Duration::from_secs(2);
/// Most keys that are named in an error.
const NAMED_MAX: usize = 10;

#[derive(Clone, Debug)]
pub(crate) struct ReleaseRequest {
    /// None for all parked keys.
    pub(crate) key: Option<String>,
    /// Release keys of which dead letters are open, too.
    pub(crate) force: bool,
    /// Who asks for it.
    pub(crate) by: String,
}

impl ReleaseRequest {
    /// The key, or `all`, for the log.
    pub(crate) fn keys(&self) -> String {
        key_text(self.key.as_deref())
    }
}

pub(super) fn key_text(key: Option<&str>) -> String {
    key.map_or_else(|| "all".to_owned(), escaped)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReleasedKeys {
    /// As they are shown, in order.
    pub(crate) keys: Vec<String>,
    /// Dead letters of these keys that were written meanwhile; later events will overtake them.
    pub(crate) meanwhile: usize,
}

/// The resolutions that release `key`, or all keys, in the order of the keys.
fn releases(index: &DeadLetterIndex, key: Option<&str>) -> Vec<Resolution> {
    let is_selected = |release: &&Resolution| {
        key.is_none_or(|word| release.key.as_ref().is_some_and(|key| key.is_named(word)))
    };
    let mut releases: Vec<Resolution> = index.releases().filter(is_selected).cloned().collect();
    releases.sort_by_key(|release| release.key.as_ref().map(|key| key.bytes.clone()));
    releases
}

fn key_names<'a>(releases: impl IntoIterator<Item = &'a Resolution>) -> Vec<String> {
    releases.into_iter().filter_map(|release| Some(release.key.as_ref()?.name())).collect()
}

/// Parked keys are known only from the whole topic, which no time narrows.
fn index(
    topic: &DeadLetterTopic<'_>,
    filter: &DeadLetterFilter,
) -> Result<DeadLetterIndex, Fault> {
    topic.index(filter).map_err(|fault| match fault.code {
        TOO_MANY => {
            Fault { place: String::new(), mend: "use walrelay dlq release".into(), ..fault }
        }
        _ => fault,
    })
}

/// The parked keys that a release of `key`, or of all keys, would release.
pub(crate) fn parked_keys(
    topic: &DeadLetterTopic<'_>,
    key: Option<&str>,
) -> Result<Vec<String>, Fault> {
    let index = index(topic, &DeadLetterFilter::default())?;
    Ok(key_names(&releases(&index, key)))
}

/// Releases parked keys, as an action of a replay.
pub(crate) fn release(
    topic: &DeadLetterTopic<'_>,
    request: &ReleaseRequest,
    clock: &dyn Fn() -> Moment,
) -> Result<ReleasedKeys, Fault> {
    let job = ReplayJob {
        action: ReplayAction::Release { force: request.force },
        filter: DeadLetterFilter::of_key(request.key.clone()),
        rate: None,
        destinations: None,
        expected: None,
        by: request.by.clone(),
    };
    let ReplayReport { fault, released, .. } = replay::run(topic, &job, clock, &mut |_| ());
    fault.map_or(Ok(released), Err)
}

/// A release under way. The relay goes on writing dead letters of the keys until it has read it.
pub(super) struct Release {
    pub(super) unwritten: VecDeque<Resolution>,
    pub(super) released: ReleasedKeys,
    keys: HashSet<KeyHash>,
    /// The keys of which the release was not read back.
    unread: HashSet<KeyHash>,
    written_at: Option<Instant>,
    read_at: Option<Instant>,
}

impl Release {
    /// Finds the keys that are released, and returns what the log says of them.
    pub(super) fn begin(
        topic: &DeadLetterTopic<'_>,
        filter: &DeadLetterFilter,
        force: bool,
        who: &str,
    ) -> Result<(DeadLetterIndex, Release), Fault> {
        let index = index(topic, filter)?;
        let releases = releases(&index, filter.key());
        if let Some(key) = filter.key().filter(|_| releases.is_empty()) {
            return Err(not_parked(key, &index));
        }
        if !force {
            check_none_open(topic, filter, &index, &releases)?;
        }
        let keys = key_names(&releases);
        let named = &keys[..keys.len().min(NAMED_MAX)];
        tracing::info!(
            target: "audit", who, action = "release", keys = ?named, force, count = keys.len(),
            "parked keys: release begins"
        );
        let hashes: HashSet<KeyHash> = releases.iter().filter_map(Resolution::key_hash).collect();
        let by = |release| Resolution { relay: who.to_owned(), ..release };
        let release = Release {
            unwritten: releases.into_iter().map(by).collect(),
            released: ReleasedKeys { keys, meanwhile: 0 },
            unread: hashes.clone(),
            keys: hashes,
            written_at: None,
            read_at: None,
        };
        Ok((index, release))
    }

    /// Reads a record that stands behind the index, and counts it if it is a new dead letter of the
    /// keys.
    pub(super) fn read(&mut self, record: &LogRecord, change: Change, now: Instant) {
        self.read_at = Some(now);
        match record {
            LogRecord::DeadLetter(letter) if change == Change::Opened => {
                let is_ours = letter.key_hash().is_some_and(|key| self.keys.contains(&key));
                self.released.meanwhile += usize::from(is_ours);
            }
            LogRecord::Resolution(resolution) if resolution.kind == ResolutionKind::Released => {
                resolution.key_hash().map(|key| self.unread.remove(&key));
            }
            _ => {}
        }
    }

    /// Everything is written: whether it was read back, and the log has come to rest.
    pub(super) fn is_read(&mut self, now: Instant) -> bool {
        let written_at = *self.written_at.get_or_insert(now);
        let rest = now - self.read_at.unwrap_or(written_at).max(written_at);
        now - written_at >= WATCH_MAX || self.unread.is_empty() && rest >= REST
    }
}

/// Refuses a release that would let later events overtake open dead letters of their key.
fn check_none_open(
    topic: &DeadLetterTopic<'_>,
    filter: &DeadLetterFilter,
    index: &DeadLetterIndex,
    releases: &[Resolution],
) -> Result<(), Fault> {
    let keys = releases.iter().filter_map(|release| release.key.as_ref());
    let keys: HashMap<KeyHash, &RecordKey> = keys.map(|key| (key.hash(), key)).collect();
    let (mut letters, mut names) = (0, BTreeSet::new());
    topic.letters(filter, index, |letter, _| {
        if let Some(key) = letter.key_hash().and_then(|key| keys.get(&key)) {
            letters += 1;
            names.insert(key.name());
        }
        Ok(true)
    })?;
    let Some(key) = names.first() else { return Ok(()) };
    let what = match names.len() {
        1 => format!("{letters} dead letters of key {key} are open"),
        count => format!("{letters} dead letters of {count} keys are open, one of them {key}"),
    };
    let key = quoted(key);
    Err(Fault::new(
        Exit::Failed,
        "dead-letter.key-has-open",
        format!("{what}: later events would overtake them"),
        "",
        format!(
            "walrelay dlq replay --key {key} (or discard), then release it;\nor, whatever the order: walrelay dlq release --key {key} --force"
        ),
    ))
}

fn not_parked(key: &str, index: &DeadLetterIndex) -> Fault {
    let mut keys = key_names(index.releases());
    keys.sort();
    let mend = match keys.len().saturating_sub(NAMED_MAX) {
        _ if keys.is_empty() => "no key is parked; there is nothing to release".to_owned(),
        0 => format!("name one that is parked: {}", keys.join(", ")),
        more => {
            format!("name one that is parked: {}, and {more} more", keys[..NAMED_MAX].join(", "))
        }
    };
    let what = format!("key {key:?} is not parked");
    Fault::new(Exit::Failed, "dead-letter.not-parked", what, "", mend)
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
