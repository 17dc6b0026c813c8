//! Forward and backward pass of one view.

use super::appearance::ColorStep;
use super::schedule::scaled;
use super::span::ImageSpan;
use crate::backend::{
    AdamStep, Compensation, DeviceError, Held as _, LossValues, Objective, OtherView, Rates,
    RenderSettings, Statistics, Terms, TrainDevice, TrainRequest,
};
use crate::config::OptimizeOptions;
use crate::dataset::View;
use crate::math::Divisor;
use crate::math::adam::{Moments, batch_rate};
use crate::memory::Bytes;

/// Inputs of one view's forward and backward pass.
#[derive(Debug)]
pub(crate) struct ViewInputs<'a, N, T> {
    pub(crate) view: &'a View,
    pub(crate) settings: RenderSettings,
    /// Statistics that density control gathers.
    pub(crate) observe: Option<Statistics>,
    /// Divisor of the view's size relative to its photograph.
    pub(crate) divisor: Divisor,
    /// Colour change before the comparison.
    pub(crate) compensation: Option<Compensation>,
    pub(crate) terms: &'a Terms,
    /// Nearest neighbours of all Gaussians, if needed.
    pub(crate) near: Option<&'a N>,
    /// Neighbour view for comparison, if any.
    pub(crate) other: Option<OtherView<'a, T>>,
}

/// Losses and activations of one view.
pub(crate) struct ViewOutputs<B: TrainDevice> {
    /// Values of the terms at pixels.
    pub(crate) pixels: B::Losses,
    /// Values of the terms at samples.
    pub(crate) samples: B::Losses,
    /// Bytes of the frame.
    pub(crate) activations: Bytes,
}

/// Adds the gradients of a view's loss to a step, and updates the view's colour table if it is learned.
pub(crate) fn add_gradients<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    target: &B::Target,
    inputs: &ViewInputs<'_, B::Lists, B::Target>,
    colors: Option<ColorStep<'_, B::Tables>>,
    gradients: &mut B::Gradients,
) -> Result<ViewOutputs<B>, DeviceError> {
    let &ViewInputs { view, observe, divisor, compensation, terms, near, other, .. } = inputs;
    let request = TrainRequest { observe, inputs: terms.needs(), compensation, divisor };
    let frame = device.render_train(model, view, &inputs.settings, &request)?;
    let objective = Objective { target, terms, near, other };
    let (frame, pixels) = match colors {
        None => device.objective(model, frame, &objective)?,
        Some(ColorStep { tables, step }) => {
            let frame = device.compensate(tables, frame, &step)?;
            let (frame, losses) = device.objective(model, frame, &objective)?;
            (device.learn(tables, frame, &step)?, losses)
        }
    };
    let activations = frame.bytes();
    let samples = device.backward(model, frame, near, gradients)?;
    Ok(ViewOutputs { pixels, samples, activations })
}

// Adam's step for a batch, expressed in steps of single images.

/// Returns the Adam step over these images, given the learning rates of a single image. The stage began after `start`
/// images with zero moments.
///
/// A step along the mean gradient of several images replaces as many single steps. Its rates and moments follow
/// [`Moments::of_batch`] unless `no_batch_scaling` is set.
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

/// Returns the factor on the learning rates of the step over these images.
pub(super) fn rate_factor(options: &OptimizeOptions, span: ImageSpan) -> f64 {
    if options.no_batch_scaling { 1.0 } else { batch_rate(span.images()) }
}

// Mean losses over the views of a step.

/// Sums of loss values over views.
#[derive(Debug, Default)]
pub(super) struct MeanLosses {
    total: f64,
    views: u32,
    /// Terms of all views.
    pub(super) terms: Terms,
    /// Keys with the sum of their values and the number of views that have them.
    sums: Vec<(&'static str, f64, u32)>,
}

impl MeanLosses {
    /// Adds the loss values of a view, at its pixels and at samples.
    pub(super) fn add(&mut self, terms: Terms, [pixels, samples]: [LossValues; 2]) {
        self.total += pixels.total;
        for (key, value) in [pixels.pairs, samples.pairs].concat() {
            match self.sums.iter_mut().find(|(known, ..)| *known == key) {
                Some((_, sum, views)) => (*sum, *views) = (*sum + value, *views + 1),
                None => self.sums.push((key, value, 1)),
            }
        }
        if self.views == 0 {
            self.terms = terms;
        } else {
            terms.active().for_each(|weighted| self.terms.add(weighted.term, weighted.weight));
        }
        self.views += 1;
    }

    /// Returns the mean loss.
    pub(super) fn total(&self) -> f64 {
        self.total / f64::from(self.views.max(1))
    }

    /// Returns the mean of each key over the views that have it.
    pub(super) fn pairs(&self) -> Vec<(&'static str, f64)> {
        self.sums.iter().map(|&(key, sum, views)| (key, sum / f64::from(views))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Term;
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

    /// Compares moments up to the rounding of powers, which depends on the compiler.
    fn assert_alike(found: Moments, expected: Moments) {
        assert_eq!((found.betas, found.epsilon), (expected.betas, expected.epsilon));
        for (found, expected) in found.corrections.into_iter().zip(expected.corrections) {
            assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
        }
    }

    fn terms(list: &[Term]) -> Terms {
        let mut terms = Terms::default();
        list.iter().for_each(|&term| terms.add(term, 1.0));
        terms
    }

    fn values(total: f64, pairs: &[(&'static str, f64)]) -> LossValues {
        LossValues { total, pairs: pairs.to_vec() }
    }

    #[test]
    fn a_key_is_averaged_over_the_views_that_have_it() {
        let photometric = Term::Photometric { lambda_dssim: 0.2, empty_weight: 0.0 };
        let mut mean = MeanLosses::default();
        mean.add(terms(&[photometric]), [values(0.5, &[("l1", 0.25)]), LossValues::default()]);
        let with_depths = values(1.5, &[("l1", 0.75), ("depth_l1", 4.0)]);
        let samples = values(0.0, &[("entropy", 2.0)]);
        mean.add(terms(&[photometric, Term::InverseDepth, Term::Entropy]), [with_depths, samples]);
        assert_eq!(mean.total(), 1.0);
        assert_eq!(mean.pairs(), [("l1", 0.5), ("depth_l1", 4.0), ("entropy", 2.0)]);
        let active: Vec<Term> = mean.terms.active().map(|weighted| weighted.term).collect();
        assert_eq!(active, [photometric, Term::InverseDepth, Term::Entropy]);
    }

    #[test]
    fn losses_of_one_view_are_unchanged() {
        let mut mean = MeanLosses::default();
        let pairs = [("l1", 0.1), ("ssim", 0.7)];
        mean.add(Terms::default(), [values(0.3, &pairs), LossValues::default()]);
        assert_eq!((mean.total(), mean.pairs()), (0.3, pairs.to_vec()));
    }
}
