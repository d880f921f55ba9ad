//! A row of marks that shows how a value went.

/// From zero to the greatest value.
pub(super) const BLOCKS: [char; 5] = ['▁', '▂', '▃', '▅', '▇'];
pub(super) const ASCII: [char; 5] = ['.', ':', '-', '=', '#'];

/// The last `marks` values, the newest at the right; a blank where a value is missing. The lowest mark
/// is zero, the highest the greatest of the values that are shown.
pub(super) fn sparkline(values: &[Option<f64>], marks: usize, levels: [char; 5]) -> String {
    let shown = last(values, marks);
    let greatest = greatest(shown);
    let mark = |value: &Option<f64>| match *value {
        None => ' ',
        Some(value) if value <= 0.0 || greatest <= 0.0 => levels[0],
        Some(value) => levels[((value / greatest * 4.0).ceil() as usize).clamp(1, 4)],
    };
    let missing = marks - shown.len();
    std::iter::repeat_n(' ', missing).chain(shown.iter().map(mark)).collect()
}

/// The last so many values, or all.
pub(super) fn last(values: &[Option<f64>], count: usize) -> &[Option<f64>] {
    &values[values.len().saturating_sub(count)..]
}

pub(super) fn greatest(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().fold(0.0, f64::max)
}

#[cfg(test)]
#[path = "sparkline_tests.rs"]
mod tests;
