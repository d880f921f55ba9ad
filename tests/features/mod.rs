//! Tests of the published records, command by command and column by column.

mod channel_limit;
mod column_lists;
mod columns;
mod commands;
mod file;
mod formats;
mod libraries;
mod messages;
mod rabbitmq;
mod rabbitmq_setup;
mod record;
mod reload;
mod rotated_login;
mod service_manager;
mod shown;
mod status;
mod tables;
mod transactions;
mod values;
