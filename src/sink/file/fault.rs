//! Faults of the file, and the answers of docs/errors.md.

use std::io::{Error, ErrorKind};
use std::path::Path;

use super::settings::FileSettings;
use crate::base::error::{Exit, Fault};
use crate::base::event::{Outbound, subject};
use crate::base::finding::Finding;
use crate::base::path::folder;
use crate::base::text::quoted;
use crate::sink::publish::{Disposition, ErrorRow, Failure};

pub(super) const TOO_LARGE: &str = "file.event-too-large";
const NOT_JSON: &str = "file.not-json";

pub(super) fn rows() -> Vec<ErrorRow> {
    let row = |code: &str, description: &str, class: &str, disposition| ErrorRow {
        code: code.to_owned(),
        description: description.to_owned(),
        class: class.to_owned(),
        disposition,
    };
    let every_error = "any error of open, flock, write or fdatasync: the disk is full, the folder is gone, permission is denied";
    vec![
        row("errno", every_error, "file.io-error", Disposition::Outage),
        row("size", "the event is larger than `event_bytes_max`", TOO_LARGE, Disposition::Terminal),
        row("json", "the event cannot be written as JSON", NOT_JSON, Disposition::Terminal),
    ]
}

pub(super) fn too_large(event: &Outbound<'_>, settings: &FileSettings) -> Failure {
    let (size, most) = (event.size_bytes(), settings.event_bytes_max);
    let reason = format!("the event has {size} bytes; sink.file.event_bytes_max is {most}");
    failure(event, TOO_LARGE, reason, "raise sink.file.event_bytes_max")
}

pub(super) fn not_json(event: &Outbound<'_>, error: &serde_json::Error) -> Failure {
    failure(event, NOT_JSON, error.to_string(), "report it: every event can be written as JSON")
}

fn failure(event: &Outbound<'_>, class: &str, reason: String, mend: &str) -> Failure {
    Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: event.key.map(Box::from),
        class: class.to_owned(),
        subject: subject(event.id, event.topic),
        reason,
        mend: mend.to_owned(),
    }
}

/// Why the file cannot be used, before the first event.
pub(super) fn unusable(path: &Path, error: &Error) -> Fault {
    let (file, folder) = (path.display(), folder(path).display());
    let mend = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => format!("mkdir -p {folder}"),
        ErrorKind::PermissionDenied => {
            format!("let this user read and write {file} and {folder}, or set sink.file.path")
        }
        ErrorKind::ReadOnlyFilesystem => {
            "mount the file system read-write, or set sink.file.path".to_owned()
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!("make room: df -h {folder}"),
        ErrorKind::ResourceBusy => {
            format!(
                "stop it, or set another sink.file.path; to find it: fuser {}",
                quoted(&file.to_string())
            )
        }
        _ => "set sink.file.path to a file that this user may write".to_owned(),
    };
    let what = format!("{file} cannot be used: {error}");
    let code = match error.kind() {
        ErrorKind::ResourceBusy => "sink.file-locked",
        _ => "sink.file-unusable",
    };
    Fault::new(Exit::Sink, code, what, format!("sink.file.path, {file}"), mend)
}

/// The relay that `check` is about may be the one that writes the file.
pub(super) fn locked(path: &Path) -> Finding {
    let file = path.display();
    let text = format!(
        "a relay writes {file} already; a second one needs another sink.file.path; to find it: fuser {}",
        quoted(&file.to_string())
    );
    Finding::warn("sink.file-locked", text)
}

/// The relay reads no file.
pub(super) fn not_read(dead_letters: &Path) -> Fault {
    let file = dead_letters.display();
    Fault::new(
        Exit::Usage,
        "dead-letter.in-a-file",
        format!("dead letters are lines of {file}, which walrelay writes and does not read"),
        "sink.kind",
        format!("jq . {file}; to publish an event again, insert it into the outbox again"),
    )
}
