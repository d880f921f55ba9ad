//! Rows of a table, several lives of a relay that claims them, and another process that takes over rows
//! whose claims are lost. Sinks, workers and leases fail as often as the seed of a run says; the last
//! life is calm, and then everything must be published.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

use super::loop_tests::failure;
use super::tests::{plan, tuple};
use super::*;
use crate::base::event::Outbound;
use crate::base::random::Random;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::polling::batch::PolledRow;
use crate::relay::ports::Clock;
use crate::relay::surroundings::{Ticks, parts};
use crate::relay::{Parts, Relay};
use crate::sink::{Disposition, PublishError, SinkReport};

const RUNS: u64 = 300;
const ROWS: usize = 40;
const KEYS: u64 = 5;
const WORKERS: usize = 3;
const BATCH_MAX: usize = 4;
const WINDOW: usize = 20;
const LEASE: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowState {
    Free,
    /// The number of its claim.
    Claimed(i64),
    Settled,
}

#[derive(Clone, Copy)]
struct Row {
    key: u64,
    state: RowState,
    attempts: u32,
    has_letter: bool,
}

struct Claim {
    claimed_at: Instant,
    /// Rows that have no verdict.
    left: BTreeSet<usize>,
}

/// The table, the workers and the topic.
struct World {
    random: Random,
    clock: Arc<Ticks>,
    is_calm: bool,
    rows: Vec<Row>,
    /// The claims of this life that have not ended.
    claims: BTreeMap<i64, Claim>,
    newest_claim: i64,
    /// Claims whose worker waits.
    awaited: BTreeSet<i64>,
    coming: VecDeque<Batch>,
    is_wanted: bool,
    renewed_at: Instant,
    /// The rows in the topic.
    records: Vec<usize>,
    /// Row, claim, and whether it is a dead letter, of each confirm that was reported.
    confirmed: BTreeSet<(usize, i64, bool)>,
}

impl World {
    fn new(seed: u64) -> World {
        let (mut random, began) = (Random::new(seed), Instant::now());
        let state = RowState::Free;
        let mut row = || Row { key: random.number() % KEYS, state, attempts: 0, has_letter: false };
        World {
            rows: (0..ROWS).map(|_| row()).collect(),
            random,
            clock: Ticks::since(began),
            is_calm: false,
            claims: BTreeMap::new(),
            newest_claim: 0,
            awaited: BTreeSet::new(),
            coming: VecDeque::new(),
            is_wanted: false,
            renewed_at: began,
            records: Vec::new(),
            confirmed: BTreeSet::new(),
        }
    }

    /// Whether something goes wrong that does so in so many of a hundred cases.
    fn fails(&mut self, percent: u64) -> bool {
        let drawn = self.random.number() % 100;
        !self.is_calm && drawn < percent
    }

    /// A worker claims rows whose keys are not busy.
    fn claim(&mut self) {
        if !self.is_wanted || self.awaited.len() >= WORKERS {
            return;
        }
        let number = self.newest_claim + 1;
        let (mut rows, mut left, mut busy) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for at in 0..ROWS {
            let Row { key, state, attempts, .. } = self.rows[at];
            let takes = state == RowState::Free && !busy.contains(&key) && rows.len() < BATCH_MAX;
            if takes && !self.fails(20) {
                self.rows[at].state = RowState::Claimed(number);
                let (id, created_unix_us) = (at.to_string(), number);
                let tuple = tuple(&id, &key.to_string());
                rows.push(PolledRow { id, created_unix_us, attempts, tuple });
                left.insert(at);
            } else if state != RowState::Settled {
                busy.insert(key);
            }
        }
        if rows.is_empty() {
            return;
        }
        let (claimed_at, lsn) = (self.clock.instant(), Lsn::from_wire(number as u64));
        self.newest_claim = number;
        self.awaited.insert(number);
        self.claims.insert(number, Claim { claimed_at, left });
        self.coming.push_back(Batch { claim: number.to_string(), claimed_at, lsn, rows });
    }

    /// The rows of these claims are free, and another process publishes some of those that are.
    fn free(&mut self, is_lost: impl Fn(&Claim) -> bool) {
        let lost = self.claims.iter().filter(|(_, claim)| is_lost(claim));
        let lost: BTreeSet<i64> = lost.map(|(number, _)| *number).collect();
        let mut busy = BTreeSet::new();
        for at in (0..ROWS).filter(|_| !lost.is_empty()) {
            let Row { key, state, .. } = self.rows[at];
            if matches!(state, RowState::Claimed(number) if lost.contains(&number)) {
                self.rows[at].state = RowState::Free;
            }
            let is_free = self.rows[at].state == RowState::Free && !busy.contains(&key);
            if is_free && self.fails(50) {
                self.records.push(at);
                self.rows[at].state = RowState::Settled;
            } else if state != RowState::Settled {
                busy.insert(key);
            }
        }
    }

    /// Time passes, claims are renewed in time or not, and are lost or not.
    fn pass_time(&mut self, lease: &ClaimLease) {
        let longest_ms = if self.fails(3) { 12_000 } else { 50 };
        let passed_ms = 1 + self.random.number() % longest_ms;
        self.clock.sleep(Duration::from_millis(passed_ms));
        let (now, renewed_at) = (self.clock.instant(), self.renewed_at);
        self.free(|claim| now >= claim.claimed_at.max(renewed_at) + LEASE);
        if self.fails(2) {
            self.free(|_| true);
            lease.lose();
        }
        if !self.fails(60) {
            self.renewed_at = now;
            lease.renewed(now);
        }
    }

    /// Verdicts are written to the table.
    fn settle(&mut self, verdicts: Verdicts) {
        let number = number_of(&verdicts);
        let claim = self.claims.get_mut(&number).expect("a claim that has not ended");
        let row = |id: &String| id.parse::<usize>().unwrap();
        for noted in &verdicts.noted {
            let at = row(&noted.id);
            assert!(claim.left.contains(&at), "{at} has failed behind its verdict");
            if self.rows[at].state == RowState::Claimed(number) {
                assert!(noted.attempts >= self.rows[at].attempts, "{at} has forgotten attempts");
                self.rows[at].attempts = noted.attempts;
            }
        }
        let published = verdicts.published.iter().map(|id| (row(id), Some(false)));
        let failed = verdicts.failed.iter().map(|it| (row(&it.id), Some(true)));
        let given_back = verdicts.given_back.iter().map(|id| (row(id), None));
        let all: Vec<_> = published.chain(failed).chain(given_back).collect();
        for (at, is_letter) in &all {
            assert!(claim.left.remove(at), "{at} has two verdicts, or was never claimed");
            let is_known = |it: &bool| self.confirmed.contains(&(*at, number, *it));
            assert!(is_letter.as_ref().is_none_or(is_known), "{at} was not confirmed");
            if self.rows[*at].state == RowState::Claimed(number) {
                let settled = is_letter.map(|_| RowState::Settled);
                self.rows[*at].state = settled.unwrap_or(RowState::Free);
            }
        }
        for (at, _) in all.iter().filter(|(_, is_letter)| is_letter.is_some()) {
            let is_earlier = |it: &usize| it < at && self.rows[*it].key == self.rows[*at].key;
            assert!(!claim.left.iter().any(is_earlier), "{at} is settled before its key is");
        }
        if verdicts.last {
            assert!(claim.left.is_empty(), "there are no verdicts on {:?}", claim.left);
            self.claims.remove(&number);
        }
    }

    /// The sink goes on with an event. Earlier ones of its key are still to be sent, or to be confirmed.
    fn advance(&mut self, item: &mut Item, waits: bool, is_behind: bool) -> Option<SinkReport> {
        use Disposition::{Delayed, Terminal, Transient};
        if item.stage == Stage::Waiting && !waits && !self.fails(40) {
            if self.fails(12) {
                item.stage = Stage::Refused;
                let drawn = self.random.number() % 4;
                let of_event = [Transient, Transient, Terminal, Delayed][drawn as usize];
                let disposition = if item.is_letter { Delayed } else { of_event };
                return Some(SinkReport::Failed(item.sequence, failure(disposition)));
            }
            item.stage = Stage::Sent;
            let row = &mut self.rows[item.at];
            assert_eq!(row.state, RowState::Claimed(item.claim), "{} is sent unclaimed", item.at);
            row.has_letter |= item.is_letter;
            self.records.extend(Some(item.at).filter(|_| !item.is_letter));
        }
        let is_confirmed = item.stage == Stage::Sent && !is_behind && !self.fails(40);
        is_confirmed.then(|| {
            self.confirmed.insert((item.at, item.claim, item.is_letter));
            SinkReport::Confirmed(item.sequence)
        })
    }

    /// Workers end with the batches that the loop did not receive.
    fn end_life(&mut self) {
        for batch in std::mem::take(&mut self.coming) {
            let given_back = batch.rows.into_iter().map(|row| row.id).collect();
            self.settle(Verdicts { given_back, last: true, ..Verdicts::of(batch.claim) });
        }
        assert!(self.claims.is_empty(), "there are rows without a verdict");
        self.awaited.clear();
        self.is_wanted = false;
    }

    fn is_settled(&self) -> bool {
        self.rows.iter().all(|row| row.state == RowState::Settled)
    }

    /// Every row is in the topic, or has a dead letter; and rows of a key come in order, apart from those
    /// that have a dead letter, and end with the last.
    fn check(&self) {
        for (at, row) in self.rows.iter().enumerate() {
            assert!(row.has_letter || self.records.contains(&at), "{at} is lost");
        }
        for key in 0..KEYS {
            let is_of_key = |at: &&usize| {
                let row = self.rows[**at];
                row.key == key && !row.has_letter
            };
            let records: Vec<usize> = self.records.iter().filter(is_of_key).copied().collect();
            assert_eq!(records.last(), records.iter().max(), "{records:?}");
            let mut seen = BTreeSet::new();
            let firsts = records.iter().filter(|at| seen.insert(**at));
            assert!(firsts.is_sorted(), "{records:?}");
        }
    }
}

fn number_of(verdicts: &Verdicts) -> i64 {
    verdicts.claim.parse().unwrap()
}

struct Workers(Arc<Mutex<World>>);

impl Workers {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl ClaimWorkers for Workers {
    fn receive(&mut self, timeout: Duration) -> Option<Batch> {
        let mut world = self.world();
        let batch = if world.fails(40) { None } else { world.coming.pop_front() };
        if batch.is_none() {
            world.clock.sleep(timeout);
        }
        batch
    }

    fn answer(&mut self, verdicts: Verdicts) -> Option<Verdicts> {
        let mut world = self.world();
        if !world.awaited.remove(&number_of(&verdicts)) {
            return Some(verdicts);
        }
        world.settle(verdicts);
        None
    }

    fn write(&mut self, verdicts: Verdicts) -> Option<Verdicts> {
        let mut world = self.world();
        if world.fails(30) {
            return Some(verdicts);
        }
        world.settle(verdicts);
        None
    }

    fn writes(&self) -> bool {
        true
    }

    fn set_wanted(&mut self, wanted: bool) {
        self.world().is_wanted = wanted;
    }

    fn phase(&self) -> Phase {
        Phase::Polling
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sent,
    Refused,
}

#[derive(Clone)]
struct Item {
    sequence: Sequence,
    at: usize,
    claim: i64,
    is_letter: bool,
    stage: Stage,
}

/// A sink that sends the events of a key in order, and none of them behind one that was refused.
#[derive(Clone)]
struct LaneSink {
    world: Arc<Mutex<World>>,
    items: Vec<Item>,
    next: Sequence,
    until: Instant,
}

impl LaneSink {
    fn take(&mut self, sequence: Sequence, at: usize, claim: i64, is_letter: bool) {
        assert!(sequence >= self.next, "{sequence} is handed over twice, or behind a later one");
        self.next = sequence + 1;
        self.items.push(Item { sequence, at, claim, is_letter, stage: Stage::Waiting });
    }

    /// An event that was refused goes on.
    fn refused(&mut self, sequence: Sequence) -> &mut Item {
        let item = self.items.iter_mut().find(|item| item.sequence == sequence);
        let item = item.filter(|item| item.stage == Stage::Refused).expect("it was refused");
        item.stage = Stage::Waiting;
        item
    }
}

impl Sink for LaneSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        let mut world = self.world.lock().unwrap();
        if world.fails(3) {
            return Err(PublishError::QueueFull);
        }
        if world.fails(1) {
            return Err(PublishError::Failed(failure(Disposition::Outage)));
        }
        drop(world);
        // A row was written when its claim says.
        self.take(sequence, event.id.parse().unwrap(), event.commit_unix_us, false);
        Ok(())
    }

    fn publish_dead_letter(
        &mut self,
        sequence: Sequence,
        dead_letter: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        let at: usize = dead_letter.id.parse().unwrap();
        let state = self.world.lock().unwrap().rows[at].state;
        let RowState::Claimed(claim) = state else { panic!("{at} is {state:?}") };
        self.take(sequence, at, claim, true);
        Ok(())
    }

    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        let mut world = self.world.lock().unwrap();
        let known = reports.len();
        let (mut waiting, mut open) = (BTreeSet::new(), BTreeSet::new());
        if now < self.until {
            self.items.retain_mut(|item| {
                let key = world.rows[item.at].key;
                let report = world.advance(item, waiting.contains(&key), open.contains(&key));
                let is_confirmed = matches!(report, Some(SinkReport::Confirmed(_)));
                reports.extend(report);
                if !is_confirmed {
                    open.insert(key);
                    waiting.extend(Some(key).filter(|_| item.stage != Stage::Sent));
                }
                !is_confirmed
            });
            let is_broken = world.fails(1);
            reports.extend(is_broken.then(|| SinkReport::Broken("it is lost".to_owned())));
        }
        if reports.len() == known {
            world.clock.sleep(patience);
        }
    }

    fn publish_until(&mut self, until: Instant) {
        self.until = until;
    }

    fn withdraw(&mut self, _now: Instant, reports: &mut Vec<SinkReport>) {
        let mut world = self.world.lock().unwrap();
        let mut open = BTreeSet::new();
        for item in &mut self.items {
            let key = world.rows[item.at].key;
            // Nothing is sent any more.
            let report = world.advance(item, true, open.contains(&key));
            open.extend(Some(key).filter(|_| report.is_none()));
            reports.extend(report);
        }
    }

    fn retry(&mut self, sequence: Sequence) {
        self.refused(sequence);
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        _: &DeadLetterWriter,
        _: &DeadLetterCause,
    ) {
        self.refused(sequence).is_letter = true;
    }
}

/// A process from its begin to its end: it is stopped after so many steps, or else once all is published.
fn live(world: &Arc<Mutex<World>>, steps: Option<usize>) {
    let it = || world.lock().unwrap();
    let clock = Arc::clone(&it().clock);
    let began = clock.instant();
    it().renewed_at = began;
    let lease = Arc::new(ClaimLease::new(LEASE, began));
    let delivery = DeliverySettings {
        window_events_max: WINDOW,
        attempts_max: 3,
        backoff_base: Duration::from_millis(10),
        backoff_cap: Duration::from_millis(40),
        drain_timeout: Duration::from_millis(500),
        ..DeliverySettings::default()
    };
    let feed = ClaimFeed::new(ClaimParts {
        workers: Box::new(Workers(Arc::clone(world))),
        lease: Arc::clone(&lease),
        plan: plan(),
        table: "public.outbox".to_owned(),
        delivery: delivery.clone(),
        claimed_at_once: WORKERS * BATCH_MAX,
    });
    let sink = LaneSink { world: Arc::clone(world), items: Vec::new(), next: 0, until: began };
    let parts = Parts { delivery, ..parts(&clock, &Arc::default(), sink) };
    let mut relay = Relay::new(parts, feed).unwrap();
    for step in 0.. {
        assert!(step < 5_000, "it stands still");
        it().pass_time(&lease);
        it().claim();
        let ends = steps.map_or_else(|| it().is_settled(), |steps| step >= steps);
        relay.flags.stop.store(ends, Ordering::Relaxed);
        if let Some(outcome) = relay.step() {
            let code = outcome.err().map(|fault| fault.code);
            let is_late = steps.is_some() && code == Some("stop.unsettled");
            assert!(code.is_none() || is_late, "{code:?}");
            break;
        }
        assert!(relay.feed.rows.unsettled() <= WINDOW, "there are more rows than may be");
    }
    it().end_life();
}

fn play(seed: u64) {
    let world = Arc::new(Mutex::new(World::new(seed)));
    for _ in 0..3 {
        let drawn = world.lock().unwrap().random.number();
        live(&world, Some(20 + drawn as usize % 80));
    }
    world.lock().unwrap().is_calm = true;
    live(&world, None);
    world.lock().unwrap().check();
}

#[test]
fn whatever_fails_each_row_is_published_in_order_and_has_one_verdict_or_is_given_back() {
    for seed in 0..RUNS {
        assert!(catch_unwind(|| play(seed)).is_ok(), "seed {seed}");
    }
}
