//! Plan of one schedule: both sides draw the same from its number.

use std::collections::BTreeMap;
use std::io;

use walrelay_harness::kit::Rng;

use crate::sinks::amqp::{Peer, Published};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Routed,
    /// Sent back with this code; then acked, as RabbitMQ does it.
    Returned(u16),
    /// Sent back, then nacked: odd, and allowed.
    ReturnedAndNacked,
    Nacked,
}

impl Fate {
    fn return_code(self) -> Option<u16> {
        match self {
            Fate::Returned(code) => Some(code),
            Fate::ReturnedAndNacked => Some(312),
            Fate::Routed | Fate::Nacked => None,
        }
    }

    fn is_nacked(self) -> bool {
        matches!(self, Fate::Nacked | Fate::ReturnedAndNacked)
    }

    /// The class of failure that the relay must be told; none for what was routed.
    pub(super) fn class(self) -> Option<&'static str> {
        match self {
            Fate::Routed => None,
            Fate::Returned(313) => Some("rabbitmq.no-consumers"),
            Fate::Returned(_) | Fate::ReturnedAndNacked => Some("rabbitmq.no-route"),
            Fate::Nacked => Some("rabbitmq.nack"),
        }
    }
}

/// A schedule: each round publishes what failed in the one before.
pub(super) struct Plan {
    pub(super) rounds: Vec<BTreeMap<usize, Fate>>,
    rng: Rng,
    /// How many of ten steps read another message, and how many send one back early.
    reads: u64,
    early_returns: u64,
}

impl Plan {
    pub(super) fn new(seed: u64, schedule: u64) -> Plan {
        let mut rng = Rng::fork(seed, schedule);
        let mut members: Vec<usize> = (0..usize::try_from(4 + rng.below(37)).unwrap()).collect();
        let mut rounds = Vec::new();
        for _ in 0..=rng.below(2) {
            // Nothing, little, half, much, all.
            let unroutable = [0.0, 0.1, 0.5, 0.9, 1.0][usize::try_from(rng.below(5)).unwrap()];
            let nacked = [0.0, 0.0, 0.1, 0.5][usize::try_from(rng.below(4)).unwrap()];
            let mut draw = || match (rng.chance(unroutable), rng.chance(nacked)) {
                (true, true) if rng.chance(0.2) => Fate::ReturnedAndNacked,
                (true, _) if rng.chance(0.1) => Fate::Returned(313),
                (true, _) => Fate::Returned(312),
                (false, true) => Fate::Nacked,
                (false, false) => Fate::Routed,
            };
            let round: BTreeMap<usize, Fate> =
                members.iter().map(|&member| (member, draw())).collect();
            members = round.iter().filter(|(_, f)| **f != Fate::Routed).map(|(m, _)| *m).collect();
            rounds.push(round);
            if members.is_empty() {
                break;
            }
        }
        let (reads, early_returns) = (1 + rng.below(8), rng.below(6));
        Plan { rounds, rng, reads, early_returns }
    }

    /// The broker's side. The only rule it keeps is the protocol's: a message is sent back before
    /// it is acked or nacked.
    pub(super) fn play(&mut self, schedule: u64, peer: &mut Peer) -> io::Result<()> {
        for round in std::mem::take(&mut self.rounds) {
            let mut to_come = round.len();
            let mut held = Held::default();
            while to_come > 0 || !held.0.is_empty() {
                // Everything was published before the first answer is awaited: reading cannot hang.
                if to_come > 0 && (held.0.is_empty() || self.rng.below(10) < self.reads) {
                    let published = peer.next()?;
                    let member = member(&published, schedule);
                    held.0.insert(published.tag, (published, round[&member], false));
                    to_come -= 1;
                    continue;
                }
                match self.rng.below(10) {
                    step if step < self.early_returns => held.send_one_back(&mut self.rng, peer),
                    6 | 7 => held.answer_one(&mut self.rng, peer),
                    8 => held.answer_many(&mut self.rng, peer, to_come == 0),
                    9 => peer.flush()?,
                    _ => {}
                }
            }
            peer.flush()?;
        }
        Ok(())
    }
}

pub(super) fn id(schedule: u64, member: usize) -> String {
    format!("{schedule}-{member}")
}

fn member(published: &Published, schedule: u64) -> usize {
    assert!(published.mandatory);
    let (of, member) = published.id().split_once('-').expect("an id of a schedule");
    assert_eq!(of, schedule.to_string(), "a message of another schedule");
    member.parse().unwrap()
}

/// Messages without an answer, by tag, with their fate and whether they were sent back.
#[derive(Default)]
struct Held(BTreeMap<u64, (Published, Fate, bool)>);

impl Held {
    fn any(&self, rng: &mut Rng) -> u64 {
        let at = usize::try_from(rng.below(self.0.len() as u64)).unwrap();
        *self.0.keys().nth(at).expect("something is held")
    }

    fn send_back(&mut self, tag: u64, peer: &mut Peer) {
        let (published, fate, sent_back) = self.0.get_mut(&tag).expect("a tag that is held");
        if let Some(code) = fate.return_code()
            && !std::mem::replace(sent_back, true)
        {
            peer.send_back(published, code);
        }
    }

    fn send_one_back(&mut self, rng: &mut Rng, peer: &mut Peer) {
        let tag = self.any(rng);
        self.send_back(tag, peer);
    }

    fn answer(&mut self, tag: u64, peer: &mut Peer) {
        self.send_back(tag, peer);
        let (_, fate, _) = self.0.remove(&tag).expect("a tag that is held");
        if fate.is_nacked() { peer.nack(tag, false) } else { peer.ack(tag, false) }
    }

    fn answer_one(&mut self, rng: &mut Rng, peer: &mut Peer) {
        let tag = self.any(rng);
        self.answer(tag, peer);
    }

    /// One answer for all up to a tag; who deserves another is answered singly before. Returns go
    /// out in any order.
    fn answer_many(&mut self, rng: &mut Rng, peer: &mut Peer, all_came: bool) {
        let last = self.any(rng);
        let nack = self.0[&last].1.is_nacked();
        let mut covered: Vec<u64> = self.0.range(..=last).map(|(tag, _)| *tag).collect();
        for at in (1..covered.len()).rev() {
            covered.swap(at, usize::try_from(rng.below(at as u64 + 1)).unwrap());
        }
        for &tag in &covered {
            if self.0[&tag].1.is_nacked() == nack {
                self.send_back(tag, peer);
            } else {
                self.answer(tag, peer);
            }
        }
        let all = all_came && self.0.keys().next_back() == Some(&last);
        // Tag 0 means everything that is outstanding, in the client's eyes: it cannot be said while
        // messages are on their way.
        let tag = if all && rng.chance(0.3) { 0 } else { last };
        if nack {
            peer.nack(tag, true)
        } else {
            peer.ack(tag, true)
        }
        self.0.retain(|tag, _| *tag > last);
    }
}
