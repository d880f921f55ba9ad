//! Where an event is: its row, its place in the log, its dead letter, its record at the broker.
//!
//! Three places are asked, one after the other, and nothing is changed in any: the outbox tables and
//! the slot ([`rows`]), the dead-letter topic ([`dead_letters`]), and what the broker holds
//! ([`crate::sink::search`]). The slot is read before the broker, so that what it has passed must be
//! there. [`event`] says what follows from it. A search is bounded in time, and what it could not look
//! into is part of the answer.

mod dead_letters;
mod event;
mod records;
mod report;
mod request;
mod row_query;
mod rows;
mod sentences;

use std::iter;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tokio::time::timeout;

pub(crate) use self::event::FoundEvent;
pub(crate) use self::report::FindReport;
pub(crate) use self::request::{FindRequest, FindText, WITHIN_DEFAULT, Wanted};
pub(crate) use self::sentences::sentences;

use self::event::{EventLetter, EventSighting, OutboxRow};
use self::records::RecordFilter;
use self::request::{Spelling, WantedSpellings};
use self::rows::{RowLookup, SourceView};
use crate::base::error::Fault;
use crate::base::runtime;
use crate::config::Config;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::delivery::settings::OnDeadLetter;
use crate::outbox::settings::Route;
use crate::polling::settings::PollingSettings;
use crate::sink::log::ReadFrom;
use crate::sink::search::{SearchLimits, SearchReport, SearchRoute, SearchScope};
use crate::sink::{Broker, UNREACHABLE};
use crate::source::settings::SourceSettings;

/// Postgres answers in less, or is left out.
const POSTGRES_WITHIN: Duration = Duration::from_secs(15);
/// Clocks differ, and a row is created before its transaction is committed.
const MARGIN_US: i64 = 60_000_000;
/// The code of a dead-letter topic that does not exist.
const DEAD_LETTERS_MISSING: &str = "sink.dead-letter-missing";

/// The places where events of one configuration can be.
#[derive(Clone, Debug)]
pub(crate) struct EventFinder {
    source: SourceSettings,
    polling: Option<PollingSettings>,
    broker: Arc<dyn Broker>,
    dead_letters: DeadLetterAddress,
    /// Whether the relay writes to the dead-letter topic.
    writes_dead_letters: bool,
}

impl EventFinder {
    pub(crate) fn new(config: &Config) -> EventFinder {
        EventFinder {
            source: config.source.clone(),
            polling: config.polling.clone(),
            broker: Arc::clone(&config.sink),
            dead_letters: config.dead_letter.address.clone(),
            writes_dead_letters: config.delivery.on_dead_letter != OnDeadLetter::Halt,
        }
    }

    /// Looks for the events, on a thread that may block. `observe` gets the number of records that
    /// were read. A fault only where the request itself is wrong.
    pub(crate) fn find(
        &self,
        request: &FindRequest,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(u64),
    ) -> Result<FindReport, Fault> {
        let deadline = Instant::now() + request.within;
        let limits = SearchLimits { deadline, stop };
        let SourceView { rows, spellings, slot, searched, not_searched } = self.source(request)?;
        let mut is_unsearched = searched.is_empty();
        let outboxes = self.source.outboxes.iter();
        let tables = outboxes.map(|it| (it.to_string(), it.route.topic.clone())).collect();
        let mut report =
            FindReport { slot, tables, searched, not_searched, ..FindReport::default() };
        let from_unix_us = from(request, &rows);
        let wanted = WantedSpellings { typed: &request.wanted, tables: &spellings };
        let letters_from = letters_from(request, &rows, from_unix_us);
        // Where all of them are read, the destinations are to be searched as well.
        let reads_all = letters_from == ReadFrom::Beginning;
        let half = Instant::now() + limits.left() / 2;
        let deadline = if reads_all { half } else { deadline };
        let (letters, read) = self.letters(&wanted, letters_from, SearchLimits { deadline, stop });
        let letters_read = read.as_ref().is_ok_and(|read| read.not_searched.is_empty());
        let is_away = add(&mut report, read).is_err();
        let mut filter = RecordFilter::new(&wanted);
        let mut complete = Vec::new();
        if !is_away {
            let mut count = 0;
            let scope = SearchScope { routes: &self.routes(&wanted, &rows), from_unix_us, limits };
            let mut read = self.broker.search(&scope, &mut |record| {
                count += 1;
                observe(count);
                filter.take(record);
            });
            complete.append(&mut read.complete);
            is_unsearched &= read.searched.is_empty();
            add(&mut report, Ok(read)).ok();
        }
        let RecordFilter { found: records, is_cut, .. } = filter;
        if is_cut {
            let what = format!("more records: the newest {} are shown", records::RECORDS_MAX);
            report.not_searched.push(what);
            complete.clear();
        }
        report.is_unsearched = is_unsearched;
        report.add(rows, &letters, &records, letters_read, &complete);
        Ok(report)
    }

    fn source(&self, request: &FindRequest) -> Result<SourceView, Fault> {
        let polling = self.polling.as_ref();
        let lookup = RowLookup { source: &self.source, polling, request };
        let within = POSTGRES_WITHIN.min(request.within);
        let looked = runtime::block_on(async { timeout(within, lookup.look()).await })?;
        looked.unwrap_or_else(|_| {
            let seconds = within.as_secs_f64();
            let late = format!("Postgres: it did not answer within {seconds} s");
            Ok(SourceView { not_searched: vec![late], ..SourceView::default() })
        })
    }

    fn letters(
        &self,
        wanted: &WantedSpellings<'_>,
        from: ReadFrom,
        limits: SearchLimits<'_>,
    ) -> (Vec<EventSighting<EventLetter>>, Result<SearchReport, Fault>) {
        let topic = DeadLetterTopic::of_relay(&*self.broker, &self.dead_letters, limits.stop);
        match dead_letters::letters(&topic, wanted, from, &limits) {
            Ok((letters, report)) => (letters, Ok(report)),
            // It is written to no more, but may have been.
            Err(fault) if !self.writes_dead_letters && fault.code == DEAD_LETTERS_MISSING => {
                (Vec::new(), Ok(SearchReport::default()))
            }
            Err(fault) => (Vec::new(), Err(fault)),
        }
    }

    /// Where the events may have gone: where the routes of the rows lead, and for a key, whose rows
    /// may be deleted, where the route of each table leads that can have the key.
    fn routes(&self, wanted: &WantedSpellings<'_>, rows: &[OutboxRow]) -> Vec<SearchRoute> {
        let mut routes: Vec<SearchRoute> = Vec::new();
        for route in rows.iter().filter_map(OutboxRow::route) {
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
        if let Wanted::Key(key) = wanted.typed {
            let unknown = Spelling::Unknown;
            let spellings = wanted.tables.iter().chain(iter::repeat(&unknown));
            let outboxes = self.source.outboxes.iter().map(|outbox| &outbox.route).zip(spellings);
            // A field of a message is text.
            let of_message = Spelling::Bytes(key.clone().into_bytes());
            let messages = self.source.messages.iter();
            let messages = messages.map(|messages| (&messages.route, &of_message));
            let found = outboxes.chain(messages);
            routes.extend(found.filter_map(|(route, spelling)| route_of_key(route, spelling)));
        }
        routes
    }
}

/// Where the events of a key may have gone; none for a table that cannot have it.
fn route_of_key(route: &Route, spelling: &Spelling) -> Option<SearchRoute> {
    let key = match spelling {
        Spelling::NoValue(_) => return None,
        Spelling::Bytes(key) if route.partition.is_none() => Some(key.clone()),
        // Another column may have given another partition.
        Spelling::Bytes(_) | Spelling::Unknown => None,
    };
    Some(SearchRoute { topic: route.topic.clone(), key, partition: None })
}

/// Since when the broker is searched.
fn from(request: &FindRequest, rows: &[OutboxRow]) -> i64 {
    let FindRequest { wanted, since_unix_us, since_is_given, .. } = request;
    let begin = |row: &OutboxRow| match (row.oldest_unix_us(), row.committed_unix_us) {
        (Some(row), _) => row.saturating_sub(MARGIN_US),
        (None, Some(row)) => row.saturating_sub(MARGIN_US).min(*since_unix_us),
        (None, None) => *since_unix_us,
    };
    let of_rows = rows.iter().map(begin).min();
    match (wanted, of_rows) {
        (Wanted::Id(_), Some(begin)) if !since_is_given => begin,
        // Rows of a while before that time are looked for: their transactions may have been long.
        (Wanted::Key(_), Some(begin)) => begin.min(*since_unix_us),
        _ => *since_unix_us,
    }
}

/// Where the reading of dead letters begins: none of a row that was found may be left out, however old
/// the row is, or the row would count as published. How old an event is whose row was not found, is not
/// known.
fn letters_from(request: &FindRequest, rows: &[OutboxRow], from_unix_us: i64) -> ReadFrom {
    let is_of_id = matches!(request.wanted, Wanted::Id(_)) && !request.since_is_given;
    if rows.is_empty() && is_of_id {
        return ReadFrom::Beginning;
    }
    let from =
        rows.iter().try_fold(from_unix_us, |from, row| Some(from.min(row.oldest_unix_us()?)));
    from.map_or(ReadFrom::Beginning, ReadFrom::Time)
}

/// Adds what was read; an error if the broker does not answer at all.
fn add(report: &mut FindReport, read: Result<SearchReport, Fault>) -> Result<(), ()> {
    match read {
        Ok(SearchReport { searched, not_searched, .. }) => {
            report.searched.extend(searched);
            report.not_searched.extend(not_searched);
            Ok(())
        }
        Err(fault) if fault.code == UNREACHABLE => {
            report.not_searched.push(format!("dead letters and destinations: {}", fault.what));
            Err(())
        }
        Err(fault) => {
            report.not_searched.push(format!("dead letters: {}", fault.what));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
