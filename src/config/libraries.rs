//! The key `library` of `[[source.outbox]]` as a layer below all others: the library's file gives the
//! keys that nothing else gives.

use toml::de::{DeTable, DeValue};

use super::file::set_toml;
use super::sections::{ConfigFile, SourceSection, path_of};
use crate::base::settings::{Origin, Tree, name_of};
use crate::outbox::libraries::{LIBRARIES, Library};
use crate::outbox::settings::{Columns, OutboxSection, Route};

/// Adds what the libraries of the outbox tables give.
pub(crate) fn add(tree: &mut Tree) {
    let array = path_of!(ConfigFile.source / SourceSection.outbox);
    for index in tree.indices(&array) {
        let path = array.index(index);
        let name = tree.given.get(&path.child(name_of!(OutboxSection, library)));
        let name = name.and_then(|given| given.raw.text());
        // An unknown name is reported when the value is read.
        let Some(library) = LIBRARIES.iter().find(|library| Some(library.name) == name) else {
            continue;
        };
        // A key column that is given stands for the library's template, which would hide it.
        let column = path.child(name_of!(OutboxSection, columns)).child(name_of!(Columns, key));
        let template = path.child(name_of!(OutboxSection, route)).child(name_of!(Route, key));
        let has_column = tree.given.contains_key(&column);
        let mut defaults = Tree::default();
        if let Some(keys) = parsed(library).get("outbox") {
            let origin = Origin::Library(library.name);
            set_toml(&mut defaults, path, keys.get_ref(), &origin, &|_| origin.clone());
        }
        for (path, given) in defaults.given {
            if !(has_column && path == template) {
                tree.given.entry(path).or_insert(given);
            }
        }
    }
}

/// Every file parses: a test reads them all.
fn parsed(library: &Library) -> DeTable<'static> {
    DeTable::parse(library.text).map(toml::Spanned::into_inner).unwrap_or_default()
}

/// The columns by which the table of a library is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LibrarySignature {
    pub(crate) columns: Vec<String>,
    /// The note that a user of the library must read.
    pub(crate) note: Option<String>,
}

pub(crate) fn signature(library: &Library) -> LibrarySignature {
    let table = parsed(library);
    let get = |key: &str| table.get(key).map(toml::Spanned::get_ref);
    let columns = get("recognised_by").and_then(DeValue::as_array).into_iter().flatten();
    let columns = columns.filter_map(|it| it.get_ref().as_str().map(str::to_owned)).collect();
    let note = get("note").and_then(DeValue::as_str).map(str::to_owned);
    LibrarySignature { columns, note }
}
