//! The values of the complete layers with the defaults filled in, and the origin of each.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::{Layers, Origin, Problem};
use super::libraries;
use super::path::{Path, Segment};
use super::sections::{ConfigFile, SourceSection, keys, path_of, root};
use crate::base::error::Exit;
use crate::base::secret;
use crate::base::settings::kind::{Lookup, RawValue, SettingValue};
use crate::base::settings::{Absent, KeyRow, SettingField, Shape, Used, Values, name_of};
use crate::outbox::settings::Route;

#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) row: KeyRow,
    pub(crate) value: SettingValue,
    pub(crate) origin: Origin,
    /// Was it given as `{ env = … }` or `{ file = … }`?
    pub(crate) referenced: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Effective {
    pub(crate) settings: BTreeMap<Path, Setting>,
    /// Keys without a value, and what that means.
    pub(crate) unset: BTreeMap<Path, &'static str>,
    /// Sections that appear, and where they appear first.
    pub(crate) sections: BTreeMap<Path, Origin>,
    /// Number of outbox tables.
    pub(crate) outboxes: usize,
    /// Keys that are missing or could not be read, which has been reported.
    pub(crate) broken: BTreeSet<Path>,
}

/// Reads every value and fills in the defaults.
pub(crate) fn resolve(mut layers: Layers, env: Lookup<'_>) -> (Effective, Vec<Problem>) {
    let outbox = path_of!(ConfigFile.source / SourceSection.outbox);
    let messages = path_of!(ConfigFile.source / SourceSection.messages);
    let outboxes = match layers.count(&outbox) {
        0 if !layers.sections.contains_key(&messages) => 1,
        count => refuse_gaps(&mut layers, &outbox, count),
    };
    libraries::add(&mut layers);
    let Layers { entries, sections, mut problems } = layers;
    let mut effective = Effective { sections, outboxes, ..Effective::default() };
    for (path, entry) in entries {
        let referenced = matches!(entry.raw, RawValue::Variable(_) | RawValue::File(_));
        match entry.row.kind.read(&entry.raw, env, &secret::read_file) {
            Ok(value) => {
                let setting = Setting { row: entry.row, value, origin: entry.origin, referenced };
                effective.settings.insert(path, setting);
            }
            Err(bad) => {
                let code = if referenced { "config.missing-secret" } else { "config.bad-value" };
                let mut problem = Problem::at(&entry.origin, &path, code, &bad.what, bad.mend);
                if bad.may_pass {
                    problem.fault.exit = Exit::Failed;
                }
                problems.push(problem);
                effective.broken.insert(path);
            }
        }
    }
    effective.imply_presets();
    effective.fill(root(), &Path::default(), &mut problems);
    (effective, problems)
}

/// `source.outbox[5]` without the tables before it is a mistake, which would add default tables. Returns
/// the number of tables before the first gap.
fn refuse_gaps(layers: &mut Layers, array: &Path, count: usize) -> usize {
    let given = |index: &usize| layers.sections.get(&array.index(*index));
    let Some(gap) = (0..count).find(|index| given(index).is_none()) else { return count };
    if let Some(origin) = (gap..count).find_map(|index| given(&index).cloned()) {
        let missing = array.index(gap);
        let mend = format!("number the tables from 0 without a gap: {missing} is missing");
        layers.bad(array, &origin, "there is a gap", mend);
    }
    gap
}

impl Effective {
    /// The keys whose values are others than in `earlier`, but for those that came from files.
    pub(crate) fn changed_since(&self, earlier: &Effective) -> Vec<String> {
        let paths = self.settings.keys().chain(earlier.settings.keys());
        let of = |all: &Effective, path: &Path| {
            all.settings.get(path).map(|setting| setting.value.clone())
        };
        let is_of_file = |value: &Option<SettingValue>| matches!(value, Some(SettingValue::Secret(secret)) if secret.is_of_file());
        let is_other = |path: &&Path| {
            let (before, now) = (of(earlier, path), of(self, path));
            before != now && !(is_of_file(&before) && is_of_file(&now))
        };
        let changed: BTreeSet<&Path> = paths.filter(is_other).collect();
        changed.into_iter().map(ToString::to_string).collect()
    }

    /// The origin of the value; for a default and for what a library gives, the line
    /// of the file where its section begins, if any.
    pub(crate) fn origin(&self, path: &Path) -> Origin {
        match self.settings.get(path) {
            Some(Setting { origin, .. })
                if !matches!(origin, Origin::Default | Origin::Library(_)) =>
            {
                origin.clone()
            }
            Some(_) | None => {
                let sections = path.ancestors().filter_map(|section| self.sections.get(&section));
                let in_file = sections.filter(|origin| matches!(origin, Origin::File { .. }));
                in_file.last().cloned().unwrap_or(Origin::Default)
            }
        }
    }

    pub(crate) fn problem(
        &self,
        path: &Path,
        code: &'static str,
        what: &str,
        mend: impl Into<String>,
    ) -> Problem {
        Problem::at(&self.origin(path), path, code, what, mend)
    }

    /// `format = "debezium"` also chooses that preset where none is written beside it.
    fn imply_presets(&mut self) {
        let (format, preset) = (name_of!(Route, format), name_of!(Route, preset));
        let value = SettingValue::Text("debezium".to_owned());
        let is_debezium = |setting: &Setting| setting.value == value;
        let formats = self
            .settings
            .iter()
            .filter(|(path, _)| path.last() == format && path.parent().last() == "route")
            .filter(|(_, setting)| is_debezium(setting));
        let origins: Vec<(Path, Origin)> = formats
            .map(|(path, setting)| (path.parent().child(preset), setting.origin.clone()))
            .collect();
        let Some(row) = keys().iter().find(|key| key.name == preset).map(|key| key.row) else {
            return;
        };
        for (path, origin) in origins {
            let value = value.clone();
            self.settings.entry(path).or_insert(Setting { row, value, origin, referenced: false });
        }
    }

    /// The entries of a map.
    pub(crate) fn entries(&self, path: &Path) -> impl Iterator<Item = (&str, &Setting)> {
        let parent = path.clone();
        self.settings.iter().filter_map(move |(path, setting)| match path.step_below(&parent) {
            Some(Segment::Name(_)) => Some((path.last(), setting)),
            Some(Segment::Index(_)) | None => None,
        })
    }

    fn is_used(&self, path: &Path, used: Used) -> bool {
        match used {
            Used::Always => true,
            Used::Given => self.sections.contains_key(path),
            Used::Chosen(key, wanted) => {
                let chosen =
                    self.settings.get(&path.parent().child(key)).map(|setting| &setting.value);
                matches!(chosen, Some(SettingValue::Text(word)) if word == wanted)
            }
        }
    }

    fn fill(&mut self, shape: &Shape, path: &Path, problems: &mut Vec<Problem>) {
        match shape {
            Shape::Key(row) => self.fill_key(row, path, problems),
            Shape::Section(fields, used) if self.is_used(path, *used) => {
                for SettingField { name, shape, .. } in fields {
                    self.fill(shape, &path.child(name), problems);
                }
            }
            Shape::Sections(element) => {
                (0..self.outboxes)
                    .for_each(|index| self.fill(element, &path.index(index), problems));
            }
            Shape::Section(..) | Shape::Map(_) => {}
        }
    }

    fn fill_key(&mut self, row: &KeyRow, path: &Path, problems: &mut Vec<Problem>) {
        if self.settings.contains_key(path) || self.broken.contains(path) {
            return;
        }
        match row.absent {
            Absent::Inherited(_) => {}
            Absent::Means(text) => {
                self.unset.insert(path.clone(), text);
            }
            Absent::Default(_) => {
                let polling = path_of!(ConfigFile.source / SourceSection.polling);
                let chosen = Used::Chosen(name_of!(SourceSection, mode), "polling");
                let value = row.default_value(self.is_used(&polling, chosen));
                self.settings.extend(value.map(|value| {
                    let origin = Origin::Default;
                    (path.clone(), Setting { row: *row, value, origin, referenced: false })
                }));
            }
            Absent::Required(example) => {
                let (section, name) = (path.parent().header(), path.last());
                let variable = format!("{section}.{name}").replace('.', "__").to_uppercase();
                let mend = format!(
                    "write in the file, under [{section}]:\n{name} = \"{example}\"\nor: export WALRELAY_{variable}={example}",
                );
                problems.push(self.problem(path, "config.missing-key", "is missing", mend));
                self.broken.insert(path.clone());
            }
        }
    }

    /// The values of all sections that are used, with inherited ones filled in.
    pub(crate) fn values(&self) -> Values {
        match self.value(root(), &Path::default()) {
            Some(SettingValue::Section(values)) => values,
            _ => Values::new(),
        }
    }

    fn value(&self, shape: &Shape, path: &Path) -> Option<SettingValue> {
        let inherited = |row: &KeyRow| match row.absent {
            Absent::Inherited(section) => Some(Path::of(&[section, path.last()])),
            _ => None,
        };
        let of = |path: &Path| self.settings.get(path).map(|setting| setting.value.clone());
        match shape {
            Shape::Key(row) => of(path).or_else(|| of(&inherited(row)?)),
            Shape::Map(row) => {
                let places = inherited(row).into_iter().chain([path.clone()]);
                let mut entries = Values::new();
                for place in places {
                    let own = self.entries(&place);
                    entries.extend(own.map(|(name, it)| (name.to_owned(), it.value.clone())));
                }
                Some(SettingValue::Section(entries))
            }
            Shape::Section(_, used) if !self.is_used(path, *used) => None,
            Shape::Section(fields, _) => {
                let value = |field: &SettingField| {
                    let value = self.value(&field.shape, &path.child(field.name))?;
                    Some((field.name.to_owned(), value))
                };
                Some(SettingValue::Section(fields.iter().filter_map(value).collect()))
            }
            Shape::Sections(element) => {
                let indices = 0..self.outboxes;
                let values = indices.filter_map(|index| self.value(element, &path.index(index)));
                Some(SettingValue::Sections(values.collect()))
            }
        }
    }
}
