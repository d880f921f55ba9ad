//! What a user can get wrong: each is told with its code, its words and what mends it, and nothing
//! moves.

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
