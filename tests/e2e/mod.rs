//! The relay as a process, between a real PostgreSQL and a real Kafka that break on purpose.

mod crash;
mod failover;
mod idle;
mod kill;
mod memory;
mod other_broker;
mod pinned;
mod postgres_stop;
mod publication;
mod read_back;
mod repeats;
mod silence;
mod silent_peer;
mod slot;
mod source_faults;
mod standby;
mod state_file;
mod states;
mod stop;
mod stops;
mod takeover;
mod tour;
mod unread_log;
mod wal_senders;
