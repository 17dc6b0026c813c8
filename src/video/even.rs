//! Equal steps along a curve.

use crate::math::linalg::{Vec3, length, sub};

/// Pieces of a curve whose lengths are summed.
const PIECES: u32 = 4096;

/// So many parameters from 0 to 1 between which a curve is equally long. A closed curve ends a step before
/// it begins again; one without a length has equal steps of the parameter.
pub(super) fn even_steps(count: usize, closed: bool, place: impl Fn(f64) -> Vec3<f64>) -> Vec<f64> {
    let parameter = |piece: u32| f64::from(piece) / f64::from(PIECES);
    let places: Vec<Vec3<f64>> = (0..=PIECES).map(|piece| place(parameter(piece))).collect();
    let mut lengths = vec![0.0];
    for pair in places.windows(2) {
        lengths.push(lengths[lengths.len() - 1] + length(sub(pair[1], pair[0])));
    }
    let whole = lengths[lengths.len() - 1];
    let steps = if closed { count } else { count.saturating_sub(1) };
    let share = |step: usize| if steps == 0 { 0.0 } else { step as f64 / steps as f64 };
    if !(whole > 0.0 && whole.is_finite()) {
        return (0..count).map(share).collect();
    }
    let at = |step: usize| {
        let wanted = share(step) * whole;
        let above = lengths.partition_point(|&length| length < wanted).clamp(1, places.len() - 1);
        let (low, high) = (lengths[above - 1], lengths[above]);
        let within = if high > low { (wanted - low) / (high - low) } else { 0.0 };
        ((above - 1) as f64 + within.clamp(0.0, 1.0)) / f64::from(PIECES)
    };
    (0..count).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_equally_long_and_a_closed_curve_does_not_end_twice() {
        // Three times as fast behind the middle.
        let place = |t: f64| [if t < 0.5 { t } else { 0.5 + 3.0 * (t - 0.5) }, 0.0, 0.0];
        for (closed, count) in [(false, 9), (true, 8)] {
            let places: Vec<f64> =
                even_steps(count, closed, place).into_iter().map(|t| place(t)[0]).collect();
            // A piece of the table is known to its length.
            for pair in places.windows(2) {
                assert!((pair[1] - pair[0] - 0.25).abs() < 2.0 / f64::from(PIECES), "{places:?}");
            }
            assert!(places[0].abs() < 1e-9);
        }
    }

    #[test]
    fn a_curve_that_stays_at_a_place_has_equal_steps() {
        assert_eq!(even_steps(3, false, |_| [1.0; 3]), [0.0, 0.5, 1.0]);
        assert_eq!(even_steps(1, false, |_| [1.0; 3]), [0.0]);
        assert_eq!(even_steps(0, true, |t| [t; 3]), [0.0; 0]);
    }
}
