use std::collections::BTreeMap;

use super::kind::SettingValue;
use super::*;
use kind::{FILLED, IDENTIFIER};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colour {
    Red,
    Blue,
}

impl Choice for Colour {
    const WORDS: &'static [(&'static str, Colour)] =
        &[("red", Colour::Red), ("blue", Colour::Blue)];
}

settings! {
    #[derive(Debug, PartialEq, Eq)]
    struct Wheel {
        /// How many spokes
        /// it has.
        spokes: u32 = integer(1, 99).default("32").default_when_polled("16"),
        /// Its colour.
        colour: Colour = choice().default("blue"),
        /// The name of the thing.
        label ["name"]: Option<String> = text(FILLED).or_none("nothing"),
        /// No key.
        turns: u64,
    }
}

settings! {
    #[derive(Debug, PartialEq, Eq)]
    struct Cart {
        wheel: Wheel = flattened(),
        /// The other wheels.
        more: Vec<Wheel> = sections(),
        /// A spare one.
        spare: Option<Wheel> = optional_section(),
        /// The texts that are written on the thing.
        texts: BTreeMap<String, String> = map(text(IDENTIFIER)),
    }
}

fn names(fields: &[SettingField]) -> Vec<&str> {
    fields.iter().map(|field| field.name).collect()
}

#[test]
fn a_declaration_gives_rows_in_order_with_their_documents() {
    let fields = Wheel::fields();
    assert_eq!(names(&fields), ["spokes", "colour", "name"]);
    assert_eq!(fields[0].doc, " How many spokes it has.");
    let Shape::Key(row) = fields[0].shape else { panic!() };
    assert_eq!(row.default_value(true), Some(SettingValue::Integer(16)));
    assert_eq!(names(&Cart::fields()), ["spokes", "colour", "name", "more", "spare", "texts"]);
}

#[test]
fn what_is_absent_has_its_default() {
    let wheel = Wheel { spokes: 32, colour: Colour::Blue, label: None, turns: 0 };
    assert_eq!(Wheel::default(), wheel);
    let cart = Cart { wheel, more: Vec::new(), spare: None, texts: BTreeMap::new() };
    assert_eq!(Cart::default(), cart);
}

#[test]
fn values_are_read_by_name() {
    let text = |text: &str| SettingValue::Text(text.into());
    let wheel = BTreeMap::from([("colour".into(), text("red")), ("name".into(), text("left"))]);
    let wheel = || SettingValue::Section(wheel.clone());
    let cart = Cart::read(&BTreeMap::from([
        ("spokes".into(), SettingValue::Integer(7)),
        ("more".into(), SettingValue::Sections(vec![wheel()])),
        ("spare".into(), wheel()),
        ("texts".into(), SettingValue::Section(BTreeMap::from([("a".into(), text("b"))]))),
    ]));
    let red = || Wheel { colour: Colour::Red, label: Some("left".into()), ..Wheel::default() };
    assert_eq!(cart.wheel, Wheel { spokes: 7, ..Wheel::default() });
    assert_eq!((cart.more, cart.spare), (vec![red()], Some(red())));
    assert_eq!(cart.texts, BTreeMap::from([("a".into(), "b".into())]));
    assert_eq!(name_of!(Cart, texts), "texts");
}
