//! Looks for published events in the file, from its beginning.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use super::record;
use crate::sink::search::{SearchReport, SearchScope, StoredRecord, TakeRecord};

pub(super) fn search(
    path: &Path,
    scope: &SearchScope<'_>,
    take: &mut TakeRecord<'_>,
) -> SearchReport {
    let mut records = 0;
    let name = path.display();
    match read(path, scope, take, &mut records) {
        Ok(None) => SearchReport {
            searched: vec![format!("file {name}: {records} lines")],
            not_searched: Vec::new(),
        },
        Ok(Some(limit)) => {
            let what = format!("the rest of file {name}, behind {records} lines: {limit}");
            SearchReport::not_possible(what)
        }
        Err(error) => SearchReport::not_possible(format!("file {name}: {error}")),
    }
}

/// What has ended the reading early, if anything has.
fn read(
    path: &Path,
    scope: &SearchScope<'_>,
    take: &mut TakeRecord<'_>,
    records: &mut u64,
) -> io::Result<Option<&'static str>> {
    let mut file = BufReader::new(File::open(path)?);
    let (mut line, mut offset) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        let bytes = file.read_until(b'\n', &mut line)?;
        // A line without its end is being written.
        if line.pop() != Some(b'\n') {
            return Ok(None);
        }
        *records += 1;
        if let Some((topic, entry)) = record::read_event(&line, offset)
            && entry.written_unix_us >= scope.from_unix_us
        {
            take(&StoredRecord {
                topic: &topic,
                partition: entry.position.partition,
                offset: entry.position.offset,
                written_unix_us: entry.written_unix_us,
                key: entry.key.as_deref(),
                headers: &entry.headers,
            });
        }
        if let Some(limit) = scope.limits.reached(*records) {
            return Ok(Some(limit));
        }
        offset += bytes as u64;
    }
}
