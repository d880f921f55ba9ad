use super::*;

fn id(low: u64) -> [u8; 16] {
    u128::from(low).to_be_bytes()
}

#[test]
fn all_none_and_half() {
    let ids = [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX].map(id);
    assert_eq!(ids.map(|id| Sampler::new(1.0).samples(id)), [true; 5]);
    assert_eq!(ids.map(|id| Sampler::new(0.0).samples(id)), [false; 5]);
    assert_eq!(ids.map(|id| Sampler::new(0.5).samples(id)), [true, true, true, false, false]);
}

#[test]
fn a_larger_ratio_records_what_a_smaller_one_does() {
    let ids = (0..1000_u64).map(|n| id(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    for id in ids {
        let recorded = [0.01, 0.1, 0.5, 1.0].map(|ratio| Sampler::new(ratio).samples(id));
        assert!(recorded.is_sorted(), "{recorded:?}");
    }
}
