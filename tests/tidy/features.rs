//! The packages that each cargo feature of the relay compiles: a build with one sink has no package of another one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A feature, and packages that only builds with it have.
const OWN: &[(&[&str], &[&str])] = &[
    (&["kafka"], &["libz-sys", "openssl-sys", "rdkafka", "rdkafka-sys", "zstd-sys"]),
    (&["rabbitmq"], &["amq-protocol", "async-compat", "async-rs", "lapin", "walrelay-amqp"]),
    (&["compare"], &["maud"]),
    (&["allocator"], &["tikv-jemalloc-sys", "tikv-jemallocator"]),
];

/// Packages that may compile C. `ring` is the cryptography of rustls, and in every build.
const OF_C: &[&str] = &[
    "libz-sys",
    "openssl-src",
    "openssl-sys",
    "rdkafka-sys",
    "ring",
    "tikv-jemalloc-sys",
    "zstd-sys",
];

/// The builds of the table in docs/dependencies.md.
const BUILDS: &[&[&str]] = &[
    &["file"],
    &["kafka"],
    &["rabbitmq"],
    &["compare", "console", "file", "kafka", "otlp", "rabbitmq"],
    &["allocator", "compare", "console", "file", "kafka", "otlp", "portable", "rabbitmq"],
];

/// A build of the relay, and the names of the packages that are compiled for it.
pub(crate) struct Build {
    features: &'static [&'static str],
    packages: BTreeSet<String>,
    /// Packages whose build scripts can start a C compiler.
    with_c_compiler: BTreeSet<String>,
}

/// The builds of the table, as Cargo resolves them. Nothing is compiled.
pub(crate) fn builds(root: &Path) -> Vec<Build> {
    let build = |features: &&'static [&'static str]| Build {
        features,
        packages: tree(root, features, &["--edges", "normal"]),
        with_c_compiler: {
            let edges = ["--edges", "normal,build", "--invert", "cc", "--depth", "1"];
            let mut packages = tree(root, features, &edges);
            packages.retain(|package| name(package) != "cc");
            packages
        },
    };
    BUILDS.iter().map(build).collect()
}

fn tree(root: &Path, features: &[&str], more: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let fixed = "tree --quiet --locked --package walrelay --prefix none --format {p} \
        --target x86_64-unknown-linux-gnu --no-default-features --features";
    let mut command = Command::new(cargo);
    command.args(fixed.split_whitespace()).arg(features.join(",")).args(more).current_dir(root);
    let output = command.output().expect("cargo is what runs the tests");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    // Two versions of a package are two.
    let package = |line: &str| line.split(" (").next().unwrap_or_default().to_owned();
    String::from_utf8_lossy(&output.stdout).lines().map(package).collect()
}

/// The name in `serde v1.0.229`.
fn name(package: &str) -> &str {
    package.split(' ').next().unwrap_or_default()
}

/// Packages of a feature that the build does not have, missing packages of one that it has, and
/// packages that compile C and are in no list.
pub(crate) fn violations(build: &Build) -> Vec<String> {
    let title = build.features.join(",");
    let mut wrong = Vec::new();
    for (features, packages) in OWN {
        let wanted = features.iter().any(|feature| build.features.contains(feature));
        for package in *packages {
            let has = build.packages.iter().any(|it| name(it) == *package);
            match (wanted, has) {
                (true, false) => wrong.push(format!("--features {title} lacks {package}")),
                (false, true) => wrong.push(format!("--features {title} compiles {package}")),
                _ => {}
            }
        }
    }
    let strange = build.with_c_compiler.iter().filter(|package| !OF_C.contains(&name(package)));
    wrong.extend(strange.map(|package| format!("--features {title}: {package} may compile C")));
    wrong
}

/// Features that Cargo.toml and the program do not both have.
pub(crate) fn undeclared(manifest: &str, known: &[(&str, bool)]) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().unwrap();
    let declared = manifest["features"].as_table().unwrap().keys().map(String::as_str);
    let declared: BTreeSet<&str> = declared.filter(|name| *name != "default").collect();
    let known: BTreeSet<&str> = known.iter().map(|(name, _)| *name).collect();
    let differ = declared.symmetric_difference(&known);
    differ.map(|name| format!("feature {name}: Cargo.toml and src/features.rs differ")).collect()
}

/// The table of docs/dependencies.md.
pub(crate) fn table(builds: &[Build]) -> String {
    let mut table = "| Features | Packages | of which may compile C |\n|---|---|---|\n".to_owned();
    for Build { features, packages, .. } in builds {
        let of_c: Vec<String> = packages
            .iter()
            .filter(|package| OF_C.contains(&name(package)))
            .map(|package| format!("`{}`", name(package)))
            .collect();
        let (features, count) = (features.join("`, `"), packages.len());
        table += &format!("| `{features}` | {count} | {} |\n", of_c.join(", "));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(features: &'static [&'static str], packages: &[&str], with_c: &[&str]) -> Build {
        let names = |names: &[&str]| names.iter().map(|name| format!("{name} v1.0.0")).collect();
        Build { features, packages: names(packages), with_c_compiler: names(with_c) }
    }

    #[test]
    fn a_package_of_another_sink_is_caught() {
        let rabbitmq = ["amq-protocol", "async-compat", "async-rs", "lapin", "walrelay-amqp"];
        assert!(violations(&build(&["rabbitmq"], &rabbitmq, &["ring"])).is_empty());
        let found = violations(&build(&["rabbitmq"], &[&rabbitmq[..], &["rdkafka"]].concat(), &[]));
        assert_eq!(found, ["--features rabbitmq compiles rdkafka"]);
        let found = violations(&build(&["rabbitmq"], &rabbitmq[1..], &[]));
        assert_eq!(found, ["--features rabbitmq lacks amq-protocol"]);
        let found = violations(&build(&["file"], &[], &["ring", "aws-lc-sys"]));
        assert_eq!(found, ["--features file: aws-lc-sys v1.0.0 may compile C"]);
    }
}
