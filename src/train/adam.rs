//! What a step down the mean gradient of some images is, beside a step of one.

use super::span::ImageSpan;
use crate::backend::{AdamStep, Rates};
use crate::config::OptimizeOptions;
use crate::math::adam::{Moments, batch_rate};

/// The step over these images, with the learning rates of a step of one image, in a stage that began
/// after `start` images with moments of zero.
///
/// A step down the mean gradient of several images stands for as many steps of one: its rates and its
/// moments follow [`Moments::of_batch`], unless the options say that they do not.
pub(super) fn adam_step(
    options: &OptimizeOptions,
    span: ImageSpan,
    start: u32,
    rates: Rates,
) -> AdamStep {
    let number = span.after - start;
    let step = AdamStep::new(number, rates);
    if options.no_batch_scaling {
        let steps = number.div_ceil(options.batch_views.max(1));
        return AdamStep { moments: Moments::of_step(steps), ..step };
    }
    let rates = scaled(rates, rate_factor(options, span));
    AdamStep { moments: Moments::of_batch(number, span.images()), rates, ..step }
}

/// Factor of the learning rates of the step over these images.
pub(super) fn rate_factor(options: &OptimizeOptions, span: ImageSpan) -> f64 {
    if options.no_batch_scaling { 1.0 } else { batch_rate(span.images()) }
}

fn scaled(rates: Rates, factor: f64) -> Rates {
    let Rates { means, log_scales, quats, opacity_logits, sh_dc, sh_rest } = rates;
    Rates {
        means: means * factor,
        log_scales: log_scales * factor,
        quats: quats * factor,
        opacity_logits: opacity_logits * factor,
        sh_dc: sh_dc * factor,
        sh_rest: sh_rest * factor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::schedule;

    #[test]
    fn rates_grow_with_the_root_of_the_batch_and_moments_decay_by_images() {
        let options = OptimizeOptions { batch_views: 4, ..OptimizeOptions::default() };
        let rates = schedule::rates(&options, 1.0, 100);
        let span = ImageSpan { before: 1096, after: 1100 };
        let step = adam_step(&options, span, 1000, rates);
        assert_eq!((step.number, step.rates.quats), (100, 2.0 * rates.quats));
        assert_alike(step.moments, Moments::of_batch(100, 4));
        let plain = OptimizeOptions { no_batch_scaling: true, ..options };
        let step = adam_step(&plain, span, 1000, rates);
        assert_eq!(step.rates, rates);
        assert_alike(step.moments, Moments::of_step(25));
    }

    /// But for the rounding of powers, which compilers may take themselves.
    fn assert_alike(found: Moments, expected: Moments) {
        assert_eq!((found.betas, found.epsilon), (expected.betas, expected.epsilon));
        for (found, expected) in found.corrections.into_iter().zip(expected.corrections) {
            assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
        }
    }
}
