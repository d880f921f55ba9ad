//! State files for tests, and processes that use them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use walrelay_core::relay::testing::BROKER;

use super::*;

/// A path of its own, gone with the value.
pub(super) struct OwnPath(pub(super) PathBuf);

impl OwnPath {
    pub(super) fn new() -> OwnPath {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("walrelay-test-{}-{serial}.state", std::process::id());
        OwnPath(std::env::temp_dir().join(name))
    }

    pub(super) fn open(&self) -> StateFile {
        let mut process = open(Some(&self.0), "slot").unwrap();
        process.marks.broker(BROKER);
        process
    }

    pub(super) fn refusal(&self) -> String {
        open(Some(&self.0), "slot").unwrap_err().to_string()
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}
