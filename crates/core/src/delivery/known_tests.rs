use super::*;

fn at(commit: u64, ordinal: u64) -> Position {
    Position { commit_lsn: Lsn::from_wire(commit), ordinal }
}

fn event<'a>(id: &'a str, key: Option<&'a [u8]>, value: &'a [u8]) -> Outbound<'a> {
    Outbound { topic: "t", key, value: Some(value), id, commit_unix_us: 5, ..Outbound::default() }
}

fn mark(commit: u64, key: u32) -> Mark {
    let fingerprint = Fingerprint { event: commit, key };
    Mark { position: at(commit, 0), fingerprint, is_dead_letter: false }
}

fn passes_over(known: &mut KnownEvents, fingerprint: Fingerprint) -> bool {
    known.pass_over(Position::default(), fingerprint, Stored::Unknown).is_some()
}

/// Which of the events from `from` on are passed over, given as commit and key, when they come in
/// this order.
fn passed_over(marks: &[Mark], from: u64, events: &[(u64, u32)]) -> Vec<u64> {
    let mut known = KnownEvents::default();
    known.load(marks.iter().copied(), Lsn::from_wire(from));
    let over = |&&(commit, key): &&(u64, u32)| {
        known.begin(Lsn::from_wire(commit));
        known.is_active() && passes_over(&mut known, Fingerprint { event: commit, key })
    };
    events.iter().filter(over).map(|(commit, _)| *commit).collect()
}

#[test]
fn a_fingerprint_tells_positions_and_contents_apart() {
    let base = Fingerprint::of(at(1, 0), &event("a", Some(b"k"), b"v"));
    assert_eq!(base, Fingerprint::of(at(1, 0), &event("a", Some(b"k"), b"v")));
    let later = Outbound { commit_unix_us: 6, ..event("a", Some(b"k"), b"v") };
    for other in [
        Fingerprint::of(at(1, 1), &event("a", Some(b"k"), b"v")),
        Fingerprint::of(at(2, 0), &event("a", Some(b"k"), b"v")),
        Fingerprint::of(at(1, 0), &event("b", Some(b"k"), b"v")),
        Fingerprint::of(at(1, 0), &event("a", Some(b"l"), b"v")),
        Fingerprint::of(at(1, 0), &event("a", None, b"v")),
        Fingerprint::of(at(1, 0), &event("a", Some(b"k"), b"w")),
        Fingerprint::of(at(1, 0), &event("a", Some(b""), b"kv")),
        Fingerprint::of(at(1, 0), &later),
    ] {
        assert_ne!({ base.event }, { other.event });
        assert_ne!({ other.event }, 0);
    }
    // A byte of one part is none of its neighbour.
    let parts = |id, exchange, topic| Outbound { id, exchange, topic, ..event("", None, b"v") };
    let moved =
        [parts("abcdefgh", "i", ""), parts("abcdefghi", "", ""), parts("abcdefgh", "", "i")];
    let moved = moved.map(|it| Fingerprint::of(at(1, 0), &it).event);
    assert!(moved[0] != moved[1] && moved[0] != moved[2] && moved[1] != moved[2]);
    let [empty, none] =
        [Some(&b""[..]), None].map(|key| Fingerprint::of(at(1, 0), &event("a", key, b"v")).event);
    assert_ne!(empty, none);
    assert_ne!({ base.key }, 0);
    assert_eq!(Fingerprint::of(at(1, 0), &event("a", None, b"v")).key, 0);
}

#[test]
fn a_marked_event_is_passed_over_once_and_an_older_mark_is_not_loaded() {
    let mut known = KnownEvents::default();
    let marks = [mark(10, 1), mark(20, 2), mark(30, 3)];
    assert_eq!(known.load(marks.into_iter(), Lsn::from_wire(20)), 2);
    let of = |commit, key| Fingerprint { event: commit, key };
    assert!(!passes_over(&mut known, of(10, 1)));
    assert!(passes_over(&mut known, of(20, 2)));
    assert!(!passes_over(&mut known, of(20, 2)), "one mark is one event");
    known.begin(Lsn::from_wire(30));
    assert!(known.is_active());
    known.begin(Lsn::from_wire(31));
    assert!(!known.is_active());
}

#[test]
fn behind_an_event_that_is_published_again_so_is_every_later_one_of_its_key() {
    let marks = [mark(20, 1), mark(30, 2), mark(40, 0)];
    let events = [(10, 1), (15, 0), (20, 1), (30, 2), (40, 0)];
    assert_eq!(passed_over(&marks, 0, &events), [30, 40]);
}

#[test]
fn a_key_is_published_again_only_up_to_the_first_transaction_of_which_nothing_is_known() {
    let mut known = KnownEvents::default();
    let mut decide = |commit, stored| {
        known.begin(Lsn::from_wire(commit));
        known.pass_over(at(commit, 0), Fingerprint { event: commit, key: 1 }, stored)
    };
    // GIVEN an event that is published again, because its topic does not hold it
    assert_eq!(decide(10, Stored::No), None);
    // WHEN new ones have come, and what follows a peer has published THEN that is known
    assert_eq!(decide(20, Stored::Yes), Some(KnownFrom::Topic));
}

#[test]
fn a_mark_in_front_of_that_of_an_earlier_event_of_its_key_does_not_count() {
    // GIVEN a process that repeated 10 and died before it could repeat 20
    let marks = [mark(20, 1), mark(20, 2), mark(10, 1)];
    assert_eq!(passed_over(&marks, 0, &[(10, 1), (20, 1), (20, 2)]), [10, 20]);
    // THEN it does not matter that 10 is not sent any more
    let marks = [mark(20, 1), mark(10, 1)];
    assert_eq!(passed_over(&marks, 15, &[(20, 1)]), [0_u64; 0]);
    // AND the earliest of all that were confirmed later decides.
    let marks = [mark(20, 1), mark(10, 1), mark(30, 1)];
    assert_eq!(passed_over(&marks, 15, &[(20, 1), (30, 1)]), [0_u64; 0]);
    // AND so with the mark of a dead letter.
    let marks = [Mark { is_dead_letter: true, ..mark(20, 1) }, mark(10, 1)];
    assert_eq!(passed_over(&marks, 15, &[(20, 1)]), [0_u64; 0]);
    // Events without a key are not ordered.
    let marks = [mark(20, 0), mark(10, 0)];
    assert_eq!(passed_over(&marks, 15, &[(20, 0)]), [20]);
}

#[test]
fn what_topics_have_refuted_is_forgotten_but_for_dead_letters() {
    let mut known = KnownEvents::default();
    let dead_letter = Mark { is_dead_letter: true, ..mark(20, 2) };
    known.load([mark(10, 1), dead_letter, mark(30, 3)].into_iter(), Lsn::ZERO);
    known.forget_published();
    let of = |commit, key| Fingerprint { event: commit, key };
    assert!(!passes_over(&mut known, of(10, 1)));
    assert!(passes_over(&mut known, of(20, 2)));
    known.begin(Lsn::from_wire(21));
    assert!(!known.is_active());
}

#[test]
fn marks_are_overruled_where_a_marked_event_is_published_again() {
    let prefix = ConfirmedPrefix { commit_lsn: Lsn::from_wire(20), events: 2, digest: 0 };
    let decide = |known: &mut KnownEvents, (commit, ordinal), stored| {
        let fingerprint = Fingerprint { event: commit << 8 | ordinal, key: 1 };
        known.pass_over(at(commit, ordinal), fingerprint, stored).is_some()
    };
    let claimed = || {
        let mut known = KnownEvents::default();
        known.load_prefix(prefix);
        known
    };
    // GIVEN a claim of two events THEN these are known, and no other
    let mut known = claimed();
    known.begin(Lsn::from_wire(20));
    assert!(known.is_active());
    let found = [0, 1, 2].map(|ordinal| decide(&mut known, (20, ordinal), Stored::Unknown));
    assert_eq!((found, known.take_overruled()), ([true, true, false], false));
    // GIVEN that an earlier event of the key is published again
    let mut known = claimed();
    assert!(!decide(&mut known, (10, 0), Stored::Unknown) && !known.take_overruled());
    assert!(!decide(&mut known, (20, 0), Stored::Unknown) && known.take_overruled());
    // The same for a mark, and that is told once.
    let fingerprint = Fingerprint { event: 20 << 8, key: 1 };
    let mark = Mark { position: at(20, 0), fingerprint, is_dead_letter: false };
    let mut known = KnownEvents::default();
    known.load([mark].into_iter(), Lsn::ZERO);
    assert!(!decide(&mut known, (10, 0), Stored::Unknown) && !known.take_overruled());
    assert!(!decide(&mut known, (20, 0), Stored::Unknown) && known.take_overruled());
    assert!(!known.take_overruled());
    // GIVEN that the topic does not hold what is claimed
    let mut known = claimed();
    assert!(!decide(&mut known, (20, 0), Stored::No) && known.take_overruled());
    // Nothing is overruled by what no mark says, nor is a dead letter, which is in another topic.
    let mut known = KnownEvents::default();
    assert!(!decide(&mut known, (20, 0), Stored::No) && !known.take_overruled());
    let fingerprint = Fingerprint { event: 30 << 8, key: 2 };
    let letter = Mark { position: at(30, 0), fingerprint, is_dead_letter: true };
    known.load([letter].into_iter(), Lsn::ZERO);
    assert!(known.pass_over(at(30, 0), fingerprint, Stored::No).is_some());
    assert!(!known.take_overruled());
    let mut known = claimed();
    known.begin(Lsn::from_wire(21));
    assert!(!known.is_active());
}
