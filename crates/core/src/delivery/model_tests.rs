//! The pure core against a naive model: a Postgres that forgets and repeats, a broker that confirms
//! in any order, fails and is rebuilt, a link that breaks anywhere.

use crate::testing::volume;
use proptest::prelude::*;

use super::flight::{Flight, FlightState};
use super::flights::Flights;
use super::history::CommitId;
use super::transactions::Transactions;
use crate::base::event::Sequence;
use crate::base::lsn::Lsn;
use crate::source::progress::Progress;

/// A step that may happen next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The next wire message is received.
    Receive,
    /// A keepalive arrives here, whatever is open.
    Keepalive,
    /// One in-flight event, picked by this number, is confirmed.
    Confirm(usize),
    /// Status goes to Postgres.
    Report,
    /// The connection breaks; Postgres remembers what was reported this many reports ago.
    Disconnect(usize),
    /// The sink lost track (nack of a batch, fatal producer): everything unsettled goes out anew.
    Rebuild,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Receive),
        2 => Just(Step::Keepalive),
        6 => any::<usize>().prop_map(Step::Confirm),
        2 => Just(Step::Report),
        1 => (0usize..3).prop_map(Step::Disconnect),
        1 => Just(Step::Rebuild),
    ]
}

/// Transaction `n` has `rows[n]` events and its commit record spans `[100n + 50, 100n + 60)`.
struct World {
    rows: Vec<u64>,
    // Postgres.
    forgotten_below: Vec<Lsn>,
    sending: usize,
    row: Option<u64>,
    // The broker: which event each in-flight number is, and what it holds for good, in order.
    in_flight: Vec<(Sequence, (usize, u64))>,
    published: Vec<(usize, u64)>,
    confirmed: std::collections::BTreeSet<(usize, u64)>,
    rebuilds: usize,
    // The core under test.
    flights: Flights,
    transactions: Transactions,
    progress: Progress,
}

fn commit_lsn(transaction: usize) -> Lsn {
    Lsn::from_wire(transaction as u64 * 100 + 50)
}

fn end_lsn(transaction: usize) -> Lsn {
    Lsn::from_wire(transaction as u64 * 100 + 60)
}

impl World {
    fn new(rows: Vec<u64>) -> World {
        World {
            rows,
            forgotten_below: vec![Lsn::ZERO],
            sending: 0,
            row: None,
            in_flight: Vec::new(),
            published: Vec::new(),
            confirmed: std::collections::BTreeSet::new(),
            rebuilds: 0,
            flights: Flights::new(6, 1 << 20),
            transactions: Transactions::default(),
            progress: Progress::default(),
        }
    }

    fn receive(&mut self) {
        let transaction = self.sending;
        let Some(&rows) = self.rows.get(transaction) else { return };
        match self.row {
            None => {
                self.progress.on_wal(commit_lsn(transaction));
                let xid = transaction as u32;
                let id =
                    CommitId { commit_lsn: commit_lsn(transaction), xid, ..CommitId::default() };
                self.transactions.begin(id);
                self.row = Some(0);
            }
            Some(row) if row < rows => {
                self.transactions.check().expect("it is what it was before");
                if !self.transactions.is_repeat() {
                    if !self.flights.has_room() {
                        return;
                    }
                    if self.flights.earlier().is_some_and(|it| it.state.is_settled()) {
                        assert!(
                            self.confirmed.contains(&(transaction, row)),
                            "passed over unconfirmed"
                        );
                        self.flights.pass_over(self.transactions.next().unwrap());
                        self.transactions.advance();
                        self.row = Some(row + 1);
                        return;
                    }
                    assert!(!self.confirmed.contains(&(transaction, row)), "published once more");
                    let nothing = Flight::settled(self.transactions.next().unwrap());
                    let sent = Flight { bytes: 1, state: FlightState::Sent, ..nothing };
                    let sequence = self.flights.admit(sent);
                    self.in_flight.push((sequence, (transaction, row)));
                    self.published.push((transaction, row));
                }
                self.transactions.advance();
                self.row = Some(row + 1);
            }
            Some(_) => {
                self.progress.on_wal(end_lsn(transaction));
                self.progress.on_committed(end_lsn(transaction));
                self.transactions.commit(end_lsn(transaction), self.flights.next());
                self.sending += 1;
                self.row = None;
            }
        }
    }

    /// Everything before the next unsent transaction's commit record has been sent.
    fn keepalive(&mut self) {
        let sent = self.sending.checked_sub(1).map_or(Lsn::from_wire(1), end_lsn);
        self.transactions.check_sent(sent).expect("all before it was sent");
        self.progress.on_keepalive(sent);
    }

    fn confirm(&mut self, pick: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let (sequence, event) = self.in_flight.swap_remove(pick % self.in_flight.len());
        self.flights.settle(sequence).expect("it is in flight");
        self.confirmed.insert(event);
    }

    fn report(&mut self) {
        self.progress.on_settled(self.transactions.settle(self.flights.settled_below()));
        let lsn = self.progress.reportable(self.transactions.is_clear());
        let before = self.forgotten_below.last().copied().unwrap_or_default();
        assert!(lsn >= before, "I1: never down");
        self.progress.on_reported(lsn);
        self.forgotten_below.push(lsn);
        for transaction in (0..self.rows.len()).filter(|n| commit_lsn(*n) < lsn) {
            for row in 0..self.rows[transaction] {
                assert!(
                    self.confirmed.contains(&(transaction, row)),
                    "{lsn} reported, event {row} of transaction {transaction} unconfirmed"
                );
            }
        }
    }

    fn disconnect(&mut self, lost_reports: usize) {
        self.transactions.interrupt();
        let kept = self.forgotten_below.len().saturating_sub(lost_reports).max(1);
        self.forgotten_below.truncate(kept);
        let remembered = self.forgotten_below[kept - 1];
        self.transactions.begin_session(remembered);
        self.progress.on_connected(remembered);
        self.sending =
            (0..self.rows.len()).find(|n| commit_lsn(*n) >= remembered).unwrap_or(self.rows.len());
        self.row = None;
    }

    fn rebuild(&mut self) {
        self.report();
        let from = self.flights.rewind().from;
        self.progress.on_rewound();
        self.in_flight.clear();
        self.disconnect(0);
        self.transactions.rewind(from);
        self.rebuilds += usize::from(from.is_some());
    }

    fn finish(&mut self) {
        for _ in 0..10_000 {
            self.receive();
            self.confirm(0);
        }
        self.keepalive();
        self.report();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: volume(1_000, 4_000), ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_nothing_runs_ahead_and_reconnects_repeat_nothing(
        rows in prop::collection::vec(0u64..9, 1..12),
        steps in prop::collection::vec(step(), 0..300),
    ) {
        // GIVEN a log of transactions, WHEN anything happens in any order
        let total: u64 = rows.iter().sum();
        let mut world = World::new(rows);
        for step in steps {
            match step {
                Step::Receive => world.receive(),
                Step::Keepalive => world.keepalive(),
                Step::Confirm(pick) => world.confirm(pick),
                Step::Report => world.report(),
                Step::Disconnect(lost) => world.disconnect(lost),
                Step::Rebuild => world.rebuild(),
            }
        }
        world.finish();
        // THEN every event is confirmed, the first deliveries are in commit order,
        let mut firsts = Vec::new();
        for event in &world.published {
            if !firsts.contains(event) {
                firsts.push(*event);
            }
        }
        prop_assert!(firsts.is_sorted(), "I6: {firsts:?}");
        prop_assert_eq!(world.confirmed.len() as u64, total);
        // without a rebuilt sink nothing was published twice,
        if world.rebuilds == 0 {
            prop_assert_eq!(world.published.len() as u64, total);
        }
        // and Postgres may forget everything.
        let last = world.rows.len() - 1;
        prop_assert!(world.progress.reported() >= end_lsn(last));
    }
}
