//! Where the programs of a service run, and as whom: on this machine, or in a folder that holds a
//! Debian of its own, for versions that this machine's Debian does not have.
//!
//! A program enters such a folder with `chroot`, in a mount namespace of its own: `/proc`, `/dev`, `/tmp`
//! and the run folder are mounted there for it and its children alone, and the kernel removes the
//! mounts when the last of them ends. Every step becomes the next by `exec`, so the process id stays,
//! and the run folder has the same path inside and outside.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::install::{self, User};
use crate::{HarnessError, Result};

/// The ids of `nobody`, the one unprivileged user that every Debian has.
const NOBODY: User = User { uid: 65_534, gid: 65_534 };

/// $1 = root, $2 = run folder, $3 = user and group, $4 = working folder, then program and arguments.
const ENTER: &str = r#"
set -e
root=$1 run=$2 user=$3 folder=$4
shift 4
for shared in /proc /dev /tmp "$run"; do
    mkdir -p "$root$shared"
    mount --rbind "$shared" "$root$shared"
done
exec chroot --userspec="$user" "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"#;

/// Whether this machine lets us start a program in a folder with a Debian of its own: many containers
/// forbid it to root as well. `scripts/setup` asks the same. The machine is asked once.
pub(crate) fn can_enter() -> bool {
    static ANSWER: LazyLock<bool> = LazyLock::new(|| {
        let asked = Command::new("unshare").args(["--mount", "true"]).output();
        install::own_uid().is_ok_and(|uid| uid == 0) && asked.is_ok_and(|it| it.status.success())
    });
    *ANSWER
}

#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// A folder with a Debian of its own.
    root: Option<PathBuf>,
    /// None: nobody but ourselves.
    pub(crate) user: Option<User>,
}

impl Place {
    /// On this machine; when we are root, as the first of `users` that exists.
    pub(crate) fn here(users: &[&str]) -> Result<Place> {
        Ok(Place { root: None, user: install::service_user(users)? })
    }

    /// In `root`, or on this machine when there is none.
    pub(crate) fn of(root: Option<&Path>, users: &[&str]) -> Result<Place> {
        let Some(root) = root else { return Place::here(users) };
        if install::own_uid()? != 0 {
            return Err(HarnessError::Other(format!(
                "what is in {} can be started by root alone, with unshare and chroot",
                root.display()
            )));
        }
        Ok(Place { root: Some(root.to_owned()), user: Some(NOBODY) })
    }

    /// A program at its path in the place, for a service whose folder this is.
    pub(crate) fn command(&self, program: &Path, folder: &Path) -> Command {
        let mut command = match (&self.root, self.user) {
            (Some(root), Some(User { uid, gid })) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "/bin/sh", "-c", ENTER, "enter"]).arg(root);
                command.arg(folder.parent().unwrap_or(folder)).arg(format!("{uid}:{gid}"));
                command.arg(folder).arg(program);
                command
            }
            (_, user) => {
                let mut command = Command::new(program);
                if let Some(User { uid, gid }) = user {
                    // Also drops root's supplementary groups.
                    command.uid(uid).gid(gid);
                }
                command
            }
        };
        command.current_dir(folder);
        command
    }

    /// Shell text that runs a program of the place which needs neither the run folder nor `/proc`.
    pub(crate) fn shell(&self, command: &str) -> String {
        self.root.as_ref().map_or_else(
            || command.to_owned(),
            |root| format!("chroot '{}' {command}", root.display()),
        )
    }
}
