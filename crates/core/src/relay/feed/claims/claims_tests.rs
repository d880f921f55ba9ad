//! The feed of claimed rows, with workers in memory and a clock that stands still.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};

use super::*;
use crate::delivery::flight::{Extras, Flight, FlightState};
use crate::outbox::settings::OutboxTable;
use crate::pgoutput::relation::{Column, Relation};
use crate::polling::batch::PolledRow;

const SECOND: Duration = Duration::from_secs(1);

/// The rows that the workers have passed on, and the answers that they got.
#[derive(Default)]
pub(super) struct Table {
    batches: VecDeque<Batch>,
    /// Claims whose worker waits.
    awaited: BTreeSet<String>,
    answered: Vec<Verdicts>,
    pub(super) written: Vec<Verdicts>,
    /// For how many further verdicts there is room.
    room: usize,
    /// How often verdicts were offered that no worker waits for, and from which time on there is room for all.
    pub(super) offers: usize,
    pub(super) room_from: Option<usize>,
    /// Nobody writes verdicts any more.
    pub(super) is_gone: bool,
    pub(super) wanted: bool,
}

struct MemoryWorkers(Arc<Mutex<Table>>);

/// The same event for another sink.
fn sent_anew(flight: &Flight) -> Flight {
    let extras = Extras::of(flight.attempts(), None);
    Flight { state: FlightState::Sent, extras, ..*flight }
}

impl MemoryWorkers {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap()
    }
}

impl ClaimWorkers for MemoryWorkers {
    fn receive(&mut self, _timeout: Duration) -> Option<Batch> {
        self.table().batches.pop_front()
    }

    fn answer(&mut self, verdicts: Verdicts) -> Option<Verdicts> {
        let mut table = self.table();
        if !table.awaited.remove(&verdicts.claim) {
            return Some(verdicts);
        }
        table.answered.push(verdicts);
        None
    }

    fn write(&mut self, verdicts: Verdicts) -> Option<Verdicts> {
        let mut table = self.table();
        table.offers += 1;
        let has_room = table.room > 0 || table.room_from.is_some_and(|from| table.offers >= from);
        if !has_room {
            return Some(verdicts);
        }
        table.room = table.room.saturating_sub(1);
        table.written.push(verdicts);
        None
    }

    fn writes(&self) -> bool {
        !self.table().is_gone
    }

    fn set_wanted(&mut self, wanted: bool) {
        self.table().wanted = wanted;
    }

    fn phase(&self) -> Phase {
        Phase::Polling
    }
}

impl Table {
    /// A worker passes rows of its claim on, and waits.
    pub(super) fn pass(&mut self, claim: &str, rows: usize, claimed_at: Instant) {
        let row = |id: usize| {
            let id = id.to_string();
            PolledRow { tuple: tuple(&id, "k"), id, ..PolledRow::default() }
        };
        let rows = (1..=rows).map(row).collect();
        let batch = Batch { claim: claim.to_owned(), claimed_at, lsn: Lsn::ZERO, rows };
        self.awaited.insert(claim.to_owned());
        self.batches.push_back(batch);
    }

    /// The claims of which rows were given back, and how many.
    pub(super) fn given_back(&self) -> Vec<(String, usize)> {
        let count = |it: &Verdicts| (it.claim.clone(), it.given_back.len());
        self.answered.iter().map(count).filter(|(_, rows)| *rows > 0).collect()
    }
}

pub(super) struct Fixture {
    pub(super) feed: ClaimFeed,
    pub(super) table: Arc<Mutex<Table>>,
    pub(super) lease: Arc<ClaimLease>,
    pub(super) began: Instant,
}

const COLUMNS: [&str; 5] = ["id", "aggregatetype", "aggregateid", "type", "payload"];

/// How rows of these columns become events.
pub(super) fn plan() -> Plan {
    let columns = COLUMNS.map(|name| Column { name: name.to_owned(), type_oid: 25 });
    let (namespace, name) = ("public".to_owned(), "outbox".to_owned());
    let relation = Relation { oid: 1, namespace, name, columns: columns.into() };
    Plan::compile(&OutboxTable::default(), 0, &relation, false).unwrap().without_lsn()
}

/// The columns of a row of this key, as pgoutput would send them.
pub(super) fn tuple(id: &str, key: &str) -> Vec<u8> {
    let values = [id, "order", key, "made", "{}"];
    let mut bytes = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        bytes.push(b't');
        bytes.extend((value.len() as u32).to_be_bytes());
        bytes.extend(value.as_bytes());
    }
    bytes
}

/// A feed whose claims count for four seconds without a renewal, of workers that claim one row at a time.
pub(super) fn fixture_of(delivery: DeliverySettings) -> Fixture {
    let (began, table) = (Instant::now(), Arc::default());
    let lease = Arc::new(ClaimLease::new(8 * SECOND, began));
    let feed = ClaimFeed::new(ClaimParts {
        workers: Box::new(MemoryWorkers(Arc::clone(&table))),
        lease: Arc::clone(&lease),
        plan: plan(),
        table: "public.outbox".to_owned(),
        delivery,
        claimed_at_once: 1,
    });
    Fixture { feed, table, lease, began }
}

fn fixture() -> Fixture {
    fixture_of(DeliverySettings::default())
}

impl Fixture {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap()
    }

    fn pass(&self, claim: &str, rows: usize, claimed_at: Instant) {
        self.table().pass(claim, rows, claimed_at);
    }

    /// The sink gets everything that comes in.
    fn take(&mut self, now: Instant) {
        self.feed.take_batches(Moment { instant: now, unix_us: 0 });
        while let Some((_, _, flight)) = self.feed.rows.next_queued() {
            let flight = sent_anew(flight);
            self.feed.rows.offered(flight, now);
        }
    }

    fn given_back(&self) -> Vec<(String, usize)> {
        self.table().given_back()
    }
}

#[test]
fn a_batch_whose_claim_began_half_a_lease_ago_is_given_back() {
    let mut fixture = fixture();
    let now = fixture.began + 5 * SECOND;
    fixture.pass("old", 2, now - 4 * SECOND);
    fixture.pass("young", 1, now - 3 * SECOND);
    fixture.take(now);
    fixture.feed.send_verdicts(now);
    assert_eq!(fixture.given_back(), [("old".to_owned(), 2)]);
    assert_eq!(fixture.feed.in_flight(), 1);
}

#[test]
fn rows_in_flight_are_withdrawn_once_the_lease_has_ended_or_lapsed_or_its_clock_stood_or_rows_are_gone()
 {
    type Case = fn(&Fixture) -> (Instant, Duration);
    let ended: Case = |it| (it.began + 4 * SECOND, Duration::ZERO);
    let suspended: Case = |it| (it.began + SECOND, 4 * SECOND);
    let lapsed: Case = |it| {
        it.lease.renewed(it.began + 4 * SECOND);
        (it.began + 5 * SECOND, Duration::ZERO)
    };
    let lost: Case = |it| {
        it.lease.lose();
        (it.began + SECOND, Duration::ZERO)
    };
    for withdrawn in [ended, suspended, lapsed, lost] {
        let mut fixture = fixture();
        let began = fixture.began;
        fixture.pass("a", 1, began);
        fixture.take(began);
        let second = began + SECOND;
        assert_eq!(fixture.feed.withdrawal(second, Duration::ZERO), None, "too early");
        let (now, missed) = withdrawn(&fixture);
        assert!(fixture.feed.withdrawal(now, missed).is_some());
        // WHEN batches come that were claimed before and after THEN only the later one counts
        fixture.pass("b", 1, now - Duration::from_millis(1));
        fixture.pass("c", 1, now);
        fixture.take(now);
        fixture.feed.send_verdicts(now);
        assert_eq!(fixture.given_back(), [("b".to_owned(), 1)]);
    }
}

#[test]
fn a_lapse_with_nothing_in_flight_withdraws_nothing() {
    let mut fixture = fixture();
    assert_eq!(fixture.feed.withdrawal(fixture.began + 4 * SECOND, Duration::ZERO), None);
}

#[test]
fn verdicts_for_which_no_worker_waits_are_written_in_their_order_once_there_is_room() {
    let mut fixture = fixture();
    let now = fixture.began;
    fixture.pass("a", 3, now);
    fixture.take(now);
    fixture.feed.retrying(0, 1, SECOND, "no");
    fixture.feed.send_verdicts(now);
    // THEN the worker goes on, and the verdict waits with those that follow it
    assert_eq!(fixture.table().answered, [Verdicts::of("a".to_owned())]);
    // WHEN verdicts become known one after the other, and there is room for two more
    fixture.table().room = 3;
    for row in [2, 0, 1] {
        fixture.feed.settle(row).unwrap();
        fixture.feed.send_verdicts(now);
    }
    let published = |table: &Table| -> Vec<String> {
        table.written.iter().flat_map(|it| it.published.clone()).collect()
    };
    assert_eq!(published(&fixture.table()), ["3", "1"]);
    assert_eq!(fixture.table().written[0].noted.len(), 1);
    fixture.table().room = 1;
    fixture.feed.send_verdicts(now);
    assert_eq!(published(&fixture.table()), ["3", "1", "2"]);
    assert!(fixture.table().written.last().unwrap().last);
}

#[test]
fn a_batch_that_ends_the_wait_is_taken_in_first() {
    let mut fixture = fixture();
    let now = fixture.began;
    fixture.pass("a", 1, now);
    fixture.pass("b", 2, now);
    assert!(fixture.feed.wait(SECOND, None, now), "it may wait");
    assert!(fixture.feed.received.is_some(), "it has waited");
    fixture.feed.take_batches(Moment { instant: now, unix_us: 0 });
    let ordinals: Vec<u64> = std::iter::from_fn(|| {
        let (_, _, flight) = fixture.feed.rows.next_queued()?;
        let (ordinal, flight) = (flight.position.ordinal, sent_anew(flight));
        fixture.feed.rows.offered(flight, now);
        Some(ordinal)
    })
    .collect();
    assert_eq!(ordinals, [0, 0, 1]);
    // THEN the loop waits for the sink, and not for rows
    assert!(!fixture.feed.wait(SECOND, None, now));
}

#[test]
fn no_more_rows_are_wanted_once_the_feed_is_closed() {
    let mut fixture = fixture();
    fixture.table().wanted = true;
    fixture.feed.close();
    assert!(!fixture.table().wanted);
}
