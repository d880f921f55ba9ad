//! A new database cluster: a copy of one that `initdb` has made, with a system identifier of its own.
//!
//! `initdb` takes more than a second of CPU time, and a run starts dozens of clusters.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Mutex;

use crate::install::PostgresInstall;
use crate::kit::{Rng, lock, now_us};
use crate::process::{self, Kind, Process, without_pg_variables};
use crate::{HarnessError, Result};

/// `xlp_sysid` in the long header that begins a WAL segment.
const SYSTEM_ID_IN_WAL: u64 = 24;
/// `sizeof(ControlFileData)` is less in every version.
const CONTROL_BYTES_MAX: usize = 512;

/// Makes a cluster in the folder `data` of `process`, which runs where this one is installed.
pub(crate) fn make(process: &Process, install: &PostgresInstall, data: &Path) -> Result<()> {
    static MADE: Mutex<BTreeMap<PostgresInstall, Process>> = Mutex::new(BTreeMap::new());
    let mut made = lock(&MADE);
    if !made.contains_key(install) {
        let kind = Kind { name: "PostgreSQL's files", short: "pgnew", end: "KILL" };
        let process = Process::new(kind, process.place().clone(), "")?;
        let mut initdb = process.command(install.bin.join("initdb"));
        initdb.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]);
        initdb.arg("-D").arg(process.folder().join("data"));
        process::run(without_pg_variables(&mut initdb))?;
        made.insert(install.clone(), process);
    }
    let original = made[install].folder().join("data");
    process::run(process.command("cp").arg("-a").arg(original).arg(data))?;
    drop(made);
    set_system_id(data, Rng::new(now_us().unsigned_abs()).next_u64() >> 1)
}

fn set_system_id(data: &Path, id: u64) -> Result<()> {
    let control = data.join("global/pg_control");
    let failed = || HarnessError::io(format!("changing {}", data.display()));
    let mut bytes = fs::read(&control).map_err(failed())?;
    let end = checksum_place(&bytes)
        .ok_or_else(|| HarnessError::Other(format!("{} holds no checksum", control.display())))?;
    bytes[..8].copy_from_slice(&id.to_ne_bytes());
    let checksum = crc32c(&bytes[..end]);
    bytes[end..end + 4].copy_from_slice(&checksum.to_ne_bytes());
    fs::write(&control, bytes).map_err(failed())?;
    for entry in fs::read_dir(data.join("pg_wal")).map_err(failed())?.flatten() {
        if entry.path().is_file() {
            let segment = File::options().write(true).open(entry.path()).map_err(failed())?;
            segment.write_all_at(&id.to_ne_bytes(), SYSTEM_ID_IN_WAL).map_err(failed())?;
        }
    }
    Ok(())
}

/// The checksum follows the fields that it covers; where that is depends on the version.
fn checksum_place(control: &[u8]) -> Option<usize> {
    (8..CONTROL_BYTES_MAX)
        .step_by(4)
        .find(|end| control.get(*end..end + 4) == Some(&crc32c(&control[..*end]).to_ne_bytes()))
}

fn crc32c(bytes: &[u8]) -> u32 {
    let shift = |sum: u32| (sum >> 1) ^ (0x82F6_3B78 & (sum & 1).wrapping_neg());
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| shift(sum)))
}
