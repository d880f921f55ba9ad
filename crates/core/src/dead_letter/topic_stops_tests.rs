use super::*;

#[test]
fn of_many_stops_the_last_are_known() {
    let mut stops = TopicStops::default();
    for since_unix_us in 0..100 {
        let stop = Stop { code: "slot.moved".to_owned(), since_unix_us, ..Stop::default() };
        let body = StopBody { slot: "a".to_owned(), stop, ..StopBody::default() };
        stops.apply(&StopRecord::new(StopRecordKind::Stopped, body));
    }
    let since = stops.standing.iter().map(|it| it.since_unix_us).collect::<Vec<_>>();
    assert_eq!(since, (84..100).collect::<Vec<_>>());
}
