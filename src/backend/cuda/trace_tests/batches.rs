//! What the views of a batch take, and what they hold until the step.

use super::case::Case;
use super::expected::Expected;
use super::{AT_REST, DryRun, Gradients, Model, NearestLists, Target};
use crate::abi::terms::Terms;
use crate::backend::{
    AdamStep, Device as _, DeviceError, Drawing, Neighbours as _, Objective, Pending as _, Photo,
    Render as _, Stay, Store as _,
};
use crate::math::Divisor;
use crate::memory::plan::PlannedBatch;
use crate::model::Gaussians;

impl DryRun {
    /// Adds the gradients of a view to those of its batch. What was to be taken for it.
    fn add_view(
        &mut self,
        model: &mut Model,
        (number, target, near): (u32, &Target, Option<&NearestLists>),
        gradients: &mut Gradients,
    ) -> Result<(Expected, Terms), DeviceError> {
        let case = self.case;
        let mut seen = case.views[number as usize % 2];
        seen.visible = seen.visible.min(u32::try_from(model.len()).unwrap_or(u32::MAX));
        seen.instances = if seen.visible == 0 { 0 } else { seen.instances };
        self.seen.set(seen);
        let coarse = case.coarse.filter(|_| near.is_some());
        let terms = case.terms(coarse);
        let wants = case.wants(coarse);
        let drawing = Drawing::trained(&case.settings(), &wants);
        let expected = Expected::of(&self.device.session, model, seen, case.px, drawing);
        let device = &mut self.device;
        let frame = device.render_train(model, &case.view(), &case.settings(), &wants)?;
        let objective = Objective { target, terms: &terms, near, other: case.other(target) };
        let (frame, loss) = device.objective(model, frame, &objective)?;
        let samples = device.backward(model, frame, near, gradients)?;
        assert!(samples.is_ready() && loss.is_ready());
        Ok((expected, terms))
    }
}

#[test]
fn views_of_a_batch_keep_their_gradients_alone_until_the_step() -> Result<(), DeviceError> {
    for seed in 0..60 {
        let mut run =
            DryRun::open(Case { compensation: None, divisor: Divisor::One, ..Case::of(seed) })?;
        let case = run.case;
        let mut model = run.device.upload(&Gaussians::zeros(case.sh_degree, case.gaussians))?;
        let photograph = case.photograph();
        let photo = Photo { image: &photograph, stay: Stay::Resident(0) };
        let target = run.device.upload_target(photo)?;
        let lists = run.device.neighbours(&model, case.neighbours)?;
        drop(run.device.session.heap.trace().take());
        for near in [None, Some(&lists)] {
            let (mut gradients, mut expected) = (Gradients::default(), Vec::new());
            for number in 1..=4 {
                let view = (number, &target, near);
                expected.push(run.add_view(&mut model, view, &mut gradients)?);
            }
            run.device.step(&mut model, gradients, &AdamStep::new(4, AT_REST))?;
            run.record("batch", |source| {
                let mut kept = PlannedBatch::default();
                for (view, terms) in &expected {
                    view.add_to(source, &mut kept, Some(terms));
                }
            });
        }
    }
    Ok(())
}
