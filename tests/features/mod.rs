//! What is published, command by command and column by column.

mod record;
