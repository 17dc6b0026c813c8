//! What the views of a batch hold until the step.

use std::collections::BTreeMap;

use super::case::{Case, CoarseCase};
use super::{DryRun, Gradients, Model, NearestLists, Target};
use crate::backend::{
    AdamStep, Device as _, DeviceError, Neighbours as _, Objective, Pending as _, Photo, Rates,
    Render as _, Stay, Store as _, Wants,
};
use crate::memory::Bytes;
use crate::model::Gaussians;

/// Every parameter stays where it is.
const AT_REST: Rates = Rates {
    means: 0.0,
    log_scales: 0.0,
    quats: 0.0,
    opacity_logits: 0.0,
    sh_dc: 0.0,
    sh_rest: 0.0,
};

impl DryRun {
    /// Adds the gradients of a view to those of its batch.
    fn add_view(
        &mut self,
        model: &mut Model,
        (number, target, near): (u32, &Target, Option<&NearestLists>),
        gradients: &mut Gradients,
    ) -> Result<(), DeviceError> {
        let case = self.case;
        let mut seen = case.views[number as usize % 2];
        seen.visible = seen.visible.min(u32::try_from(model.len()).unwrap_or(u32::MAX));
        seen.instances = if seen.visible == 0 { 0 } else { seen.instances };
        self.seen.set(seen);
        let coarse = case.coarse.filter(|_| near.is_some());
        let terms = &case.terms(coarse);
        let wants = Wants { in_batch: true, ..case.wants(coarse) };
        let device = &mut self.device;
        let frame = device.render_train(model, &case.view(), &case.settings(), &wants)?;
        let (frame, loss) = device.objective(model, frame, &Objective { target, terms, near })?;
        let samples = device.backward(model, frame, near, gradients)?;
        assert!(samples.is_ready() && loss.is_ready());
        Ok(())
    }

    /// How many blocks of each label were taken since the last call and not given back.
    fn count(&mut self, live: &mut BTreeMap<&'static str, i64>) {
        for event in self.device.session.heap.trace().take() {
            *live.entry(event.label).or_default() += if event.is_take { 1 } else { -1 };
        }
        live.retain(|_, count| *count != 0);
    }
}

/// Where maps are drawn, what splats gave to them stays with its gradients.
#[test]
fn views_of_a_batch_keep_their_gradients_alone_until_the_step() -> Result<(), DeviceError> {
    for seed in 0..60 {
        let mut run = DryRun::open(Case { compensation: None, ..Case::of(seed) })?;
        let case = run.case;
        let mut model = run.device.upload(&Gaussians::zeros(case.sh_degree, case.gaussians))?;
        let photograph = case.photograph();
        let photo = Photo { image: &photograph, stay: Stay::Resident(0) };
        let target = run.device.upload_target(photo)?;
        let lists = run.device.neighbours(&model, case.neighbours)?;
        run.count(&mut BTreeMap::new());
        for near in [None, Some(&lists)] {
            let (mut gradients, mut live) = (Gradients::default(), BTreeMap::new());
            for number in 1..=4 {
                run.add_view(&mut model, (number, &target, near), &mut gradients)?;
                run.count(&mut live);
                let mut left = live.clone();
                for label in ["splat of each Gaussian", "gradients of splats"] {
                    assert_eq!(left.remove(label), Some(number.into()), "{label} in {case:?}");
                }
                let drawn = near.and(case.coarse);
                if matches!(drawn, Some(CoarseCase::Normals | CoarseCase::Distances)) {
                    let features = left.remove("features of splats");
                    assert_eq!(left.remove("gradients of features"), features);
                }
                if drawn.is_some() {
                    assert!(left.remove("surface gradients").unwrap_or(0) <= 1);
                }
                assert!(left.is_empty(), "{left:?} in {case:?}");
            }
            run.device.step(&mut model, gradients, &AdamStep::new(4, AT_REST))?;
            assert_eq!(run.device.session.heap.live_scratch(), Bytes(0), "{case:?}");
            run.count(&mut live);
        }
    }
    Ok(())
}
