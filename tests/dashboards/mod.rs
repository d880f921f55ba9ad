//! Dashboards and alert rules, judged by the tools that will read them: a real Prometheus that
//! scrapes real relays, and promtool. Their form is checked by `tests/tidy/dashboards.rs`.

mod consumer;
mod live;
mod promql;
mod rules;

pub(crate) use live::Scraper;

use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
