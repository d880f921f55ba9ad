//! Ends a service when its starter is gone, whatever ended the starter.
//!
//! A tiny shell reads a pipe whose only write end is held here. The kernel closes that end when
//! this process ends, `kill -9` included, and the shell then kills the service's process group and
//! removes its folder. The write end is close-on-exec, so no sibling keeps it open. The shell has
//! its own process group and ignores the terminal's signals: Ctrl-C must not end it before its
//! work. Invariant: the shell knows the process group before the service runs (see `process`).

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{HarnessError, Result};

/// $1 = folder, $2 = signal to try first, $3 = command to run last. Each line read is the process
/// group to end; 0 means none. A frozen group gets CONT so that it can act on the first signal.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
group=0
while read -r line; do group=$line; done
if [ "$group" -gt 1 ]; then
    kill -s "$2" -- "-$group"
    kill -s CONT -- "-$group"
    n=0
    while [ "$n" -lt 30 ] && kill -s 0 -- "-$group"; do sleep 0.1; n=$((n + 1)); done
    kill -s KILL -- "-$group"
fi
if [ -n "$3" ]; then eval "$3"; fi
n=0
until rm -rf -- "$1" || [ "$n" -ge 20 ]; do sleep 0.1; n=$((n + 1)); done
"#;

pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// Guards `folder`; `first` is the signal that ends the service most cleanly.
    pub(crate) fn new(folder: &Path, first: &str, last_command: &str) -> Result<Guard> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "walrelay-guard"])
            .arg(folder)
            .args([first, last_command])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(HarnessError::io("starting a guard"))?;
        Ok(Guard { shell })
    }

    /// From now on the guard ends this process group; 0 for none.
    pub(crate) fn watch(&mut self, group: u32) -> Result<()> {
        let pipe = self.shell.stdin.as_mut();
        let pipe = pipe.ok_or_else(|| HarnessError::Other("guard without pipe".into()))?;
        writeln!(pipe, "{group}").map_err(HarnessError::io("telling the guard"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // `wait` closes the pipe first; the shell then removes the folder and ends.
        if let Err(error) = self.shell.wait() {
            eprintln!("waiting for a guard: {error}");
        }
    }
}
