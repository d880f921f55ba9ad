//! The key `library` of `[[source.outbox]]` as a layer below all others: the library's file gives the
//! keys that nothing else gives.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::file::set_toml;
use super::layers::{Layers, Origin};
use super::path::Path;
use super::sections::{ConfigFile, SourceSection, path_of, root};
use crate::base::settings::kind::RawValue;
use crate::base::settings::{Shape, name_of};
use crate::outbox::libraries::{LIBRARIES, Library};
use crate::outbox::settings::OutboxSection;

const RECOGNISED_BY: &str = "recognised_by";
const NOTE: &str = "note";
const OUTBOX: &str = "outbox";

/// Adds what the libraries of the outbox tables give to the layers.
pub(crate) fn add(layers: &mut Layers) {
    let array = path_of!(ConfigFile.source / SourceSection.outbox);
    for index in 0..layers.count(&array) {
        let path = array.index(index);
        let given = layers.entries.get(&path.child(name_of!(OutboxSection, library)));
        let Some(RawValue::Word(name) | RawValue::Text(name)) = given.map(|entry| &entry.raw)
        else {
            continue;
        };
        // An unknown name is reported when the value is read.
        let Some(library) = LIBRARIES.iter().find(|library| library.name == name) else { continue };
        for (path, entry) in defaults(library, &path).entries {
            layers.entries.entry(path).or_insert(entry);
        }
    }
}

/// The keys that a library gives to the table at this path.
fn defaults(library: &Library, path: &Path) -> Layers {
    let mut layers = Layers::default();
    let origin = Origin::Library(library.name);
    let table = parsed(library);
    let shape = root().child("source").and_then(|source| source.child(OUTBOX));
    if let (Some(Shape::Sections(element)), Some(keys)) = (shape, table.get(OUTBOX)) {
        let locate = |_: Range<usize>| origin.clone();
        set_toml(&mut layers, element, path.clone(), keys.get_ref(), &origin, &locate);
    }
    layers
}

/// Every file parses: a test reads them all.
fn parsed(library: &Library) -> DeTable<'static> {
    DeTable::parse(library.text).map(toml::Spanned::into_inner).unwrap_or_default()
}

/// By what the table of a library is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LibrarySignature {
    pub(crate) columns: Vec<String>,
    /// The note that a user of the library must read.
    pub(crate) note: Option<String>,
}

pub(crate) fn signature(library: &Library) -> LibrarySignature {
    let table = parsed(library);
    let text = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    };
    let columns = match table.get(RECOGNISED_BY).map(toml::Spanned::get_ref) {
        Some(DeValue::Array(items)) => items.iter().filter_map(|it| text(it.get_ref())).collect(),
        _ => Vec::new(),
    };
    let note = table.get(NOTE).and_then(|note| text(note.get_ref()));
    LibrarySignature { columns, note }
}
