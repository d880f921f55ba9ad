use super::*;
use crate::source::settings::PostgresHost;
use crate::source::slot_state::SlotHolder;

#[test]
fn a_sighting_counts_until_there_is_a_session_of_another_server() {
    let sightings = Sightings::default();
    let open = |server: &str| {
        let host = PostgresHost { name: "db".to_owned(), port: 5432, password: None };
        sightings.opened(Walsender { host, server: server.into(), pid: 1 });
    };
    open("a");
    let run = ServerRun::new("a".into(), None);
    let holder = Some(SlotHolder { pid: 1, ..SlotHolder::default() });
    sightings.look(&HeldSlot { run, holder, ..HeldSlot::default() }, Instant::now());
    open("a");
    assert!(sightings.last().is_some());
    open("b");
    assert_eq!(sightings.last(), None);
}
