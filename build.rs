//! Records the commit that `walrelay --version` prints. Development builds do not record it: they would be compiled
//! again after every commit. `WALRELAY_COMMIT` says which one it is where there is no repository, as in an image.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WALRELAY_COMMIT");
    let given = env::var("WALRELAY_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let found = || if is_release { head() } else { None };
    if let Some(commit) = given.or_else(found) {
        println!("cargo::rustc-env=WALRELAY_COMMIT={commit}");
    }
}

/// The commit of the repository around this file, with `-dirty` behind it where files differ.
fn head() -> Option<String> {
    // The repository may be somebody else's, around the sources of a release.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
