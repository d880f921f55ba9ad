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
