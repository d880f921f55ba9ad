//! Scales: round ticks, finite places, nothing outside the paper; and labels that keep apart.

use super::*;

fn majors(scale: &Scale) -> Vec<f64> {
    let majors = scale.ticks().into_iter().filter(|(_, major)| *major);
    majors.map(|(value, _)| (value * 1e6).round() / 1e6).collect()
}

#[test]
fn a_linear_axis_has_round_ticks() {
    assert_eq!(majors(&Scale::linear(29.0, (0.0, 1.0))), [0.0, 10.0, 20.0]);
    assert_eq!(majors(&Scale::linear(1.0, (0.0, 1.0))), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
    assert_eq!(majors(&Scale::linear(0.0, (0.0, 1.0))).first(), Some(&0.0));
}

#[test]
fn a_linear_scale_turns_values_into_places() {
    let scale = Scale::linear(10.0, (100.0, 0.0));
    assert_eq!([0.0, 5.0, 10.0].map(|value| scale.at(value)), [100.0, 50.0, 0.0]);
}

#[test]
fn a_logarithmic_axis_names_decades_and_when_short_also_2_and_5() {
    let long = Scale::log([0.3, 2_100.0].into_iter(), (0.0, 1.0));
    assert_eq!(majors(&long), [1.0, 10.0, 100.0, 1_000.0]);
    assert!(long.ticks().len() > 10, "the others are lines without a word");
    let short = Scale::log([3.0, 9.0].into_iter(), (0.0, 1.0));
    assert_eq!(majors(&short), [2.0, 5.0, 10.0, 20.0]);
}

#[test]
fn equal_factors_are_equally_far_apart() {
    let scale = Scale::log([1.0, 1_000.0].into_iter(), (0.0, 300.0));
    for (value, place) in [(1.0, 0.0), (10.0, 100.0), (100.0, 200.0), (1_000.0, 300.0)] {
        assert!((scale.at(value) - place).abs() < 1e-6, "{value}");
    }
}

#[test]
fn counts_have_a_place_for_zero() {
    let scale = Scale::count(4_000.0, (0.0, 100.0));
    assert_eq!(majors(&scale), [0.0, 1.0, 10.0, 100.0, 1_000.0]);
    assert_eq!(scale.at(0.0), 0.0);
    assert!(scale.at(1.0) > 5.0);
}

#[test]
fn whatever_comes_in_a_place_on_the_paper_comes_out() {
    let strange = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, f64::MAX, 1e-300];
    let nothing = || std::iter::empty::<f64>();
    let mut scales = vec![Scale::log(nothing(), (10.0, 90.0))];
    for high in strange {
        scales.push(Scale::linear(high, (10.0, 90.0)));
        scales.push(Scale::log([high].into_iter(), (10.0, 90.0)));
        scales.push(Scale::count(high, (10.0, 90.0)));
    }
    for scale in scales {
        for value in strange {
            assert!((10.0..=90.0).contains(&scale.at(value)), "{value} on {scale:?}");
        }
        assert!(scale.ticks().len() < 2_000, "{scale:?}");
    }
}

#[test]
fn labels_keep_apart_and_near_their_places() {
    let wishes =
        |places: &[f64]| -> Vec<(f64, f64)> { places.iter().map(|at| (*at, 10.0)).collect() };
    assert_eq!(apart(&wishes(&[20.0, 60.0]), 0.0, 100.0), [20.0, 60.0]);
    assert_eq!(apart(&wishes(&[50.0, 50.0, 49.0]), 0.0, 100.0), [59.0, 69.0, 49.0]);
    assert_eq!(apart(&wishes(&[99.0, 98.0]), 0.0, 100.0), [95.0, 85.0]);
    assert_eq!(apart(&[], 0.0, 100.0), [0.0; 0]);
}
