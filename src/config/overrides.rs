//! Adds environment variables and flags to the layers. An unknown variable whose name has the form
//! of a key, `WALRELAY_…__…`, is an error, because a misspelt one would be ignored silently. A name
//! without `__` is one only if it becomes a key with `__` for `_`: Kubernetes sets `WALRELAY_PORT`
//! and the like in every pod beside a Service named `walrelay`. Errors never quote a value.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::file::{raw_of, set_toml};
use super::layers::{Layers, Origin, Problem, of_missing_sink};
use super::path::Path;
use super::removed;
use super::sections::{KnownKey, keys, root};
use crate::base::settings::kind::{RawValue, ValueKind};
use crate::base::settings::{KeyRow, Shape};
use crate::base::text::nearest;

/// Variables of the relay that are not configuration keys.
const OTHER_VARIABLES: &[&str] = &["WALRELAY_CONFIG", "WALRELAY_LOG", "WALRELAY_LOG_FORMAT"];
const DEVELOPER_PREFIX: &str = "WALRELAY_DEV_";

pub(crate) fn environment(layers: &mut Layers, variables: &BTreeMap<String, String>) {
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix("WALRELAY_") else { continue };
        if OTHER_VARIABLES.contains(&name.as_str()) || name.starts_with(DEVELOPER_PREFIX) {
            continue;
        }
        let steps: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
        let origin = Origin::Variable(name.clone());
        match find(&steps, true) {
            Some(found) => assign(layers, found, value, &origin),
            None if rest.contains("__") || is_key_but_for_underscores(rest) => {
                let removed = removed::problem(&steps.join("."), name, &origin);
                layers.problems.push(removed.unwrap_or_else(|| unknown_variable(name, &origin)));
            }
            None => {}
        }
    }
}

/// `--set KEY=VALUE`.
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
        match find(&split_key(key.trim()), false) {
            Some(found) => assign(layers, found, value.trim(), &origin),
            None => {
                let removed = removed::problem(key.trim(), key.trim(), &origin);
                layers.problems.push(removed.unwrap_or_else(|| unknown_key(key.trim(), &origin)));
            }
        }
    }
}

/// A flag that is short for one key.
pub(crate) fn shorthand(layers: &mut Layers, flag: &str, path: Path, value: &str) {
    let row = keys().iter().find(|key| key.path() == path.to_string()).map(|key| key.row);
    let origin = Origin::Flag { position: usize::MAX, name: flag.to_owned() };
    if let Some(row) = row {
        layers.set(path, row, RawValue::Word(value.to_owned()), &origin);
    }
}

/// Whether the name would be that of a key if some of its underscores were double.
fn is_key_but_for_underscores(name: &str) -> bool {
    fn fits(wanted: &[&str], words: &[&str]) -> bool {
        match (wanted, words) {
            ([], []) => true,
            // A name that the user chooses.
            (["*"], [_, ..]) => true,
            (["[]", wanted @ ..], [word, words @ ..]) => {
                word.parse::<usize>().is_ok() && fits(wanted, words)
            }
            ([step, wanted @ ..], [word, words @ ..]) => step == word && fits(wanted, words),
            _ => false,
        }
    }
    let name = name.to_lowercase();
    let words: Vec<&str> = name.split('_').collect();
    keys().iter().any(|key| {
        let path = key.path().replace("[]", ".[]");
        fits(&path.split(['.', '_']).collect::<Vec<_>>(), &words)
    })
}

/// What a variable or a flag sets: a key or a section, with its path.
fn find(steps: &[String], is_variable: bool) -> Option<(Shape, Path)> {
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
                let name = chosen_name(row, &steps[position..], is_variable);
                return (!name.is_empty()).then(|| (Shape::Key(*row), path.child(&name)));
            }
            Shape::Key(_) => return None,
        }
    }
    (!path.is_root()).then(|| (shape.clone(), path))
}

/// A name that the user chose. A variable has no dots: client properties, which are secrets, have
/// dots in their names, headers have underscores.
fn chosen_name(row: &KeyRow, steps: &[String], is_variable: bool) -> String {
    match row.kind {
        ValueKind::Secret if is_variable => steps.join(".").replace('_', "."),
        _ if is_variable => steps.join("__"),
        _ => steps.join("."),
    }
}

/// The steps of `a.b[0]."c.d"`.
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

fn assign(layers: &mut Layers, (shape, path): (Shape, Path), value: &str, origin: &Origin) {
    match (shape, DeValue::parse(value)) {
        (Shape::Key(row), _) => layers.set(path, row, raw_word(row.kind, value), origin),
        (shape, Ok(parsed)) => {
            set_toml(layers, &shape, path, parsed.get_ref(), origin, &|_| origin.clone());
        }
        (_, Err(_)) => {
            let mend = "write TOML: { name = \"value\" } for a section, [ ... ] for an array";
            layers.bad(&path, origin, "a section needs a TOML table or array", mend);
        }
    }
}

/// TOML for a list or for a reference to a secret; otherwise a word.
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
    let path = name.trim_start_matches("WALRELAY_").replace("__", ".").to_lowercase();
    if let Some(problem) = of_missing_sink(&path, origin) {
        return problem;
    }
    // The common prefix would make all names look similar.
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
    if let Some(problem) = of_missing_sink(name, origin) {
        return problem;
    }
    let paths: Vec<String> = keys().iter().map(KnownKey::path).collect();
    let same_name = || keys().iter().find(|key| key.name == name).map(KnownKey::path);
    let near = nearest(name, paths.iter().map(String::as_str)).map(str::to_owned);
    let mend = match near.or_else(same_name) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "walrelay config schema".to_owned(),
    };
    Problem::new(origin, "config.unknown-key", format!("unknown key `{name}`"), mend)
}
