//! Polling: what CDC does, from a table alone.

mod bad_input;
mod failing;
mod fencing;
mod kill;
pub(crate) mod rows;
mod silent;
mod together;

use std::time::Duration;

use walrelay_harness::BrokerKind;
use walrelay_harness::relay::{RelayConfig, RelayProcess};

use crate::support::{Fixture, shared_postgres, start, until};

/// The columns that an outbox of the loads needs to be polled. Order comes from a column of its
/// own, because its ids are random.
const WORK_COLUMNS: &str = "
    alter table outbox add column position bigint generated always as identity,
        add column status text not null default 'pending',
        add column retry_count integer not null default 0,
        add column next_retry_at timestamptz, add column locked_at timestamptz,
        add column locked_by text, add column failure_reason text, add column failed_at timestamptz;
    create index on outbox (position) where status = 'pending';
    create index on outbox (locked_by) where status = 'in_progress';
    create index on outbox (next_retry_at) where status = 'pending' and next_retry_at is not null";

/// Lines of `[source]` and the sections behind it, up to `[source.polling]`.
const POLLING: &str = "
mode = \"polling\"
[source.polling.columns]
order = \"position\"
[source.polling]
";

/// A site whose table is polled; its slot is dropped, or the table would be the slot's.
pub(crate) fn polled_site(site: Fixture) -> Fixture {
    site.execute(WORK_COLUMNS);
    site.execute(&format!("select pg_drop_replication_slot('{}')", site.name));
    site
}

/// The same on the shared Postgres and RabbitMQ.
fn polled_to_rabbitmq(name: &str) -> Fixture {
    polled_site(Fixture::new(shared_postgres(), BrokerKind::RabbitMq, name))
}

/// The configuration of a site, with more lines of `[source.polling]`.
pub(crate) fn config(site: &Fixture, polling: &str) -> RelayConfig {
    let source_extra = format!("{POLLING}{polling}\n");
    RelayConfig { source_extra, key: Some("${aggregateid}".into()), ..site.config() }
}

/// So many processes that poll a table, each with a state file of its own; they need not be ready.
fn processes(site: &Fixture, config: &RelayConfig, count: usize) -> Vec<RelayProcess> {
    let start_one = |number: usize| {
        let name = format!("{}_{number}", site.name);
        let extra = format!("[delivery]\nstate_file = \"{name}.crash\"\n");
        start(RelayConfig { extra, ..config.clone() }, &name)
    };
    (0..count).map(start_one).collect()
}

/// Rows by status, as `status count` in order.
fn statuses(site: &Fixture) -> String {
    site.value(
        "select coalesce(string_agg(status || ' ' || n, ', ' order by status), '')
         from (select status, count(*) n from outbox group by 1) s",
    )
}

/// Waits until no row is pending or claimed.
#[track_caller]
fn wait_settled(site: &Fixture, limit: Duration) {
    until(&format!("{}: every row has its verdict, {}", site.name, statuses(site)), limit, || {
        let left =
            site.value("select count(*) from outbox where status in ('pending', 'in_progress')");
        (left == "0").then_some(())
    });
}
