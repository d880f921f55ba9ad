//! Tests with mistakes of a user: each is reported with its code, its message and its remedy, and
//! no event moves.

mod canary;
mod config;
mod event;
mod kafka_rights;
mod overloads;
mod publication;
mod rabbitmq;
mod rabbitmq_tls;
mod running;
mod server;
mod sink;
mod slot;
mod startup;
