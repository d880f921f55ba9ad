//! Adds environment variables and flags to the tree. An unknown variable whose name has the form
//! of a key, `WALRELAY_…__…`, is an error, because a misspelt one would be ignored silently. A name
//! without `__` is one only if it becomes a key with `__` for `_`: Kubernetes sets `WALRELAY_PORT`
//! and the like in every pod beside a Service named `walrelay`. Errors never quote a value.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::file::{raw_of, set_toml, suggestion};
use super::missing;
use super::sections::{Declared, declared, keys, variable};
use crate::base::settings::kind::Raw;
use crate::base::settings::{Origin, Path, Problem, Tree};
use crate::base::text::nearest;

/// Variables of the relay that are not configuration keys.
const OTHER_VARIABLES: &[&str] = &["WALRELAY_CONFIG", "WALRELAY_LOG", "WALRELAY_LOG_FORMAT"];
const DEVELOPER_PREFIX: &str = "WALRELAY_DEV_";
const SET_EXAMPLE: &str = "walrelay --set source.slot=walrelay ...";
/// A shell removes quotes, and what is left would be taken for the secret itself.
const BRACES: &str = "text in braces that is no reference to a secret (a reference has quotes around the name; a secret in braces goes into a file)";

pub(crate) fn environment(tree: &mut Tree) {
    let mut assigned: BTreeMap<Path, String> = BTreeMap::new();
    for (name, value) in tree.variables.clone() {
        let Some(rest) = name.strip_prefix("WALRELAY_") else { continue };
        if OTHER_VARIABLES.contains(&&*name) || name.starts_with(DEVELOPER_PREFIX) {
            continue;
        }
        let steps: Vec<String> = rest.split("__").map(str::to_owned).collect();
        let origin = Origin::Variable(name.clone());
        match find(&steps, true) {
            Some(path) => {
                if let Some(other) = assigned.insert(path.clone(), name.clone()) {
                    let what = format!("{other} sets this key as well");
                    let mend = format!("unset {other}, or: unset {name}");
                    let problem = Problem::at(&origin, &path, "config.conflict", &what, mend);
                    tree.problems.push(problem);
                }
                assign(tree, path, &value, &origin);
            }
            None if rest.contains("__") || is_key_but_for_underscores(rest) => {
                let path = steps.join(".").to_lowercase();
                let problem = missing::problem(&path, &name, &origin);
                tree.problems.push(problem.unwrap_or_else(|| unknown_variable(&name, &origin)));
            }
            None => {}
        }
    }
}

/// `--set KEY=VALUE`.
pub(crate) fn flags(tree: &mut Tree, settings: &[String]) {
    let bad = |origin: &Origin, place: &str, what: &str| {
        Problem::at(origin, place, "config.bad-value", what, SET_EXAMPLE)
    };
    for (position, setting) in settings.iter().enumerate() {
        let Some((key, value)) = setting.split_once('=') else {
            let origin = Origin::Flag { position, name: "--set".to_owned() };
            let what = "expected KEY=VALUE, found no \"=\"";
            tree.problems.push(bad(&origin, "--set", what));
            continue;
        };
        let (shown, key) = (shown_part(key.trim()), key.trim());
        let origin = Origin::Flag { position, name: format!("--set {shown}") };
        if shown != key {
            let what = "expected KEY=VALUE, found another character before \"=\"";
            tree.problems.push(bad(&origin, shown, what));
            continue;
        }
        match find(&split_key(key), false) {
            Some(path) => assign(tree, path, value.trim(), &origin),
            None => {
                let problem = missing::problem(key, key, &origin);
                tree.problems.push(problem.unwrap_or_else(|| unknown_key(key, &origin)));
            }
        }
    }
}

/// The part of a key that may be shown: with `:` for `=`, a value is behind it.
fn shown_part(key: &str) -> &str {
    let is_of_key = |c: char| c.is_alphanumeric() || "_.-[]\"".contains(c);
    key.split(|c| !is_of_key(c)).next().unwrap_or_default()
}

/// A flag that is short for one key.
pub(crate) fn shorthand(tree: &mut Tree, flag: &str, path: Path, value: Option<&String>) {
    if let Some(value) = value {
        let origin = Origin::Flag { position: usize::MAX, name: flag.to_owned() };
        tree.set(path, Raw::Word(value.clone()), &origin);
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
        let path = key.path.replace("[]", ".[]");
        fits(&path.split(['.', '_']).collect::<Vec<_>>(), &words)
    })
}

/// The path of the key or section that a variable or a flag sets.
fn find(steps: &[String], is_variable: bool) -> Option<Path> {
    let mut path = Path::default();
    for (position, step) in steps.iter().enumerate() {
        path = match declared(&path)? {
            Declared::Section if is_variable => path.child(&step.to_lowercase()),
            Declared::Section => path.child(step),
            Declared::Array => path.index(step.parse().ok().filter(|index| *index < 1000)?),
            Declared::Map(key) => {
                let steps = &steps[position..];
                // A variable has no dots: client properties, which are secrets, have dots in their
                // names, headers have underscores.
                let name = match key.toml {
                    Some('{') if is_variable => steps.join(".").to_lowercase().replace('_', "."),
                    _ if is_variable => chosen_name(&steps.join("__")),
                    _ => steps.join("."),
                };
                return Some(path.child(&name)).filter(|_| !name.is_empty());
            }
            Declared::Key(_) => return None,
        };
    }
    declared(&path).filter(|_| !path.is_root()).map(|_| path)
}

/// The end of a variable that a user chooses. Of a name in capitals alone nobody knows which of them are meant.
fn chosen_name(end: &str) -> String {
    match end.contains(char::is_lowercase) {
        true => end.to_owned(),
        false => end.to_lowercase(),
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

/// TOML for a section, a list or a reference to a secret; otherwise a word.
fn assign(tree: &mut Tree, path: Path, value: &str, origin: &Origin) {
    let parsed = DeValue::parse(value);
    match (declared(&path), parsed) {
        (Some(Declared::Key(key)), parsed) => {
            let toml = parsed.ok().filter(|_| key.toml.is_some_and(|it| value.starts_with(it)));
            let has_braces = value.starts_with('{') && value.ends_with('}');
            let raw = match toml {
                Some(toml) => raw_of(toml.get_ref(), tree),
                None if key.toml == Some('{') && has_braces => Raw::Unsupported(BRACES),
                None => Raw::Word(value.to_owned()),
            };
            tree.set(path, raw, origin);
        }
        (_, Ok(parsed)) => {
            set_toml(tree, path, parsed.get_ref(), origin, &|_| origin.clone());
        }
        (_, Err(_)) => {
            let mend = "write TOML: { name = \"value\" } for a section, [ ... ] for an array";
            tree.bad(&path, origin, "a section needs a TOML table or array", mend);
        }
    }
}

fn unknown_variable(name: &str, origin: &Origin) -> Problem {
    // The common prefix would make all names look similar.
    let tail = |name: &str| name.trim_start_matches("WALRELAY_").replace("__", "_");
    let others = OTHER_VARIABLES.iter().map(|&known| known.to_owned());
    let known: Vec<String> = keys().iter().map(variable).chain(others).collect();
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
    let parent = name.rsplit_once('.');
    let parent = parent.and_then(|(path, last)| Some((find(&split_key(path), false)?, last)));
    let is_section = |path: &Path| matches!(declared(path), Some(Declared::Section));
    let mend = match parent.filter(|(path, _)| is_section(path)) {
        Some((section, last)) => suggestion(&section, last, |near| section.child(near).to_string()),
        None => match nearest(name, keys().iter().map(|key| key.path.as_str())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => suggestion(&Path::default(), name, str::to_owned),
        },
    };
    Problem::new(origin, "config.unknown-key", format!("unknown key `{name}`"), mend)
}
