//! Adds the keys that follow from the values that were given: a layer below all others.

use super::libraries;
use super::sections::{ConfigFile, SourceSection, path_of};
use crate::base::settings::kind::Raw;
use crate::base::settings::tree::Given;
use crate::base::settings::{Origin, Tree, name_of};
use crate::outbox::settings::Route;

pub(crate) fn add(tree: &mut Tree) {
    add_table(tree);
    libraries::add(tree);
    add_presets(tree);
}

/// Without any table and without messages, there is the default table. `source.outbox[5]` without the
/// tables before it is a mistake, which would add default tables.
fn add_table(tree: &mut Tree) {
    let array = path_of!(ConfigFile.source / SourceSection.outbox);
    let messages = path_of!(ConfigFile.source / SourceSection.messages);
    let indices = tree.indices(&array);
    if indices.is_empty() && !tree.given.contains_key(&messages) {
        tree.open(array.index(0), &Origin::Default);
    }
    if let Some((gap, after)) = (0..).zip(indices).find(|(expected, index)| expected != index) {
        let missing = array.index(gap);
        let mend = format!("number the tables from 0 without a gap: {missing} is missing");
        let origin = tree.given.get(&array.index(after)).map(|given| given.origin.clone());
        tree.bad(&array, &origin.unwrap_or(Origin::Default), "there is a gap", mend);
    }
}

/// `format = "debezium"` also chooses that preset where none is written beside it.
fn add_presets(tree: &mut Tree) {
    const DEBEZIUM: &str = "debezium";
    let (format, preset) = (name_of!(Route, format), name_of!(Route, preset));
    let chosen = tree.given.iter().filter(|(path, given)| {
        let is_format = path.name() == format && path.parent().name() == "route";
        is_format && given.raw.text() == Some(DEBEZIUM)
    });
    let presets = chosen.map(|(path, given)| (path.parent().child(preset), given.origin.clone()));
    for (path, origin) in presets.collect::<Vec<_>>() {
        let preset = || Given { raw: Raw::Word(DEBEZIUM.to_owned()), origin };
        tree.given.entry(path).or_insert_with(preset);
    }
}
