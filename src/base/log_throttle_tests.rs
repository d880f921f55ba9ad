use super::*;

#[test]
fn a_flood_is_told_a_few_times_a_second_and_what_was_not_is_counted() {
    let (mut voice, now) = (Voice::new(2), Instant::now());
    let said = [(); 5].map(|()| voice.speaks(now));
    assert_eq!(said, [Some(0), Some(0), None, None, None]);
    assert_eq!(voice.speaks(now + PERIOD), Some(3));
    assert_eq!(voice.speaks(now + PERIOD), Some(0));
}
