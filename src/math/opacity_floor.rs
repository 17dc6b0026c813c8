//! Opacities that do not fall below a floor (MeshSplatting, Held et al. 2025): of a logit w it is
//! floor + (1 - floor) sigmoid(w).

use super::{Real, inverse_sigmoid, sigmoid, sigmoid_bwd};

/// Least share of the way from the floor to 1 that a logit is given for, and what is left to 1 at least.
const SHARE_MIN: f64 = 1e-6;

/// The opacity of a logit above this floor.
pub fn floored<R: Real>(logit: R, floor: R) -> R {
    floor + (R::ONE - floor) * sigmoid(logit)
}

/// `d_logit` of [`floored`].
pub fn floored_bwd<R: Real>(logit: R, floor: R, d_opacity: R) -> R {
    sigmoid_bwd(sigmoid(logit), d_opacity * (R::ONE - floor))
}

/// The logit of the mean of two opacities. It is the same whatever the floor.
pub fn mean_logit<R: Real>(logits: [R; 2]) -> R {
    let share = (sigmoid(logits[0]) + sigmoid(logits[1])) * R::HALF;
    inverse_sigmoid(share.max(R::of(SHARE_MIN)).min(R::of(1.0 - SHARE_MIN)))
}

/// The logit of the same opacity when the floor rises; of one below the new floor that which is next to it.
pub fn raised_logit<R: Real>(logit: R, before: R, after: R) -> R {
    let least = R::of(SHARE_MIN);
    let opacity = floored(logit, before).max(after + least).min(R::ONE - least);
    inverse_sigmoid((opacity - after) / (R::ONE - after + least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opacities_stay_when_the_floor_rises_and_those_below_rise_to_it() {
        for (logit, before, after) in [(0.3, 0.0, 0.1), (2.0, 0.1, 0.4), (4.0, 0.5, 0.9)] {
            let raised: f64 = raised_logit(logit, before, after);
            let [old, new] = [floored(logit, before), floored(raised, after)];
            assert!((old - new).abs() < 2e-6, "{old} {new}");
        }
        let lifted: f64 = floored(raised_logit(-3.0, 0.0, 0.2), 0.2);
        assert!((lifted - 0.2).abs() < 2e-6, "{lifted}");
        // What is saturated has a logit, too.
        for logit in [-200.0, 200.0] {
            assert!(raised_logit::<f64>(logit, 0.99, 0.9999).is_finite());
            assert!(raised_logit::<f64>(logit, 0.9999, 0.9999).is_finite());
        }
    }

    #[test]
    fn a_mean_is_that_of_the_opacities_above_any_floor() {
        for floor in [0.0, 0.3, 0.9999] {
            let mean = floored(mean_logit([-1.0, 2.0]), floor);
            let expected: f64 = 0.5 * (floored(-1.0, floor) + floored(2.0, floor));
            assert!((mean - expected).abs() < 1e-15);
        }
        assert!(mean_logit([200.0_f32, 300.0]).is_finite());
    }

    #[test]
    fn the_gradient_is_that_of_differences() {
        let (logit, floor, h) = (0.7, 0.3, 1e-5);
        let difference = (floored(logit + h, floor) - floored(logit - h, floor)) / (2.0 * h);
        assert!((floored_bwd::<f64>(logit, floor, 2.0) - 2.0 * difference).abs() < 1e-9);
    }
}
