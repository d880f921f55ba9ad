//! Environment variables and `--set` as the upper layers.
//!
//! An unknown `WALRELAY_` variable is a problem like an unknown key: a misspelt override that is
//! quietly ignored is found in production. A complaint names the variable or key, never its value.

use std::collections::BTreeMap;

use toml::de::DeValue;

use crate::base::error::{Exit, Fault};

use super::keys::{self, Key};
use super::kind::{Kind, Raw};
use super::layers::{Layers, Origin, Problem, raw_of};
use super::path::Path;
use super::tree::{self, Node};
use super::units;

/// Variables of the relay that are no configuration keys.
const OTHER_VARIABLES: &[&str] = &["WALRELAY_CONFIG", "WALRELAY_LOG"];
const DEVELOPER_PREFIX: &str = "WALRELAY_DEV_";

/// Lays every `WALRELAY_` variable over what is there.
pub(crate) fn environment(layers: &mut Layers, variables: &BTreeMap<String, String>) {
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix("WALRELAY_") else { continue };
        if OTHER_VARIABLES.contains(&name.as_str()) || name.starts_with(DEVELOPER_PREFIX) {
            continue;
        }
        let steps: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
        let origin = Origin::Variable(name.clone());
        match find(&steps, Spelling::Variable) {
            Some(found) => assign(layers, found, value, &origin),
            None => layers.problems.push(unknown_variable(name, origin)),
        }
    }
}

/// Lays `KEY=VALUE` flags over what is there; `flag` is how each is called on the command line.
pub(crate) fn flags(layers: &mut Layers, settings: &[String], shorthands: &[(&str, &str, &str)]) {
    for (position, setting) in settings.iter().enumerate() {
        let Some((key, value)) = setting.split_once('=') else {
            let origin = Origin::Flag { position, name: "--set".to_owned() };
            let what = "expected KEY=VALUE, found no \"=\"";
            let mend = "walrelay --set source.slot=walrelay ...";
            layers.problems.push(Problem::at(&origin, "--set", "config.bad-value", what, mend));
            continue;
        };
        let origin = Origin::Flag { position, name: format!("--set {key}") };
        match find(&split_key(key.trim()), Spelling::Key) {
            Some(found) => assign(layers, found, value.trim(), &origin),
            None => layers.problems.push(unknown_key(key.trim(), origin)),
        }
    }
    for (offset, (flag, key, value)) in shorthands.iter().enumerate() {
        let origin = Origin::Flag { position: settings.len() + offset, name: (*flag).to_owned() };
        if let Some(found) = find(&split_key(key), Spelling::Key) {
            assign(layers, found, value, &origin);
        }
    }
}

/// How chosen names are spelt: a variable has neither dots nor small letters.
#[derive(Clone, Copy)]
enum Spelling {
    Variable,
    Key,
}

struct Found {
    node: &'static Node,
    /// The key of a single entry of a map.
    entry: Option<&'static Key>,
    path: Path,
}

fn find(steps: &[String], spelling: Spelling) -> Option<Found> {
    let mut node = tree::root();
    let mut path = Path::default();
    for (position, step) in steps.iter().enumerate() {
        match node {
            Node::Table(_) => {
                node = node.child(step)?;
                path = path.child(step);
            }
            Node::Array(element) => {
                node = element;
                path = path.index(step.parse().ok().filter(|index| *index < 1000)?);
            }
            Node::Map(key) => {
                let path = path.child(&chosen_name(key, &steps[position..], spelling)?);
                return Some(Found { node, entry: Some(key), path });
            }
            Node::Leaf(_) => return None,
        }
    }
    if path.is_root() { None } else { Some(Found { node, entry: None, path }) }
}

fn chosen_name(key: &Key, steps: &[String], spelling: Spelling) -> Option<String> {
    let name = match (spelling, key.kind) {
        // Client properties are spelt with dots, headers with underscores.
        (Spelling::Variable, Kind::Secret) => steps.join(".").replace('_', "."),
        (Spelling::Variable, _) => steps.join("__"),
        (Spelling::Key, _) => steps.join("."),
    };
    if name.is_empty() { None } else { Some(name) }
}

/// `a.b[0]."c.d"` as its names.
fn split_key(key: &str) -> Vec<String> {
    let mut steps = vec![String::new()];
    let mut quoted = false;
    for c in key.chars() {
        match c {
            '"' => quoted = !quoted,
            '.' | '[' if !quoted => steps.push(String::new()),
            ']' if !quoted => {}
            _ => steps.last_mut().into_iter().for_each(|step| step.push(c)),
        }
    }
    steps
}

fn assign(layers: &mut Layers, found: Found, value: &str, origin: &Origin) {
    let Found { node, entry, path } = found;
    match (entry, node) {
        (Some(key), _) | (None, Node::Leaf(key)) => {
            let raw = raw_word(key.kind, value);
            layers.set(path, key, raw, origin.clone());
        }
        (None, Node::Table(_) | Node::Array(_) | Node::Map(_)) => {
            let located = |_| origin.clone();
            match DeValue::parse(value) {
                Ok(parsed) => layers.value(node, path, parsed.get_ref(), origin.clone(), &located),
                Err(_) => {
                    let mend =
                        "write TOML: { name = \"value\" } for a section, [ ... ] for an array";
                    layers.bad(&path, origin, "a section needs a TOML table or array", mend);
                }
            }
        }
    }
}

/// A word, unless it is TOML for a list or for a reference to a secret.
fn raw_word(kind: Kind, value: &str) -> Raw {
    let toml = match kind {
        Kind::Secret | Kind::Url => value.starts_with('{'),
        Kind::Strings(_) => value.starts_with('['),
        _ => false,
    };
    let parsed = toml.then(|| DeValue::parse(value).ok()).flatten();
    match parsed.and_then(|parsed| raw_of(parsed.get_ref()).ok()) {
        Some(raw) => raw,
        None => Raw::Word(value.to_owned()),
    }
}

fn unknown_variable(name: &str, origin: Origin) -> Problem {
    let known: Vec<String> = keys::all().iter().map(Key::variable).collect();
    let all = known.iter().map(String::as_str).chain(OTHER_VARIABLES.iter().copied());
    // The common prefix would make everything look near: compare what follows it.
    let tail = |name: &str| name.trim_start_matches("WALRELAY_").replace("__", "_");
    let tails: Vec<(String, &str)> = all.map(|known| (tail(known), known)).collect();
    let near = units::nearest(&tail(name), tails.iter().map(|(tail, _)| tail.as_str()));
    let mend = match tails.iter().find(|(tail, _)| Some(tail.as_str()) == near) {
        Some((_, known)) => format!("did you mean {known}? or else: unset {name}"),
        None => format!("unset {name}"),
    };
    let what = format!("unknown variable {name}");
    let fault = Fault::new(Exit::Usage, "config.unknown-key", what, origin.place(), mend);
    Problem { origin, fault }
}

fn unknown_key(key: &str, origin: Origin) -> Problem {
    let paths = || keys::all().iter().map(|key| key.path.as_str());
    let same_name = || paths().find(|path| path.rsplit('.').next() == Some(key));
    let mend = match units::nearest(key, paths()).or_else(same_name) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "walrelay config schema".to_owned(),
    };
    let what = format!("unknown key `{key}`");
    let fault = Fault::new(Exit::Usage, "config.unknown-key", what, origin.place(), mend);
    Problem { origin, fault }
}
