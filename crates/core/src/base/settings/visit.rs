//! A [`Visit`] reads what a declaration asks for from the tree of given values. It fills in defaults,
//! collects every problem, and remembers the values in force with their origins.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::key::{Absent, Key, SettingType};
use super::kind::{Described, Kind, Raw};
use super::path::Path;
use super::tree::{Given, Origin, Problem, Tree};
use crate::base::error::Exit;
use crate::base::secret::Secret;

/// A section declared with `settings!`.
pub trait Settings: Default {
    fn read(at: &mut Visit) -> Self;
}

/// A field of a declaration.
#[derive(Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub doc: &'static str,
}

/// How a field of a declaration is read.
pub trait Row<T> {
    fn read(self, at: &mut Visit, field: Field) -> T;
}

impl<T, F: FnOnce(&mut Visit, Field) -> T> Row<T> for F {
    fn read(self, at: &mut Visit, field: Field) -> T {
        self(at, field)
    }
}

/// A key as it is documented. In its path `[]` stands for an index, `*` for a name that the user chooses.
pub struct KnownKey {
    /// `source.outbox[].route`.
    pub section: String,
    pub name: String,
    pub path: String,
    pub doc: &'static str,
    pub kind: Described,
    pub absent: Absent,
    /// The section whose key of this name stands for an absent one.
    pub inherits: Option<&'static str>,
    /// For the JSON Schema.
    pub default: Option<Json>,
    /// A word that begins with it is TOML.
    pub toml: Option<char>,
}

/// A value in force.
#[derive(Clone, Debug)]
pub struct Setting {
    /// As it is shown.
    pub value: Json,
    /// With nothing hidden.
    exposed: Secret,
    pub origin: Origin,
}

#[derive(Clone, Debug, Default)]
pub struct Effective {
    pub settings: BTreeMap<Path, Setting>,
    /// The sections in the order of declaration.
    pub sections: Vec<ShownSection>,
}

#[derive(Clone, Debug)]
pub struct ShownSection {
    pub header: String,
    /// The keys; one without a value has a text that says what that means.
    pub keys: Vec<(Path, Option<&'static str>)>,
}

impl Effective {
    /// The keys whose values are others than in `earlier`, but for those that came from files.
    pub fn changed_since(&self, earlier: &Effective) -> Vec<String> {
        let paths = self.settings.keys().chain(earlier.settings.keys()).collect::<BTreeSet<_>>();
        let is_other = |path: &&Path| {
            let of = |all: &Effective| all.settings.get(*path).map(|it| it.exposed.clone());
            of(self) != of(earlier)
        };
        paths.into_iter().filter(is_other).map(ToString::to_string).collect()
    }
}

#[derive(Clone, Default)]
struct Section {
    path: Path,
    /// The section whose keys stand for absent ones.
    inherits: Option<&'static str>,
    /// No key is required, and no default is filled in.
    is_unused: bool,
    /// Its index in [`Effective::sections`].
    shown: usize,
}

/// All keys of a declaration, in its order.
pub fn known_keys<T: Settings>() -> Vec<KnownKey> {
    let mut visit = Visit { known: Some(Vec::new()), ..Visit::default() };
    drop(visit.read::<T>());
    visit.known.unwrap_or_default()
}

#[derive(Default)]
pub struct Visit {
    pub tree: Tree,
    pub effective: Effective,
    /// Keys that are missing or could not be read, which has been reported.
    pub broken: BTreeSet<Path>,
    /// Every key that was asked for, if it is to be remembered.
    known: Option<Vec<KnownKey>>,
    bad: BTreeMap<Path, Problem>,
    section: Section,
}

impl Visit {
    pub fn of(tree: Tree) -> Visit {
        Visit { tree, ..Visit::default() }
    }

    /// Reads the whole configuration.
    pub fn read<T: Settings>(&mut self) -> T {
        let settings = T::read(self);
        self.tree.problems.extend(std::mem::take(&mut self.bad).into_values());
        settings
    }

    pub fn refuse(&mut self, path: &Path, code: &'static str, what: &str, mend: impl Into<String>) {
        let problem = Problem::at(&self.tree.origin(path), path, code, what, mend);
        self.tree.problems.push(problem);
    }

    /// Reads a section below this one.
    pub fn section<T>(
        &mut self,
        name: &str,
        is_used: bool,
        read: impl FnOnce(&mut Visit) -> T,
    ) -> T {
        let path = self.section.path.child(name);
        let header = format!("[{}]", path.header());
        self.enter(path, header, is_used, read)
    }

    fn enter<T>(
        &mut self,
        path: Path,
        header: String,
        is_used: bool,
        read: impl FnOnce(&mut Visit) -> T,
    ) -> T {
        let (is_unused, shown) =
            (self.section.is_unused || !is_used, self.effective.sections.len());
        let section = Section { path, is_unused, shown, ..self.section };
        let outer = std::mem::replace(&mut self.section, section);
        self.effective.sections.push(ShownSection { header, keys: Vec::new() });
        let value = read(self);
        self.section = outer;
        value
    }

    /// Has the key beside this section this value?
    pub fn is_chosen(&self, key: &str, value: &str) -> bool {
        self.has_value(&self.section.path.child(key), value)
    }

    fn has_value(&self, path: &Path, value: &str) -> bool {
        self.effective.settings.get(path).is_some_and(|setting| setting.value == value)
    }

    fn default_of<K: Kind, T>(&self, key: &Key<K, T>) -> Option<K::Value> {
        let Absent::Default(text) = key.absent else { return None };
        let other =
            key.default_when.filter(|(key, value, _)| self.has_value(&Path::of(key), value));
        key.kind.parse(&Raw::Word(other.map_or(text, |(.., other)| other).to_owned())).ok()
    }

    /// The value that was given for the section which is inherited.
    fn inherited<K: Kind, T>(&self, key: &Key<K, T>, path: &Path) -> Option<K::Value> {
        key.kind.parse(&self.tree.given.get(path)?.raw).ok()
    }

    fn given<K: Kind, T>(&mut self, key: &Key<K, T>, path: &Path) -> Option<K::Value> {
        let Given { raw, origin } = self.tree.given.get(path)?;
        let is_reference = raw.is_reference();
        match key.kind.parse(raw) {
            Ok(value) => {
                let mut prefixes = key.shown_prefixes.iter();
                let may_show = prefixes.any(|it| path.name().starts_with(it)) && !is_reference;
                let origin = origin.clone();
                self.record(path, &key.kind, &value, may_show, origin);
                Some(value)
            }
            Err(bad) => {
                let code = if is_reference { "config.missing-secret" } else { "config.bad-value" };
                let mut problem = Problem::at(origin, path, code, &bad.what, bad.mend);
                if bad.may_pass {
                    problem.fault.exit = Exit::Failed;
                }
                self.bad.insert(path.clone(), problem);
                self.broken.insert(path.clone());
                None
            }
        }
    }

    fn record<K: Kind>(
        &mut self,
        path: &Path,
        kind: &K,
        value: &K::Value,
        may_show: bool,
        origin: Origin,
    ) {
        let exposed = kind.expose(value);
        let shown = if may_show { exposed.clone() } else { kind.show(value) };
        let setting = Setting { value: shown, exposed: Secret::new(exposed.to_string()), origin };
        self.effective.settings.insert(path.clone(), setting);
        self.line(path, None);
    }

    fn line(&mut self, path: &Path, meaning: Option<&'static str>) {
        if let Some(section) = self.effective.sections.get_mut(self.section.shown) {
            section.keys.push((path.clone(), meaning));
        }
    }

    fn declare<K: Kind, T>(&mut self, name: String, doc: &'static str, key: &Key<K, T>) {
        let default = self.default_of(key).map(|value| key.kind.show(&value));
        let Some(known) = &mut self.known else { return };
        let inherits = self.section.inherits;
        let default = match (key.absent, default.filter(|_| inherits.is_none())) {
            // A text is as it was declared, like "60s".
            (Absent::Default(text), Some(Json::String(_))) => Some(text.into()),
            (_, default) => default,
        };
        let section = self.section.path.pattern();
        let (path, kind) = (format!("{section}.{name}"), key.kind.described());
        let (doc, absent, toml) = (doc.trim(), key.absent, K::TOML);
        known.push(KnownKey { section, name, path, doc, kind, absent, inherits, default, toml });
    }

    fn miss(&mut self, path: &Path, example: &str) {
        let (section, name) = (path.parent().header(), path.name());
        let variable = format!("{section}.{name}").replace('.', "__").to_uppercase();
        let mend = format!(
            "write in the file, under [{section}]:\n{name} = \"{example}\"\nor: export WALRELAY_{variable}={example}",
        );
        self.refuse(path, "config.missing-key", "is missing", mend);
        self.broken.insert(path.clone());
    }
}

impl<K: Kind, T: SettingType<K::Value>> Row<T> for Key<K, T> {
    fn read(self, at: &mut Visit, Field { name, doc }: Field) -> T {
        at.declare(name.to_owned(), doc, &self);
        let path = at.section.path.child(name);
        let given = at.given(&self, &path);
        let is_absent = given.is_none() && !at.broken.contains(&path) && !at.section.is_unused;
        let inherited = at.section.inherits.map(|section| Path::of(&[section, name]));
        let value = given
            .or_else(|| at.inherited(&self, inherited.as_ref()?))
            .or_else(|| at.default_of(&self));
        match (self.absent, &value) {
            _ if !is_absent || inherited.is_some() => {}
            (Absent::Means(text), _) => at.line(&path, Some(text)),
            (Absent::Required(example), _) => at.miss(&path, example),
            (Absent::Default(_), Some(it)) => {
                at.record(&path, &self.kind, it, false, Origin::Default)
            }
            (Absent::Default(_), None) => {}
        }
        T::of(value)
    }
}

/// Values under names that the user chooses.
pub fn map<K: Kind, T: SettingType<K::Value>>(each: Key<K, T>) -> impl Row<BTreeMap<String, T>> {
    move |at: &mut Visit, Field { name, doc }: Field| {
        at.declare(format!("{name}.*"), doc, &each);
        let mut entries = BTreeMap::new();
        let mut add = |path: &Path, value: Option<K::Value>| {
            let entry = value.map(|value| (path.name().to_owned(), T::of(Some(value))));
            entries.extend(entry);
        };
        let inherited = at.section.inherits.map(|section| Path::of(&[section, name]));
        for path in inherited.iter().flat_map(|path| at.tree.entries(path)) {
            add(&path, at.inherited(&each, &path));
        }
        at.section(name, true, |at| {
            for path in at.tree.entries(&at.section.path) {
                add(&path, at.given(&each, &path));
            }
        });
        entries
    }
}

pub fn section<T: Settings>() -> impl Row<T> {
    |at: &mut Visit, field: Field| at.section(field.name, true, T::read)
}

/// A section whose absent keys are those of another section.
pub fn section_over<T: Settings>(inherited: &'static str) -> impl Row<T> {
    move |at: &mut Visit, field: Field| {
        let outer = at.section.inherits.replace(inherited);
        let section = at.section(field.name, true, T::read);
        at.section.inherits = outer;
        section
    }
}

/// A section that is used where it is given.
pub fn optional_section<T: Settings>() -> impl Row<Option<T>> {
    used_section(|at, name| at.tree.given.contains_key(&at.section.path.child(name)))
}

/// A section that is used when the key beside it has this value.
pub fn section_when<T: Settings>(key: &'static str, value: &'static str) -> impl Row<Option<T>> {
    used_section(move |at, _| at.is_chosen(key, value))
}

fn used_section<T: Settings>(is_used: impl Fn(&Visit, &str) -> bool) -> impl Row<Option<T>> {
    move |at: &mut Visit, Field { name, .. }: Field| {
        let is_used = is_used(at, name);
        Some(at.section(name, is_used, T::read)).filter(|_| is_used)
    }
}

/// An array of sections, up to the first gap.
pub fn sections<T: Settings>() -> impl Row<Vec<T>> {
    |at: &mut Visit, field: Field| {
        let array = at.section.path.child(field.name);
        let header = format!("[[{}]]", array.header());
        let mut elements = Vec::new();
        for index in at.tree.indices(&array) {
            let element = at.enter(array.index(index), header.clone(), true, T::read);
            elements.extend(Some(element).filter(|_| elements.len() == index));
        }
        if elements.is_empty() && at.known.is_some() {
            at.enter(array.index(0), header, false, T::read);
        }
        elements
    }
}

/// The fields of another declaration in this section.
pub fn flattened<T: Settings>() -> impl Row<T> {
    |at: &mut Visit, _: Field| T::read(at)
}

/// A section with these words under these names; a name is `map.name` for an entry of a map.
#[cfg(any(test, feature = "testing"))]
pub fn section_of(words: &[(&str, &str)]) -> Visit {
    let mut tree = Tree::default();
    for (key, word) in words {
        let names: Vec<&str> = key.splitn(2, '.').collect();
        tree.set(Path::of(&names), Raw::Word((*word).to_owned()), &Origin::Default);
    }
    Visit::of(tree)
}
