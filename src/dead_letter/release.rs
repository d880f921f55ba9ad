//! Releasing parked keys: from then on their events are published again.
//!
//! While letters of a key are open that would publish later events before earlier ones, so it is
//! refused unless a person insists.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::filter::{DeadLetterFilter, is_key};
use super::fold::{Change, Fold, Parked};
use super::pipeline::{open_sink, unwritable};
use super::record::{LogRecord, Resolution, ResolutionKind};
use crate::base::error::{Exit, Fault};
use crate::base::text::{escaped, quoted};
use crate::dead_letter::confirmed_publish::Courier;
use crate::dead_letter::reader::{DeadLetterTopic, Index, Next, Reader, interrupted};
use crate::dead_letter::writer::KeyHash;
use crate::sink::log::ReadFrom;

const PATIENCE: Duration = Duration::from_millis(20);
/// Nothing for so long, and the log is taken to be at rest.
const REST: Duration = Duration::from_millis(200);
/// A log that does not come to rest is left after this.
const WATCH_MAX_US: i64 = 2_000_000;
/// More keys are not named in an error.
const NAMED_MAX: usize = 10;

/// Which keys are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// This one.
    One(String),
    /// All that are parked.
    All,
}

/// A release that was asked for.
#[derive(Clone, Debug)]
pub struct Release<'a> {
    /// Which keys.
    pub keys: &'a Keys,
    /// Also while letters of them are open?
    pub anyway: bool,
    /// Who asks.
    pub by: &'a str,
}

/// What was released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// Which keys, as they are shown, in order.
    pub keys: Vec<String>,
    /// Letters of them that were written meanwhile: later events will overtake them.
    pub meanwhile: usize,
}

/// Releases keys.
pub fn release(
    archive: &DeadLetterTopic<'_>,
    release: &Release<'_>,
    clock: &dyn Fn() -> i64,
) -> Result<Released, Fault> {
    let mut count = 0;
    let outcome = carry_out(archive, release, clock, &mut count);
    let (who, keys, anyway) = (release.by, asked(release.keys), release.anyway);
    let ended = outcome.as_ref().map_or_else(|fault| fault.code, |_| "done");
    tracing::info!(
        target: "audit", who, action = "release", keys, anyway, count, ended,
        "parked keys: release ended"
    );
    outcome
}

/// As the log says it.
fn asked(keys: &Keys) -> String {
    match keys {
        Keys::One(key) => escaped(key),
        Keys::All => "all".to_owned(),
    }
}

/// `count` is how many keys are released, however it ends.
fn carry_out(
    archive: &DeadLetterTopic<'_>,
    release: &Release<'_>,
    clock: &dyn Fn() -> i64,
    count: &mut usize,
) -> Result<Released, Fault> {
    let filter = DeadLetterFilter::default();
    // Before the rest, so that nothing is written unseen between the two.
    let tail = archive.reader(ReadFrom::End)?;
    let mut index = archive.index(&filter)?;
    let wanted = |parked: &&Parked| match release.keys {
        Keys::One(key) => is_key(key, &parked.key, parked.key_cut.as_ref()),
        Keys::All => true,
    };
    let mut parked: Vec<Parked> = index.fold.parked().filter(wanted).cloned().collect();
    parked.sort_by(|a, b| a.key.cmp(&b.key));
    if let (Keys::One(key), true) = (release.keys, parked.is_empty()) {
        return Err(not_parked(key, index.fold.parked()));
    }
    if !release.anyway {
        nothing_open(archive, &filter, &index, &parked)?;
    }
    let keys: Vec<String> = parked.iter().map(Parked::name).collect();
    let named = &keys[..keys.len().min(NAMED_MAX)];
    let (who, anyway, meant) = (release.by, release.anyway, keys.len());
    tracing::info!(
        target: "audit", who, action = "release", keys = ?named, anyway, count = meant,
        "parked keys: release begins"
    );
    append(archive, &parked, release.by, clock, count)?;
    let watched = watch(archive, tail, &mut index.fold, &parked, clock);
    let meanwhile = watched.map_err(|fault| Fault {
        what: format!(
            "{count} keys are released; what came meanwhile is not known: {}",
            fault.what
        ),
        ..fault
    })?;
    Ok(Released { keys, meanwhile })
}

/// Later events must not overtake what is open.
fn nothing_open(
    archive: &DeadLetterTopic<'_>,
    filter: &DeadLetterFilter,
    index: &Index,
    parked: &[Parked],
) -> Result<(), Fault> {
    let mut open: HashMap<KeyHash, usize> =
        parked.iter().map(|parked| (parked.key_id(), 0)).collect();
    archive.letters(filter, index, |letter, _| {
        if let Some(count) = letter.key_id().and_then(|key| open.get_mut(&key)) {
            *count += 1;
        }
        Ok(true)
    })?;
    let count = |parked: &Parked| (parked.name(), open[&parked.key_id()]);
    let mut waiting: Vec<_> = parked.iter().map(count).filter(|(_, count)| *count > 0).collect();
    waiting.sort_unstable();
    if waiting.is_empty() { Ok(()) } else { Err(still_open(&waiting)) }
}

/// Reads on behind the releases until the log comes to rest; counts the letters of these keys that
/// `fold` did not know. The relay goes on writing them until it has heard of its key's release.
fn watch(
    archive: &DeadLetterTopic<'_>,
    mut tail: Reader,
    fold: &mut Fold,
    parked: &[Parked],
    clock: &dyn Fn() -> i64,
) -> Result<usize, Fault> {
    let mut unseen: HashSet<KeyHash> = parked.iter().map(Parked::key_id).collect();
    let (of_these, mut meanwhile, until) = (unseen.clone(), 0, clock() + WATCH_MAX_US);
    let is_one = |key: Option<KeyHash>| key.is_some_and(|key| of_these.contains(&key));
    while !parked.is_empty() && clock() < until && !archive.stop.load(Ordering::Relaxed) {
        let record = match tail.next(REST)? {
            Next::LogRecord(record) => record,
            Next::Pause if unseen.is_empty() => break,
            Next::Pause | Next::End => continue,
        };
        let change = fold.apply(&record);
        match &record {
            LogRecord::DeadLetter(letter)
                if change == Change::Opened && is_one(letter.key_id()) =>
            {
                meanwhile += 1;
            }
            LogRecord::Resolution(resolution) if resolution.kind == ResolutionKind::Released => {
                resolution.key_id().map(|key| unseen.remove(&key));
            }
            _ => {}
        }
    }
    Ok(meanwhile)
}

fn append(
    archive: &DeadLetterTopic<'_>,
    parked: &[Parked],
    by: &str,
    clock: &dyn Fn() -> i64,
    count: &mut usize,
) -> Result<(), Fault> {
    if parked.is_empty() {
        return Ok(());
    }
    let mut book = Courier::of_records(open_sink(archive)?);
    let (mut left, mut confirmed) = (parked.iter().peekable(), Vec::new());
    while left.peek().is_some() || book.in_flight() > 0 {
        let now = clock();
        if archive.stop.load(Ordering::Relaxed) {
            let (done, unsure) = (confirmed.len(), book.in_flight());
            return Err(interrupted(&format!(
                "{done} of {} keys were released, and {unsure} more may have been",
                parked.len()
            )));
        }
        while let Some(parked) = left.peek() {
            let resolution = Resolution {
                position: parked.position,
                kind: ResolutionKind::Released,
                event_id: parked.event_id.clone(),
                lsn: parked.lsn.clone(),
                ordinal: parked.ordinal,
                key: Some(parked.key.clone()),
                key_cut: parked.key_cut.clone(),
                resolved_unix_us: now,
                relay: by.to_owned(),
                replays: 0,
            };
            let sent = resolution.record(archive.address, |record| book.send((), record, now));
            if sent.map_err(unwritable)?.is_some() {
                break;
            }
            left.next();
        }
        let trouble = book.collect(PATIENCE, now, &mut confirmed).into_iter().next();
        *count = confirmed.len();
        trouble.map_or(Ok(()), |trouble| Err(unwritable(trouble)))?;
    }
    Ok(())
}

fn not_parked<'a>(key: &str, parked: impl Iterator<Item = &'a Parked>) -> Fault {
    let mut keys: Vec<String> = parked.map(Parked::name).collect();
    keys.sort();
    let more = keys.len().saturating_sub(NAMED_MAX);
    keys.truncate(NAMED_MAX);
    let mend = match (keys.is_empty(), more) {
        (true, _) => "no key is parked; there is nothing to release".to_owned(),
        (false, 0) => format!("name one that is parked: {}", keys.join(", ")),
        (false, _) => format!("name one that is parked: {}, and {more} more", keys.join(", ")),
    };
    let what = format!("key {key:?} is not parked");
    Fault::new(Exit::Failed, "dead-letter.not-parked", what, "", mend)
}

fn still_open(waiting: &[(String, usize)]) -> Fault {
    let (key, _) = &waiting[0];
    let letters: usize = waiting.iter().map(|(_, count)| count).sum();
    let what = match waiting.len() {
        1 => format!("{letters} dead letters of key {key} are open"),
        keys => {
            format!("{letters} dead letters of {keys} keys are open, one of them {key}")
        }
    };
    Fault::new(
        Exit::Failed,
        "dead-letter.key-has-open",
        format!("{what}: later events would overtake them"),
        "",
        format!(
            "walrelay dlq replay --key {0} (or discard), then release it;\nor, whatever the order: walrelay dlq release --key {0} --anyway",
            quoted(key)
        ),
    )
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
