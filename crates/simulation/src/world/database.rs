//! Work of applications and walsenders in a round.

use super::*;

impl World {
    pub(super) fn commit(&mut self) {
        if !locked(&self.postgres).runs {
            return;
        }
        let changes = match below(&mut self.random, 64) {
            0 if self.rates.huge > 3 => 40 + below(&mut self.random, 60),
            0..40 => 1,
            _ => 1 + below(&mut self.random, 6),
        };
        self.commit_of(changes, true);
    }

    /// Commits a transaction with so many changes: some of another table than the outbox, or all.
    pub(super) fn commit_of(&mut self, changes: u64, has_events: bool) {
        let now = self.clock.unix_us();
        if !locked(&self.postgres).runs {
            return;
        }
        let mut all = Vec::with_capacity(changes as usize);
        for _ in 0..changes {
            if !has_events || self.chance(20) {
                all.push(Change::Other);
                continue;
            }
            all.push(Change::Event(self.new_event()));
        }
        locked(&self.postgres).commit(all, now);
        self.tell_committed();
    }

    fn new_event(&mut self) -> Event {
        let number = self.report.events + 1;
        self.report.events = number;
        let key = below(&mut self.random, KEYS.len() as u64 + 1) as u8;
        let key = Some(key).filter(|key| usize::from(*key) < KEYS.len());
        self.report.keys.push(key);
        Event {
            number,
            key,
            topic: below(&mut self.random, TOPICS.len() as u64) as u8,
            poison: self.chance(self.rates.poison),
        }
    }

    pub(super) fn tell_committed(&mut self) {
        if !self.tells {
            return;
        }
        let Some(transaction) = locked(&self.postgres).wal.last().cloned() else { return };
        let (xid, lsn) = (transaction.xid, transaction.commit_lsn);
        for event in transaction.events() {
            let key = event.key.map_or("no key".to_owned(), |key| format!("k{key}"));
            let poison = if event.poison { ", refused for ever" } else { "" };
            let (number, topic) = (event.number, TOPICS[usize::from(event.topic)]);
            self.tell_of(About::Event(number), || {
                format!("committed: e{number} ({key}, {topic}{poison}) by {xid} at {lsn:x}")
            });
        }
    }

    pub(super) fn walsenders(&mut self) -> Result<(), Violation> {
        let now_us = self.clock.us();
        let drawn = below(&mut self.random, 256);
        let shared = Arc::clone(&self.postgres);
        let mut postgres = locked(&shared);
        match drawn {
            0..4 => postgres.checkpoint(),
            4..16 => postgres.sync_standby(),
            16..24 if postgres.runs && !self.script.is_still() => postgres.write_other(8 * drawn),
            _ => {}
        }
        for index in (0..postgres.walsenders.len()).rev() {
            self.draw_for(WALSENDER + index as u64);
            if self.chance(self.rates.send) {
                let messages = 1 + below(&mut self.random, 24) as usize;
                postgres.send(index, messages, now_us);
            }
            if self.chance(self.rates.deliver) {
                let bytes = 1 + below(&mut self.random, 4096) as usize;
                let sender = &postgres.walsenders[index];
                if sender.connection.deliver(bytes)
                    && let Some(process) = &mut self.processes[sender.relay]
                {
                    process.wakes_us = 0;
                }
            }
            self.serve_walsender(&mut postgres, index, now_us)?;
        }
        Ok(())
    }

    /// Takes status updates, sends keepalives, and ends a walsender whose relay is gone.
    fn serve_walsender(
        &mut self,
        postgres: &mut Postgres,
        index: usize,
        now_us: u64,
    ) -> Result<(), Violation> {
        if self.tells {
            let lines: Vec<String> = {
                let sender = &postgres.walsenders[index];
                let state = sender.connection.state();
                let updates = state.updates.iter();
                updates.map(|(lsn, _)| format!("relay {} reports {lsn:x}", sender.relay)).collect()
            };
            lines.into_iter().for_each(|line| self.tell_of(About::Detail, || line));
        }
        let sender = &postgres.walsenders[index];
        let pid = sender.pid;
        let before = postgres.slot.as_ref().map_or(0, |slot| slot.confirmed);
        let mut updates = Vec::new();
        let (mut ends, mut wants_keepalive) = (false, false);
        {
            let mut state = sender.connection.state();
            if !state.up_is_cut {
                updates.extend(state.updates.drain(..));
                state.updates_arrived += updates.len() as u64;
                ends = state.copy_done || state.closed_by_relay;
                if state.copy_done {
                    state.closed_by_server = true;
                }
            }
        }
        for (lsn, reply) in updates {
            postgres.walsenders[index].heard_us = now_us;
            wants_keepalive |= reply;
            for number in [now_us, pid as u64, lsn] {
                self.digest.number(number);
            }
            postgres.confirmed(pid, lsn);
        }
        let sender = &mut postgres.walsenders[index];
        let silent = now_us.saturating_sub(sender.heard_us);
        if silent > WAL_SENDER_TIMEOUT_US {
            sender.connection.time_out();
            postgres.unheard.insert(sender.relay);
            ends = true;
        }
        let asks = silent > WAL_SENDER_TIMEOUT_US / 2;
        let is_due = now_us.saturating_sub(sender.kept_us) > 1_000_000;
        if !ends && (wants_keepalive || is_due || below(&mut self.random, 32) == 0) {
            postgres.keep_alive(index, asks, now_us);
        }
        if ends {
            postgres.end_walsender(pid);
        }
        let after = postgres.slot.as_ref().map_or(0, |slot| slot.confirmed);
        let outcome = self.checker.confirmed(postgres, &locked(&self.broker));
        if after > before {
            self.tell_of(About::LastOf, || format!("the slot is confirmed up to {after:x}"));
        }
        outcome
    }
}
