//! Which tables of the stream are outboxes: what the catalog says, and for which transactions.
//!
//! The stream names a table by its object id and by the name that it had when the row was written.
//! Rows of a partition have its own name when they were written while `publish_via_partition_root`
//! was off, and rows of an outbox another name when they were written before a rename.

use serde::Deserialize;

/// Tables that the stream may describe.
#[derive(Debug, Default, Deserialize)]
pub struct Catalog {
    /// The outboxes and their partitions: object id, schema, name, place of the outbox in the
    /// settings.
    pub outboxes: Vec<(u32, String, String, usize)>,
    /// Object ids of all tables of the database, ascending.
    tables: Vec<u32>,
    /// An outbox is partitioned.
    pub has_partitions: bool,
    /// Every transaction before this one had ended when the catalog was read.
    oldest_running_xid: u32,
}

impl Catalog {
    #[cfg(any(test, feature = "testing"))]
    pub fn read_before(xid: u32, tables: Vec<u32>) -> Catalog {
        Catalog { oldest_running_xid: xid, tables, ..Catalog::default() }
    }

    /// Was it read after transaction `xid` had ended?
    pub fn is_after(&self, xid: u32) -> bool {
        // Transaction ids wrap around.
        (xid.wrapping_sub(self.oldest_running_xid) as i32) < 0
    }

    pub fn has_table(&self, oid: u32) -> bool {
        self.tables.binary_search(&oid).is_ok()
    }
}
