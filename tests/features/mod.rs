//! What is published, command by command and column by column.

mod columns;
mod commands;
mod formats;
mod messages;
mod rabbitmq;
mod record;
mod tables;
mod transactions;
mod values;
