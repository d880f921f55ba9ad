use super::*;

#[test]
fn waits_grow_to_the_cap_and_fill_the_range() {
    let (base, cap) = (Duration::from_millis(50), Duration::from_secs(5));
    let mut longest = Duration::ZERO;
    for seed in 0..200 {
        let mut backoff = Backoff::seeded(base, cap, seed);
        assert!(backoff.next_delay() <= base);
        for _ in 0..20 {
            let delay = backoff.next_delay();
            assert!(delay <= cap);
            longest = longest.max(delay);
        }
    }
    assert!(longest > cap / 2, "full jitter reaches the cap");
}

#[test]
fn first_waits_fill_the_range_where_seeds_are_the_nanoseconds_of_a_second() {
    let base = Duration::from_secs(8);
    let first = |nanos| Backoff::seeded(base, base, nanos).next_delay();
    let mut eighths = [0; 8];
    for at in 0..1_000 {
        eighths[first(at * 999_983).as_secs() as usize] += 1;
    }
    assert!(eighths.iter().all(|count| (100..150).contains(count)), "{eighths:?}");
}
