//! Training views that get smaller while their steps do not fit, on a device that is not there.

use std::sync::Arc;

use super::{AT_REST, Case, DryRun, Gradients, Model, Target};
use crate::backend::cuda::stage::appearance::ColorTables;
use crate::backend::cuda::{CudaOptions, dry_run};
use crate::backend::{
    AdamStep, Appearance as _, AppearanceRule, AppearanceTables, Compensation, Device as _,
    DeviceError, Footprint, Inputs, Objective, Photo, Render as _, RenderSettings, Stay,
    Store as _, TableStep, Term, Wants,
};
use crate::dataset::{Image, View};
use crate::math::Divisor;
use crate::memory::plan::{Maps, PlannedCoarse, view_scratch};
use crate::memory::{Bytes, Rung, TrainingScale};
use crate::model::Gaussians;
use rstest::rstest;

/// 46 MiB of what pixels take.
const PX: [u32; 2] = [1600, 1200];

const TABLES_AT_REST: AppearanceRule = AppearanceRule {
    rate_init: 0.0,
    rate_final: 0.0,
    iterations: 100,
    warm_up: 10,
    epsilon: 1e-15,
    total_variation: 0.0,
};

/// What a step changes.
struct Trained {
    model: Model,
    tables: Option<ColorTables>,
}

impl Trained {
    fn on(run: &mut DryRun) -> Result<Self, DeviceError> {
        let model = run.device.upload(&Gaussians::zeros(run.case.sh_degree, run.case.gaussians))?;
        let tables = run.case.compensation.map(|kind| AppearanceTables::identity(kind, 1));
        let tables = tables.map(|tables| run.device.upload_tables(&tables)).transpose()?;
        Ok(Self { model, tables })
    }
}

fn case() -> Case {
    Case { px: PX, instances: 20_000, ..Case::SMALL }
}

fn options(give_up: &[Rung]) -> CudaOptions {
    CudaOptions { give_up: give_up.to_vec(), ..CudaOptions::default() }
}

/// A view and its photograph at a size.
fn scaled(scale: TrainingScale) -> (View, Arc<Image>) {
    let case = Case { px: scale.px(PX), ..case() };
    (case.view(), case.photograph())
}

impl DryRun {
    fn step(&mut self, trained: &mut Trained, number: u32) -> Result<(), DeviceError> {
        let Trained { model, tables } = trained;
        let case = self.case;
        let (view, image) = scaled(self.device.training_scale());
        let device = &mut self.device;
        let target: Target = match device.resident(0) {
            Some(target) => target,
            None => device.upload_target(Photo { image: &image, stay: Stay::Resident(0) })?,
        };
        let frame = device.render_train(model, &view, &case.settings(), &case.wants())?;
        let terms = Case::terms();
        let objective = Objective { target: &target, terms: &terms, near: None, other: None };
        let frame = match tables {
            None => device.objective(model, frame, &objective)?.0,
            Some(tables) => {
                let step = TableStep { view: 0, number, rule: TABLES_AT_REST };
                let frame = device.compensate(tables, frame, &step)?;
                let (frame, _) = device.objective(model, frame, &objective)?;
                device.learn(tables, frame, &step)?
            }
        };
        let mut gradients = Gradients::default();
        device.backward(model, frame, None, &mut gradients)?;
        device.step(model, gradients, &AdamStep::new(number, AT_REST))
    }

    /// A step as the trainer has it: follows what is given up, and tries again.
    fn step_with_relief(&mut self, trained: &mut Trained, number: u32) -> Result<(), DeviceError> {
        loop {
            match self.step(trained, number) {
                Err(error) if error.is_out_of_memory() => {
                    if !self.device.relieve(&mut trained.model, &error)? {
                        return Err(error);
                    }
                    self.device.use_training_scale(self.device.training_scale())?;
                }
                done => return done,
            }
        }
    }
}

#[test]
fn views_get_smaller_where_steps_do_not_fit_and_come_back() -> Result<(), DeviceError> {
    let give_up = [Rung::Slack, Rung::Photographs, Rung::Resolution];
    let mut run = DryRun::open_with(case(), &options(&give_up), Bytes(400 << 20))?;
    let mut trained = Trained::on(&mut run)?;
    run.step_with_relief(&mut trained, 1)?;
    assert_eq!(run.device.training_scale(), TrainingScale::FULL, "there is room");
    run.device.trim_memory()?;
    let heap = &run.device.session.heap;
    // A quarter of what pixels take is missing.
    let most = heap.peak();
    heap.set_budget(Bytes(most.0 - (11 << 20)));
    run.step_with_relief(&mut trained, 2)?;
    let scale = run.device.training_scale();
    assert!(scale.is_below(TrainingScale::FULL), "{scale:?}");
    let changes = run.device.take_changes().unwrap_or_default().changes;
    let smaller: Vec<_> = changes.iter().filter(|change| change.rung == Rung::Resolution).collect();
    assert!(matches!(smaller[..], [change] if change.given_up && change.bytes > Bytes(0)));

    run.device.session.heap.set_budget(Bytes(400 << 20));
    for iteration in [300, 900] {
        run.device.govern(&mut trained.model, iteration)?;
        let is_back = run.device.training_scale() == TrainingScale::FULL;
        assert_eq!(is_back, iteration == 900, "after {iteration}");
    }
    run.device.use_training_scale(TrainingScale::FULL)?;
    run.step_with_relief(&mut trained, 901)?;
    let changes = run.device.take_changes().unwrap_or_default().changes;
    assert!(changes.iter().any(|change| change.rung == Rung::Resolution && !change.given_up));
    Ok(())
}

#[test]
fn views_keep_their_size_where_the_rung_is_not_named() -> Result<(), DeviceError> {
    let mut run = DryRun::open_with(case(), &options(&[Rung::Slack]), Bytes(60 << 20))?;
    let mut trained = Trained::on(&mut run)?;
    let refused = run.step_with_relief(&mut trained, 1);
    assert!(refused.is_err_and(|error| error.is_out_of_memory()));
    // Nor where a run is resumed that had them smaller.
    run.device.use_training_scale(TrainingScale::after(3))?;
    assert_eq!(run.device.training_scale(), TrainingScale::FULL);
    let named = options(&[Rung::Slack, Rung::Resolution]);
    let mut run = DryRun::open_with(case(), &named, Bytes(60 << 20))?;
    run.device.use_training_scale(TrainingScale::after(3))?;
    assert_eq!(run.device.training_scale(), TrainingScale::after(3));
    Ok(())
}

#[rstest]
#[case::as_they_are(None)]
#[case::compensated(Some(Compensation::BilateralGrid))]
fn a_step_fails_only_when_views_are_as_small_as_they_get(
    #[case] compensation: Option<Compensation>,
) -> Result<(), DeviceError> {
    let case = Case { compensation, ..case() };
    let give_up = options(&[Rung::Slack, Rung::Photographs, Rung::Resolution]);
    let mut failed = 0;
    // From too little for the smallest views to enough for the full size: each part of a step is refused
    // in turn.
    for mib in 8..100 {
        let mut run = DryRun::open_with(case, &give_up, Bytes(400 << 20))?;
        let mut trained = Trained::on(&mut run)?;
        let heap = &run.device.session.heap;
        heap.set_budget(Bytes(heap.total().0 + (mib << 20)));
        match run.step_with_relief(&mut trained, 1) {
            Err(error) if error.is_out_of_memory() => {
                failed += 1;
                assert_eq!(run.device.training_scale(), TrainingScale::SMALLEST, "{mib}: {error}");
            }
            done => done?,
        }
    }
    assert!((5..80).contains(&failed), "{failed}");
    Ok(())
}

#[test]
fn a_smaller_view_tells_what_a_whole_one_will_take() -> Result<(), DeviceError> {
    let need = |divisor: Divisor| {
        // Splats that are much smaller than tiles: all sizes have as many instances.
        let instances = 3000;
        let case = Case { px: PX.map(|side| side / divisor.get()), divisor, instances, ..case() };
        let mut run = DryRun::open_with(case, &options(&[]), Bytes(400 << 20))?;
        let model = run.device.upload(&Gaussians::zeros(case.sh_degree, case.gaussians))?;
        let wants = case.wants();
        let frame = run.device.render_train(&model, &case.view(), &case.settings(), &wants)?;
        let library = run.device.session.heap.cub_scratch();
        let planned = frame.planned(case.gaussians, Inputs::NONE, false);
        Ok::<_, DeviceError>(view_scratch(dry_run, library, case.gaussians as u64, planned).0)
    };
    let whole = need(Divisor::One)?;
    for divisor in [Divisor::Two, Divisor::Four] {
        let found = need(divisor)?;
        // As many rows and columns more as may have been dropped.
        assert!((whole..whole + whole / 50).contains(&found), "{found} of {whole}");
    }
    Ok(())
}

#[test]
fn births_leave_room_for_what_terms_take_that_come_on_later() -> Result<(), DeviceError> {
    let granted = |inputs, coarse| {
        let options = CudaOptions { inputs, coarse, ..options(&[Rung::Slack, Rung::Births]) };
        let mut run = DryRun::open_with(case(), &options, Bytes(400 << 20))?;
        let mut trained = Trained::on(&mut run)?;
        run.step(&mut trained, 1)?;
        run.device.trim_memory()?;
        let heap = &run.device.session.heap;
        heap.set_budget(Bytes(heap.total().0 + (200 << 20)));
        run.device.grant_births(&mut trained.model, 10_000_000)
    };
    let coarse = PlannedCoarse { neighbours: 16, shortens: false, maps: Maps::Undrawn };
    for coarse in [None, Some(coarse)] {
        let (with, without) =
            (granted(Term::NormalMap.needs(), coarse)?, granted(Inputs::NONE, coarse)?);
        assert!(with > 0 && with < without, "{with} with, {without} without");
    }
    Ok(())
}

#[test]
fn a_view_tells_what_terms_will_take_that_come_on_later() -> Result<(), DeviceError> {
    let later = Term::Distortion.needs();
    let scratch = |inputs, asked| {
        let mut run = DryRun::open_with(case(), &options(&[]), Bytes(400 << 20))?;
        let model = run.device.upload(&Gaussians::zeros(run.case.sh_degree, run.case.gaussians))?;
        let settings = RenderSettings { footprint: Footprint::Surfel, ..RenderSettings::DEFAULT };
        let wants = Wants { inputs, ..Wants::default() };
        let frame = run.device.render_train(&model, &run.case.view(), &settings, &wants)?;
        assert_eq!(frame.lacks(asked), inputs != asked && asked != Inputs::NONE);
        let library = run.device.session.heap.cub_scratch();
        let planned = frame.planned(run.case.gaussians, asked, false);
        Ok::<_, DeviceError>(view_scratch(dry_run, library, run.case.gaussians as u64, planned))
    };
    let with = scratch(later, Inputs::NONE)?;
    assert_eq!(scratch(Inputs::NONE, later)?, with);
    assert_eq!(scratch(later, later)?, with);
    // 48 bytes of each pixel, and of splats and instances what maps take beside them.
    let without = scratch(Inputs::NONE, Inputs::NONE)?;
    let pixels = PX.map(u64::from).iter().product::<u64>();
    assert!(with.0 - without.0 > 48 * pixels, "{with} and {without}");
    Ok(())
}
