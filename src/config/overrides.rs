//! Environment variables and `--set` as the upper layers.
//!
//! An unknown `WALRELAY_` variable is a problem like an unknown key: a misspelt override that is
//! quietly ignored is found in production. A complaint names the variable or key, never its value.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::file::{lay, raw_of};
use super::layers::{Layers, Origin, Problem};
use super::path::Path;
use super::sections::{KnownKey, keys, root};
use crate::base::settings::kind::{RawValue, ValueKind};
use crate::base::settings::{KeyRow, Shape};
use crate::base::text::nearest;

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
            None => layers.problems.push(unknown_variable(name, &origin)),
        }
    }
}

/// Lays `--set KEY=VALUE` flags over what is there.
pub(crate) fn flags(layers: &mut Layers, settings: &[String]) {
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
            None => layers.problems.push(unknown_key(key.trim(), &origin)),
        }
    }
}

/// Lays the value of a flag that is short for one key.
pub(crate) fn shorthand(layers: &mut Layers, flag: &str, path: Path, value: &str) {
    let row = keys().iter().find(|key| key.path() == path.to_string()).map(|key| key.row);
    let origin = Origin::Flag { position: usize::MAX, name: flag.to_owned() };
    if let Some(row) = row {
        layers.set(path, row, RawValue::Word(value.to_owned()), &origin);
    }
}

/// How chosen names are spelt: a variable has neither dots nor small letters.
#[derive(Clone, Copy)]
enum Spelling {
    Variable,
    Key,
}

/// What a variable or flag sets.
enum OverrideTarget {
    Value(KeyRow),
    Table(&'static Shape),
}

fn find(steps: &[String], spelling: Spelling) -> Option<(OverrideTarget, Path)> {
    let mut shape = root();
    let mut path = Path::default();
    for (position, step) in steps.iter().enumerate() {
        match shape {
            Shape::Section(..) => {
                shape = shape.child(step)?;
                path = path.child(step);
            }
            Shape::Sections(element) => {
                shape = element;
                path = path.index(step.parse().ok().filter(|index| *index < 1000)?);
            }
            Shape::Map(row) => {
                let path = path.child(&chosen_name(row, &steps[position..], spelling)?);
                return Some((OverrideTarget::Value(*row), path));
            }
            Shape::Key(_) => return None,
        }
    }
    let found = match shape {
        Shape::Key(row) => OverrideTarget::Value(*row),
        shape => OverrideTarget::Table(shape),
    };
    Some((found, path)).filter(|(_, path)| !path.is_root())
}

fn chosen_name(row: &KeyRow, steps: &[String], spelling: Spelling) -> Option<String> {
    let name = match (spelling, row.kind) {
        // Client properties are spelt with dots, headers with underscores.
        (Spelling::Variable, ValueKind::Secret) => steps.join(".").replace('_', "."),
        (Spelling::Variable, _) => steps.join("__"),
        (Spelling::Key, _) => steps.join("."),
    };
    Some(name).filter(|name| !name.is_empty())
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

fn assign(
    layers: &mut Layers,
    (found, path): (OverrideTarget, Path),
    value: &str,
    origin: &Origin,
) {
    match (found, DeValue::parse(value)) {
        (OverrideTarget::Value(row), _) => layers.set(path, row, raw_word(row.kind, value), origin),
        (OverrideTarget::Table(shape), Ok(parsed)) => {
            lay(layers, shape, path, parsed.get_ref(), origin, &|_| origin.clone());
        }
        (OverrideTarget::Table(_), Err(_)) => {
            let mend = "write TOML: { name = \"value\" } for a section, [ ... ] for an array";
            layers.bad(&path, origin, "a section needs a TOML table or array", mend);
        }
    }
}

/// A word, unless it is TOML for a list or for a reference to a secret.
fn raw_word(kind: ValueKind, value: &str) -> RawValue {
    let is_toml = match kind {
        ValueKind::Secret | ValueKind::Url => value.starts_with('{'),
        ValueKind::Strings(_) => value.starts_with('['),
        _ => false,
    };
    let parsed = is_toml.then(|| DeValue::parse(value).ok()).flatten();
    let raw = parsed.and_then(|parsed| raw_of(parsed.get_ref()).ok());
    raw.unwrap_or_else(|| RawValue::Word(value.to_owned()))
}

fn unknown_variable(name: &str, origin: &Origin) -> Problem {
    // The common prefix would make everything look near: compare what follows it.
    let tail = |name: &str| name.trim_start_matches("WALRELAY_").replace("__", "_");
    let others = OTHER_VARIABLES.iter().map(|&known| known.to_owned());
    let known: Vec<String> = keys().iter().map(KnownKey::variable).chain(others).collect();
    let tails: Vec<String> = known.iter().map(|known| tail(known)).collect();
    let near = nearest(&tail(name), tails.iter().map(String::as_str));
    let near = known.iter().zip(&tails).find(|(_, tail)| Some(tail.as_str()) == near);
    let mend = match near {
        Some((known, _)) => format!("did you mean {known}? or else: unset {name}"),
        None => format!("unset {name}"),
    };
    Problem::new(origin, "config.unknown-key", format!("unknown variable {name}"), mend)
}

fn unknown_key(name: &str, origin: &Origin) -> Problem {
    let paths: Vec<String> = keys().iter().map(KnownKey::path).collect();
    let same_name = || keys().iter().find(|key| key.name == name).map(KnownKey::path);
    let near = nearest(name, paths.iter().map(String::as_str)).map(str::to_owned);
    let mend = match near.or_else(same_name) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "walrelay config schema".to_owned(),
    };
    Problem::new(origin, "config.unknown-key", format!("unknown key `{name}`"), mend)
}
