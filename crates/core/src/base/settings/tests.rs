use std::collections::BTreeMap;

use super::key::Absent;
use super::kind::{FILLED, IDENTIFIER, Raw};
use super::visit::{known_keys, section_of};
use super::*;

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
        /// Its colour.
        colour: Colour = choice().default("blue"),
        /// How many spokes
        /// it has.
        spokes: u32 = integer(1, 99).default("32").default_when(&["colour"], "red", "16"),
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
        /// Who may open it.
        lock: Option<Lock> = section_when("name", "locked"),
        /// The texts that are written on the thing.
        texts: BTreeMap<String, String> = map(text(IDENTIFIER)),
    }
}

settings! {
    #[derive(Debug, PartialEq, Eq)]
    struct Lock {
        /// Who has the key.
        owner: String = text(FILLED).required("me"),
    }
}

#[test]
fn a_declaration_gives_keys_in_order_with_their_documents() {
    let keys = known_keys::<Cart>();
    let paths: Vec<&str> = keys.iter().map(|key| key.path.trim_start_matches('.')).collect();
    let own = ["colour", "spokes", "name"];
    let more = ["more[].colour", "more[].spokes", "more[].name"];
    let spare = ["spare.colour", "spare.spokes", "spare.name", "lock.owner", "texts.*"];
    assert_eq!(paths, [&own[..], &more, &spare].concat());
    assert_eq!(keys[1].doc, "How many spokes it has.");
    let spokes = (keys[1].absent, keys[1].default.clone());
    assert_eq!(spokes, (Absent::Default("32"), Some(32.into())));
}

#[test]
fn what_is_absent_has_its_default() {
    let wheel = Wheel { spokes: 32, colour: Colour::Blue, label: None, turns: 0 };
    assert_eq!(Wheel::default(), wheel);
    let (texts, more) = (BTreeMap::new(), Vec::new());
    assert_eq!(Cart::default(), Cart { wheel, more, spare: None, lock: None, texts });
    let red: Wheel = section_of(&[("colour", "red")]).read();
    assert_eq!((red.colour, red.spokes), (Colour::Red, 16));
}

#[test]
fn values_are_read_by_name() {
    let mut visit = section_of(&[
        ("spokes", "7"),
        ("spare.colour", "red"),
        ("spare.name", "left"),
        ("texts.a", "b"),
    ]);
    // GIVEN an array with a gap
    for (index, spokes) in [(0, "1"), (2, "3")] {
        let path = Path::of(&["more"]).index(index).child("spokes");
        visit.tree.set(path, Raw::Word(spokes.to_owned()), &Origin::Default);
    }
    let cart: Cart = visit.read();
    assert_eq!(cart.wheel, Wheel { spokes: 7, ..Wheel::default() });
    // THEN it is read up to the gap
    assert_eq!(cart.more, [Wheel { spokes: 1, ..Wheel::default() }]);
    let label = Some("left".into());
    assert_eq!(cart.spare, Some(Wheel { colour: Colour::Red, label, spokes: 32, turns: 0 }));
    assert_eq!(cart.texts, BTreeMap::from([("a".into(), "b".into())]));
    assert!(visit.tree.problems.is_empty());
    assert_eq!(name_of!(Cart, texts), "texts");
}

#[test]
fn every_problem_is_collected_and_what_is_not_used_may_be_missing() {
    let problems = |words: &[(&str, &str)]| {
        let mut visit = section_of(words);
        let _: Cart = visit.read();
        let whats = visit.tree.problems.into_iter().map(|problem| problem.fault.what);
        whats.collect::<Vec<_>>()
    };
    let wrong = [("spokes", "0"), ("texts.\"", "\""), ("colour", "green")];
    let expected = [
        "colour: \"green\" is not one of red, blue",
        "spokes: 0 is not in the range 1 to 99",
        "texts.'\"': \"\\\"\" is not a Postgres identifier of 1 to 63 bytes, without quotes",
    ];
    assert_eq!(problems(&wrong), expected);
    assert_eq!(problems(&[("name", "locked")]), ["lock.owner: is missing"]);
    assert_eq!(problems(&[("name", "open"), ("lock.owner", "")]).len(), 1);
}
