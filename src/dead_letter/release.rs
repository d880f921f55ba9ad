//! Releasing parked keys: from then on their events are published again.
//!
//! While dead letters of a key are open, a release would publish later events before earlier ones,
//! so it is refused unless the request insists.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use walrelay_core::base::clock::Moment;

use super::filter::DeadLetterFilter;
use super::fold::{Change, DeadLetterIndex};
use super::reader::{DeadLetterTopic, LogReader, TOO_MANY};
use super::record::{LogRecord, RecordKey, Resolution, ResolutionKind};
use super::replay::{Replay, ReplayAction, ReplayJob, ReplayProgress};
use super::writer::{CLASS_PARKED, KeyHash};
use crate::base::error::{Exit, Fault};
use crate::base::text::{escaped, quoted};
use crate::sink::log::{LogRead, ReadFrom};

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
        self.key.as_deref().map_or_else(|| "all".to_owned(), escaped)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
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
fn index(topic: &DeadLetterTopic<'_>) -> Result<DeadLetterIndex, Fault> {
    topic.index(&DeadLetterFilter::default()).map_err(|fault| match fault.code {
        TOO_MANY => {
            Fault { place: String::new(), mend: "use walrelay dlq release".into(), ..fault }
        }
        _ => fault,
    })
}

/// The keys that a release would release, or the reason why it would be refused.
pub(crate) fn releasable_keys(
    topic: &DeadLetterTopic<'_>,
    request: &ReleaseRequest,
) -> Result<Vec<String>, Fault> {
    Ok(key_names(&plan(topic, request)?.releases))
}

/// The resolutions that a request makes, and the dead letters that it has found.
struct ReleasePlan {
    index: DeadLetterIndex,
    releases: Vec<Resolution>,
}

fn plan(topic: &DeadLetterTopic<'_>, request: &ReleaseRequest) -> Result<ReleasePlan, Fault> {
    let index = index(topic)?;
    let mut releases = releases(&index, request.key.as_deref());
    if let Some(key) = request.key.as_deref() {
        if request.force {
            release_behind_last(topic, key, &mut releases)?;
        }
        if releases.is_empty() {
            return Err(not_parked(key, request.force, &index));
        }
    }
    if !request.force {
        check_none_open(topic, &index, &releases)?;
    }
    Ok(ReleasePlan { index, releases })
}

pub(crate) fn release(
    topic: &DeadLetterTopic<'_>,
    request: &ReleaseRequest,
    clock: &dyn Fn() -> Moment,
) -> Result<ReleasedKeys, Fault> {
    let mut count = 0;
    let outcome = carry_out(topic, request, clock, &mut count);
    let (who, keys, force) = (&request.by, request.keys(), request.force);
    let ended = outcome.as_ref().map_or_else(|fault| fault.code, |_| "done");
    tracing::info!(
        target: "audit", who, action = "release", keys, force, count, ended,
        "parked keys: release ended"
    );
    outcome
}

/// Sets `count` to how many keys are released, also where it fails.
fn carry_out(
    topic: &DeadLetterTopic<'_>,
    request: &ReleaseRequest,
    clock: &dyn Fn() -> Moment,
    count: &mut usize,
) -> Result<ReleasedKeys, Fault> {
    // Opened before the index is made, so that every record is seen by one of them.
    let tail = topic.reader(ReadFrom::End)?;
    let ReleasePlan { index, releases } = plan(topic, request)?;
    let keys = key_names(&releases);
    let named = &keys[..keys.len().min(NAMED_MAX)];
    let (who, force, parked) = (&request.by, request.force, keys.len());
    tracing::info!(
        target: "audit", who, action = "release", keys = ?named, force, count = parked,
        "parked keys: release begins"
    );
    if keys.is_empty() {
        return Ok(ReleasedKeys { keys, meanwhile: 0 });
    }
    let hashes = releases.iter().filter_map(Resolution::key_hash).collect();
    let job = ReplayJob::new(ReplayAction::Release, DeadLetterFilter::default(), who);
    let mut work = Replay::new(topic, &job, index, tail, clock())?;
    work.releases =
        releases.into_iter().map(|it| Resolution { relay: who.clone(), ..it }).collect();
    let mut progress = ReplayProgress { matched: parked, ..ReplayProgress::default() };
    work.carry_out(clock, &mut progress, &mut |progress| *count = progress.done);
    if let Some((fault, _)) = work.halt {
        return Err(fault);
    }
    let meanwhile = watch(topic, work.tail, work.index, &hashes, clock).map_err(|fault| {
        let unknown = "what was written meanwhile is not known";
        Fault { what: format!("{count} keys are released; {unknown}: {}", fault.what), ..fault }
    })?;
    Ok(ReleasedKeys { keys, meanwhile })
}

/// Adds releases of a key in the systems in which no record parks it, each behind the last dead letter of
/// class `parked`: where the record that has parked the key was deleted, a running relay parks it until
/// it is released.
fn release_behind_last(
    topic: &DeadLetterTopic<'_>,
    key: &str,
    releases: &mut Vec<Resolution>,
) -> Result<(), Fault> {
    let parked_in = |it: &Resolution| (it.key_hash(), it.system.clone());
    let mut last = BTreeMap::new();
    topic.each(ReadFrom::Beginning, |record| {
        if let LogRecord::DeadLetter(letter) = record
            && letter.error_class == CLASS_PARKED
            && letter.key.as_ref().is_some_and(|it| it.is_named(key))
        {
            let release = letter.resolution(ResolutionKind::Released, 0, "", 0).bounded();
            last.insert(parked_in(&release), release);
        }
        Ok(true)
    })?;
    for release in &*releases {
        last.remove(&parked_in(release));
    }
    releases.extend(last.into_values());
    Ok(())
}

/// Refuses a release that would let later events overtake open dead letters of their key.
fn check_none_open(
    topic: &DeadLetterTopic<'_>,
    index: &DeadLetterIndex,
    releases: &[Resolution],
) -> Result<(), Fault> {
    let keys = releases.iter().filter_map(|release| release.key.as_ref());
    let keys: HashMap<KeyHash, &RecordKey> = keys.map(|key| (key.hash(), key)).collect();
    let (mut letters, mut names) = (0, BTreeSet::new());
    topic.letters(&DeadLetterFilter::default(), index, |letter, _| {
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
            "replay or discard them: walrelay dlq replay --key={key}\nwhere the table is polled, only discard them: walrelay dlq discard --key={key}\nthen release the key: walrelay dlq release --key={key}\nthen, where the table is polled, put the rows back: walrelay outbox retry --key={key}\nor release it now, whatever the order: walrelay dlq release --key={key} --force"
        ),
    ))
}

/// Reads on behind the releases until the log comes to rest, and counts the dead letters of these
/// keys that `index` did not know. The relay goes on writing them until it has read the release.
fn watch(
    topic: &DeadLetterTopic<'_>,
    mut tail: LogReader,
    mut index: DeadLetterIndex,
    keys: &HashSet<KeyHash>,
    clock: &dyn Fn() -> Moment,
) -> Result<usize, Fault> {
    let (mut unread, mut meanwhile) = (keys.clone(), 0);
    let until = clock().instant + WATCH_MAX;
    while clock().instant < until && !topic.stop.load(Ordering::Relaxed) {
        let record = match tail.next(REST)? {
            LogRead::Entry(record) => record,
            LogRead::Nothing if unread.is_empty() => break,
            LogRead::Nothing | LogRead::End => continue,
        };
        let change = index.apply(&record);
        match &record {
            LogRecord::DeadLetter(letter) if change == Change::Opened => {
                let is_ours = letter.key_hash().is_some_and(|key| keys.contains(&key));
                meanwhile += usize::from(is_ours);
            }
            LogRecord::Resolution(resolution) if resolution.kind == ResolutionKind::Released => {
                resolution.key_hash().map(|key| unread.remove(&key));
            }
            _ => {}
        }
    }
    Ok(meanwhile)
}

fn not_parked(key: &str, force: bool, index: &DeadLetterIndex) -> Fault {
    let mut keys = key_names(index.releases());
    keys.sort();
    let mut mend = match keys.len().saturating_sub(NAMED_MAX) {
        _ if keys.is_empty() => "no key is parked; there is nothing to release".to_owned(),
        0 => format!("name one that is parked: {}", keys.join(", ")),
        more => {
            format!("name one that is parked: {}, and {more} more", keys[..NAMED_MAX].join(", "))
        }
    };
    if !force {
        mend += &format!(
            ";\nif a relay parks it all the same, because the record that parked it was deleted: walrelay dlq release --key={} --force",
            quoted(key)
        );
    }
    let what = format!("key {key:?} is not parked");
    Fault::new(Exit::Failed, "dead-letter.not-parked", what, "", mend)
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
