//! Runs without a device: the real stages on a strict heap and on queues that report the counts of a case.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use rstest::rstest;

use super::dry::{self, Reported};
use super::memory::heap::tests::{heap_beside, heap_beside_exhausted, heap_of};
use super::primitive::{PrimitiveKernels, StorageKernels};
use super::stage::appearance::ColorTables;
use super::{BandPolicy, Code, Cuda, CudaOptions, Gradients, KernelName, Model, Target, dry_run};
use crate::backend::cuda::prelude::*;
use crate::backend::{
    AdamStep, Appearance as _, AppearanceRule, AppearanceTables, Capability, Compensation,
    Device as _, Footprint, Inputs, Neighbours as _, Objective, Photo, Rates, Render as _,
    RenderSettings, Snapshot, Statistics, Stay, Store as _, TableStep, Term, Terms, TrainRequest,
};
use crate::dataset::{Image, View};
use crate::layout::{
    Column, Forms, Rate, RowForm, Schema, Slot, Space, TABLE_PARTS, Table, Width, table_len,
};
use crate::math::Divisor;
use crate::math::morton::Cube;
use crate::memory::plan::{Maps, PlannedCoarse, Storage, view_scratch};
use crate::memory::{Fallback, HostState, Kind, TrainingScale};
use crate::model::{Gaussians, Primitive};

/// A run and the counts of its views.
#[derive(Clone, Copy, Debug)]
struct Case {
    gaussians: usize,
    sh_degree: u32,
    storage: Storage,
    px: [u32; 2],
    visible: u32,
    instances: u64,
    compensation: Option<Compensation>,
    /// Factor by which views are smaller than their photographs.
    divisor: Divisor,
}

impl Case {
    const SMALL: Self = Self {
        gaussians: 5000,
        sh_degree: 3,
        storage: Storage::Full,
        px: [97, 61],
        visible: 3000,
        instances: 9000,
        compensation: None,
        divisor: Divisor::One,
    };

    fn settings(&self) -> RenderSettings {
        RenderSettings { sh_degree: self.sh_degree, ..RenderSettings::DEFAULT }
    }

    fn train_request(&self) -> TrainRequest {
        let &Self { compensation, divisor, .. } = self;
        TrainRequest {
            observe: Some(Statistics::Norms),
            compensation,
            divisor,
            ..TrainRequest::default()
        }
    }

    fn terms() -> Terms {
        Terms::photometric(0.2)
    }

    fn view(&self) -> View {
        dry::view(self.px)
    }

    fn photograph(&self) -> Arc<Image> {
        let [width, height] = self.px;
        let rgb = vec![0; 3 * width as usize * height as usize];
        Arc::new(Image { width, height, rgb, mask: None, depth: None, normals: None })
    }
}

struct DryRun {
    case: Case,
    device: Cuda,
    reported: Rc<Cell<Reported>>,
}

impl DryRun {
    fn open_with(case: Case, options: &CudaOptions, budget: Bytes) -> Result<Self> {
        Self::over(case, options, heap_of(budget))
    }

    fn over(case: Case, options: &CudaOptions, heap: Heap) -> Result<Self> {
        let (session, reported) = dry::session(heap)?;
        let run = Self { case, device: Cuda::over(session, options)?, reported };
        run.show(case.visible, case.instances);
        Ok(run)
    }

    fn show(&self, visible: u32, instances: u64) {
        // Each row of tiles gets an equal share of the instances.
        let bands = u64::from(self.case.px[1].div_ceil(crate::abi::TILE));
        self.reported.set(Reported { visible, instances, bands, ..Reported::default() });
    }

    fn model(&mut self) -> Result<Model> {
        self.device.upload(&Gaussians::zeros(3, START))
    }

    /// Leaves `bytes` bytes beside the memory that is held.
    fn leave(&self, bytes: u64) {
        let heap = &self.device.session.heap;
        heap.set_budget(Bytes(heap.total().0 + bytes));
    }

    /// Returns the error of a request for the whole budget.
    fn shortage(&self) -> DeviceError {
        let heap = &self.device.session.heap;
        heap.take(&Slot::<u8, _>::unlisted("frame"), &heap.budget().0).map(drop).unwrap_err()
    }

    /// Returns the scratch that the case's view predicts of a view with these inputs.
    fn predicted(
        &mut self,
        settings: &RenderSettings,
        request: &TrainRequest,
        inputs: Inputs,
    ) -> Result<Bytes> {
        let Case { gaussians, sh_degree, .. } = self.case;
        let model = self.device.upload(&Gaussians::zeros(sh_degree, gaussians))?;
        let frame = self.device.render_train(&model, &self.case.view(), settings, request)?;
        let lacks = inputs != request.inputs && inputs != Inputs::NONE;
        assert_eq!(frame.lacks(inputs), lacks);
        let library = self.device.session.heap.cub_scratch();
        let planned = frame.planned(gaussians, inputs, false);
        Ok(view_scratch(dry_run, library, gaussians as u64, planned))
    }

    fn given_up(&mut self) -> Vec<Fallback> {
        let changes = self.device.take_changes().unwrap_or_default().changes;
        changes.iter().filter(|change| change.given_up).map(|change| change.fallback).collect()
    }

    fn step(&mut self, trained: &mut Trained, number: u32) -> Result {
        let Trained { model, tables } = trained;
        let (view, image) = scaled(self.device.training_scale());
        let device = &mut self.device;
        let target: Target = match device.resident(0) {
            Some(target) => target,
            None => device.upload_target(Photo { image: &image, stay: Stay::Resident(0) })?,
        };
        let (settings, request) = (self.case.settings(), self.case.train_request());
        let frame = device.render_train(model, &view, &settings, &request)?;
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
        device.step(model, gradients, &AdamStep::new(number, Rates::NONE))
    }

    /// Takes a step as the trainer does: gives up memory and tries again.
    fn step_with_relief(&mut self, trained: &mut Trained, number: u32) -> Result {
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

const MIB: u64 = 1 << 20;

/// Initial Gaussians: 7.2 MB in full precision; 3.2 MB compact (2 MB are colours with their moments).
const START: usize = 10_000;

const CARD: Bytes = Bytes(1 << 30);

/// Returns a host with `mib` MiB available.
fn host(mib: u64) -> HostState {
    // A thirty-second part stays with the system.
    let total = Bytes(64 * 1024 * MIB);
    HostState { total, available: Bytes((mib + 2048) * MIB), own: Bytes(100 * MIB) }
}

fn case(storage: Storage) -> Case {
    Case { gaussians: START, sh_degree: 3, storage, ..Case::SMALL }
}

fn run(storage: Storage, give_up: &[Fallback], on_host: u64) -> Result<DryRun> {
    let options = CudaOptions { storage, give_up: give_up.to_vec(), ..CudaOptions::default() };
    DryRun::over(case(storage), &options, heap_beside(host(on_host), CARD))
}

/// Returns a run and its model with `mib` MiB left beside them.
fn short_run(
    storage: Storage,
    give_up: &[Fallback],
    on_host: u64,
    mib: u64,
) -> Result<(DryRun, Model)> {
    let mut run = run(storage, give_up, on_host)?;
    let model = run.model()?;
    run.device.trim_memory()?;
    run.leave(mib * MIB);
    Ok((run, model))
}

/// Compares the ledger's bytes of each region with the schema's.
fn assert_places(run: &DryRun, model: &Model) {
    let ledger = run.device.session.heap.ledger();
    let used = |label, kind| {
        let of = ledger.iter().find(|entry| entry.label == label && entry.kind == kind);
        of.map_or(Bytes(0), |entry| entry.used)
    };
    let size = model.size();
    for row in size.regions() {
        assert_eq!(used(row.label, Kind::Region), row.bytes, "{} of {size:?}", row.label);
    }
    let host: Vec<_> = size.host_tables().collect();
    for &(label, bytes) in &host {
        assert_eq!(used(label, Kind::Pinned), Bytes(bytes), "{label} of {size:?}");
    }
    assert_eq!(host.len(), if model.storage() == Storage::Offloaded { 3 } else { 0 });
    let all: Bytes = size.regions().iter().map(|row| row.bytes).sum();
    let host: u64 = host.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(model.bytes().into_iter().sum::<Bytes>(), all + Bytes(host));
}

#[test]
fn tables_match_the_schema_as_the_model_grows_and_shrinks() -> Result {
    let mut run = run(Storage::Offloaded, &[], 4096)?;
    let mut model = run.model()?;
    assert_places(&run, &model);
    for rows in [300_000, 40_000, 41_000] {
        let more = usize::saturating_sub(rows, model.len());
        if more > 0 {
            model.grow(&run.device.session, more)?;
        } else {
            model.shrink(rows);
            model.trim()?;
        }
        assert_places(&run, &model);
        run.device.reorder(&mut model, &Cube { centre: [0.0; 3], half_side: 1.0 })?;
        assert_eq!(run.device.snapshot(&mut model)?.parameters.len(), rows);
    }
    drop(model);
    let ledger = run.device.session.heap.ledger();
    let sh = |kind| ledger.iter().find(|entry| entry.label == "sh" && entry.kind == kind).unwrap();
    assert_eq!((sh(Kind::Pinned).mapped, sh(Kind::Pinned).used), (Bytes(0), Bytes(0)));
    Ok(())
}

#[test]
fn colours_move_between_device_and_host() -> Result {
    for storage in [Storage::Full, Storage::HalfColors, Storage::Compact] {
        let mut run = run(storage, &[], 4096)?;
        let mut model = run.model()?;
        run.device.trim_memory()?;
        let before = run.device.session.heap.total();
        let freed = run.device.offload(&mut model)?;
        run.device.trim_memory()?;
        assert_eq!(model.storage(), Storage::Offloaded);
        assert_places(&run, &model);
        assert!(freed > Bytes(0), "{storage:?}");
        assert_eq!(run.device.session.heap.total().0, before.0 - freed.0, "{storage:?}");
        assert_eq!(run.device.offload(&mut model)?, Bytes(0));
        assert_eq!(run.device.compact(&mut model)?, Bytes(0), "it is");
        run.device.expand(&mut model)?;
        assert_eq!(model.storage(), Storage::Full);
        assert_places(&run, &model);
    }
    Ok(())
}

#[test]
fn growth_is_limited_only_after_offloading() -> Result {
    let fallbacks = [Fallback::Slack, Fallback::Compact, Fallback::Offload, Fallback::NewGaussians];
    // With ever less room: 100,000 new Gaussians take 72 MB, compact 32, offloaded 12, beside scratch.
    let mut found = Vec::new();
    for mib in (4..240).rev().step_by(4) {
        let (mut run, mut model) = short_run(Storage::Full, &fallbacks, 4096, mib)?;
        let granted = run.device.grant_new_gaussians(&mut model, 100_000)?;
        model.grow(&run.device.session, granted)?;
        assert_places(&run, &model);
        let step = (model.storage(), granted == 100_000, run.given_up());
        if found.last() != Some(&step) {
            found.push(step);
        }
    }
    let expected = [
        (Storage::Full, true, vec![]),
        (Storage::Compact, true, vec![Fallback::Compact]),
        (Storage::Offloaded, true, vec![Fallback::Compact, Fallback::Offload]),
        (Storage::Offloaded, false, fallbacks[1..].to_vec()),
    ];
    assert_eq!(found, expected);
    Ok(())
}

#[test]
fn offloading_compacts_the_model() -> Result {
    let (mut run, mut model) =
        short_run(Storage::Full, &[Fallback::Offload, Fallback::NewGaussians], 4096, 32)?;
    let granted = run.device.grant_new_gaussians(&mut model, 100_000)?;
    assert_eq!(
        (model.storage(), run.given_up().first()),
        (Storage::Offloaded, Some(&Fallback::Offload))
    );
    assert!(granted > 0);
    Ok(())
}

#[test]
fn a_full_host_keeps_colours_on_the_device() -> Result {
    let fallbacks = [Fallback::Compact, Fallback::Offload, Fallback::NewGaussians];
    // Page-locked staging takes part of the 1 MiB.
    let (mut run, mut model) = short_run(Storage::Full, &fallbacks, 1, 32)?;
    let granted = run.device.grant_new_gaussians(&mut model, 100_000)?;
    assert!(granted < 100_000);
    assert_eq!(
        (model.storage(), run.given_up()),
        (Storage::Compact, vec![fallbacks[0], fallbacks[2]])
    );
    assert_places(&run, &model);
    // A failure does not move them either.
    let missing = run.shortage();
    assert!(!run.device.relieve(&mut model, &missing)?);
    Ok(())
}

#[test]
fn a_model_is_offloaded_only_if_the_host_holds_more() -> Result {
    let fallbacks = [Fallback::Compact, Fallback::Offload, Fallback::NewGaussians];
    let grant = |on_host| {
        let (mut run, mut model) = short_run(Storage::Full, &fallbacks, on_host, 30)?;
        let granted = run.device.grant_new_gaussians(&mut model, 100_000)?;
        model.grow(&run.device.session, granted)?;
        assert_places(&run, &model);
        Ok::<_, DeviceError>((model.storage(), granted))
    };
    let (storage, without) = grant(1)?;
    assert_eq!(storage, Storage::Compact);
    // Room for the model as it is, and for little more.
    assert_eq!(grant(14)?, (Storage::Compact, without));
    let (storage, with) = grant(4096)?;
    assert!(storage == Storage::Offloaded && with > without, "{with} with, {without} without");
    Ok(())
}

#[test]
fn a_refusal_of_host_memory_leaves_the_model_compact() -> Result {
    let options = CudaOptions { give_up: vec![Fallback::Offload], ..CudaOptions::default() };
    let heap = heap_beside_exhausted(host(4096), CARD);
    let mut run = DryRun::over(case(Storage::Full), &options, heap)?;
    let mut model = run.model()?;
    run.device.trim_memory()?;
    let missing = run.shortage();
    assert!(run.device.relieve(&mut model, &missing)?);
    assert_eq!((model.storage(), run.given_up()), (Storage::Compact, vec![Fallback::Compact]));
    assert_places(&run, &model);
    assert!(!run.device.relieve(&mut model, &missing)?, "nothing more comes of it");
    Ok(())
}

#[test]
fn loading_beside_a_full_host_compacts_the_model() {
    for fallbacks in
        [[Fallback::Offload, Fallback::Compact], [Fallback::Compact, Fallback::Offload]]
    {
        let upload = |mib: u64| {
            let mut run = run(Storage::Full, &fallbacks, 1)?;
            run.leave(mib * MIB);
            // Enough for tables of many granules.
            let model = run.device.upload(&Gaussians::zeros(3, 10 * START))?;
            Ok::<_, DeviceError>((model.storage(), run.given_up(), run.device.session.storage))
        };
        let found = (4..120).find_map(|mib| upload(mib).ok()).unwrap();
        assert_eq!(found, (Storage::Compact, vec![Fallback::Compact], Storage::Compact));
    }
}

#[test]
fn a_failure_offloads_if_the_fallback_is_enabled() -> Result {
    for is_named in [true, false] {
        let fallbacks: &[Fallback] = if is_named { &[Fallback::Offload] } else { &[] };
        let mut run = run(Storage::Compact, fallbacks, 4096)?;
        let mut model = run.model()?;
        let missing = run.shortage();
        assert_eq!(run.device.relieve(&mut model, &missing)?, is_named);
        assert_eq!(model.storage() == Storage::Offloaded, is_named);
        assert_places(&run, &model);
        assert!(!run.device.relieve(&mut model, &missing)?);
    }
    Ok(())
}

#[test]
fn host_memory_limits_growth_of_offloaded_models() -> Result {
    let mut run = run(Storage::Offloaded, &[Fallback::NewGaussians], 40)?;
    let mut model = run.model()?;
    let granted = run.device.grant_new_gaussians(&mut model, 1_000_000)?;
    assert!(
        (150_000..273_000).contains(&granted),
        "{granted} of 200 bytes each in 40 MiB and what is mapped"
    );
    model.grow(&run.device.session, granted)?;
    assert_places(&run, &model);
    let error = model.grow(&run.device.session, 1_000_000).unwrap_err();
    assert!(matches!(error, DeviceError::HostRefused(_)), "{error}");
    assert_eq!(model.len(), START + granted, "nothing grew");
    assert_places(&run, &model);
    Ok(())
}

#[test]
fn an_offloaded_run_resumes_offloaded() -> Result {
    // Compact tables of 10,000 Gaussians take 16 granules of 2 MiB, and 10 without colours.
    let upload = |fallbacks: &[Fallback], mib: u64| {
        let mut run = run(Storage::Full, fallbacks, 4096)?;
        run.leave(mib * MIB);
        let model = run.model()?;
        Ok::<_, DeviceError>((model.storage(), run.given_up()))
    };
    let named = [Fallback::Slack, Fallback::Compact, Fallback::Offload];
    assert_eq!(upload(&named, 200)?, (Storage::Full, vec![]));
    assert!(upload(&named, 3).unwrap_err().is_out_of_memory());
    let found = (4..60).find_map(|mib| upload(&named, mib).ok()).unwrap();
    assert_eq!(found, (Storage::Offloaded, vec![Fallback::Offload]));
    let without = (4..60).find_map(|mib| upload(&named[..2], mib).ok()).unwrap();
    assert_ne!(without.0, Storage::Offloaded);
    Ok(())
}

/// Lights: a primitive with other columns and tables. `powers` are compact in a compact model.
#[derive(Clone, Debug, Default, PartialEq)]
struct Lights {
    places: Vec<f32>,
    powers: Vec<f32>,
    tints: Vec<f32>,
}

const LIGHTS: Schema = Schema {
    spaces: &[Space { one: "light", many: "lights" }],
    tables: &[
        Table {
            labels: ["powers", "powers, first moments", "powers, second moments"],
            space: 0,
            full: Forms::FLOATS,
            compact: Forms { values: RowForm::Halves, ..Forms::FLOATS },
            is_lazy: false,
        },
        Table {
            labels: ["places", "places, first moments", "places, second moments"],
            space: 0,
            full: Forms::FLOATS,
            compact: Forms { first: RowForm::Bfloats, ..Forms::FLOATS },
            is_lazy: false,
        },
    ],
    columns: &[
        Column {
            name: "powers",
            width: Width::Fixed(1),
            rate: Rate::OpacityLogits,
            table: 0,
            words: "power",
        },
        Column {
            name: "places",
            width: Width::Fixed(3),
            rate: Rate::Means,
            table: 1,
            words: "place",
        },
        Column { name: "tints", width: Width::Fixed(3), rate: Rate::ShDc, table: 1, words: "tint" },
    ],
};

impl Primitive for Lights {
    const SCHEMA: &'static Schema = &LIGHTS;

    fn empty(_sh_degree: u32) -> Self {
        Self::default()
    }

    fn sh_degree(&self) -> u32 {
        0
    }

    fn values(&self) -> Vec<&[f32]> {
        vec![&self.powers, &self.places, &self.tints]
    }

    fn groups_mut(&mut self) -> Vec<&mut Vec<f32>> {
        vec![&mut self.powers, &mut self.places, &mut self.tints]
    }
}

const KERNEL: KernelName = KernelName { code: Code::Program("lights"), function: "light" };

const KERNELS: StorageKernels = StorageKernels {
    project: KERNEL,
    project_extended: KERNEL,
    expect: None,
    step: KERNEL,
    step_extended: KERNEL,
    step_views: None,
    surfels: None,
    vertices: None,
};

impl CudaPrimitive for Lights {
    const KERNELS: PrimitiveKernels =
        PrimitiveKernels { full: KERNELS, half: Some(KERNELS), compact: Some(KERNELS) };
    const CAPABILITIES: &'static [Capability] = &[];
}

/// Compares the heap's bytes of the model's regions with the schema's.
fn assert_regions(run: &DryRun, model: &Model<Lights>) {
    let (rows, storage) = (model.size().gaussians, model.storage());
    let ledger = run.device.session.heap.ledger();
    let used = |label| {
        let entry = ledger.iter().find(|entry| entry.label == label);
        entry.map_or(Bytes(0), |entry| entry.used)
    };
    for row in model.size().regions() {
        assert_eq!(used(row.label), row.bytes, "{} of {rows} lights, {storage:?}", row.label);
    }
    let words = |label| used(label).0 / 4;
    let [powers, firsts] = match storage {
        // For one value and for six.
        Storage::Full | Storage::HalfColors => [1, 6],
        Storage::Compact | Storage::Offloaded => [1, 3],
    };
    assert_eq!(words("powers"), table_len(rows, powers));
    assert_eq!(words("places"), table_len(rows, 6));
    assert_eq!(words("places, first moments"), table_len(rows, firsts));
    assert_eq!(words("sh, steps taken"), 0, "no table is left behind");
    assert_eq!(words("sh, drifts"), 0, "and so nothing moves on by itself");
    assert_eq!(model.size().regions().len(), 2 * TABLE_PARTS + 7);
    let bytes = model.size().regions().iter().map(|row| row.bytes).sum::<Bytes>();
    assert_eq!(model.bytes().into_iter().sum::<Bytes>(), bytes);
}

fn iteration(run: &mut DryRun, model: &mut Model<Lights>, number: u32) -> Result {
    let case = run.case;
    let (request, terms) = (case.train_request(), Case::terms());
    let image = &case.photograph();
    let target = run.device.upload_target(Photo { image, stay: Stay::Resident(0) })?;
    let frame = run.device.render_train(model, &case.view(), &case.settings(), &request)?;
    let objective = Objective { target: &target, terms: &terms, near: None, other: None };
    let (frame, losses) = run.device.objective(model, frame, &objective)?;
    let mut gradients = Gradients::default();
    run.device.backward(model, frame, None, &mut gradients)?;
    run.device.step(model, gradients, &AdamStep::new(number, RATES))?;
    drop(losses);
    assert_eq!(run.device.session.heap.live_scratch(), Bytes(0));
    Ok(())
}

const RATES: Rates = Rates { means: 1e-4, opacity_logits: 0.05, sh_dc: 2.5e-3, ..Rates::NONE };

fn open(case: Case) -> Result<DryRun> {
    let options = CudaOptions { storage: case.storage, ..CudaOptions::default() };
    DryRun::open_with(case, &options, Bytes(1 << 30))
}

#[test]
fn lights_have_no_colours_on_the_host() -> Result {
    let case = Case { storage: Storage::Offloaded, ..Case::SMALL };
    let refused = open(case)?.device.upload(&Lights::zeros(0, case.gaussians));
    let refused = refused.map(drop).unwrap_err().to_string();
    assert_eq!(refused, "lights have no colours in the host's memory on this device");
    Ok(())
}

#[rstest]
fn another_primitive_takes_the_planned_memory(
    #[values(Storage::Full, Storage::HalfColors, Storage::Compact)] storage: Storage,
    #[values(1, 33, 100_000)] gaussians: usize,
    #[values(BandPolicy::Never, BandPolicy::AtLeast(3))] bands: BandPolicy,
) -> Result {
    let visible = u32::try_from(gaussians / 2).unwrap();
    let case =
        Case { storage, gaussians, visible, instances: 3 * u64::from(visible), ..Case::SMALL };
    let mut run = open(case)?;
    run.device.set_bands(bands);
    let mut model = run.device.upload(&Lights::zeros(0, gaussians))?;
    assert_regions(&run, &model);
    for number in 1..=2 {
        iteration(&mut run, &mut model, number)?;
    }
    assert_regions(&run, &model);
    run.device.reorder(&mut model, &Cube { centre: [0.0; 3], half_side: 1.0 })?;
    drop(run.device.neighbours(&model, 16)?);
    let read: Snapshot<Lights> = run.device.snapshot(&mut model)?;
    assert_eq!(read.parameters.len(), gaussians);
    run.device.sample(&mut model, &[0])?;
    Ok(())
}

/// Size at which pixels take 46 MiB.
const PX: [u32; 2] = [1600, 1200];

const TABLES_AT_REST: AppearanceRule =
    AppearanceRule { iterations: 100, warm_up: 10, ..dry::TABLES_AT_REST };

struct Trained {
    model: Model,
    tables: Option<ColorTables>,
}

impl Trained {
    fn on(run: &mut DryRun) -> Result<Self> {
        let model = run.device.upload(&Gaussians::zeros(run.case.sh_degree, run.case.gaussians))?;
        let tables = run.case.compensation.map(|kind| AppearanceTables::identity(kind, 1));
        let tables = tables.map(|tables| run.device.upload_tables(&tables)).transpose()?;
        Ok(Self { model, tables })
    }
}

fn sized_case() -> Case {
    Case { px: PX, instances: 20_000, ..Case::SMALL }
}

fn options(give_up: &[Fallback]) -> CudaOptions {
    CudaOptions { give_up: give_up.to_vec(), ..CudaOptions::default() }
}

fn scaled(scale: TrainingScale) -> (View, Arc<Image>) {
    let sized_case = Case { px: scale.px(PX), ..sized_case() };
    (sized_case.view(), sized_case.photograph())
}

#[test]
fn views_shrink_when_steps_do_not_fit_and_recover() -> Result {
    let give_up = [Fallback::Slack, Fallback::Photographs, Fallback::Resolution];
    let mut run = DryRun::open_with(sized_case(), &options(&give_up), Bytes(400 << 20))?;
    let mut trained = Trained::on(&mut run)?;
    run.step_with_relief(&mut trained, 1)?;
    assert_eq!(run.device.training_scale(), TrainingScale::FULL, "there is room");
    run.device.trim_memory()?;
    let heap = &run.device.session.heap;
    // A quarter of the memory of pixels is missing.
    let most = heap.peak();
    heap.set_budget(Bytes(most.0 - (11 << 20)));
    run.step_with_relief(&mut trained, 2)?;
    let scale = run.device.training_scale();
    assert!(scale.is_below(TrainingScale::FULL), "{scale:?}");
    let changes = run.device.take_changes().unwrap_or_default().changes;
    let smaller: Vec<_> =
        changes.iter().filter(|change| change.fallback == Fallback::Resolution).collect();
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
    assert!(
        changes.iter().any(|change| change.fallback == Fallback::Resolution && !change.given_up)
    );
    Ok(())
}

#[test]
fn views_keep_their_size_without_the_fallback() -> Result {
    let mut run = DryRun::open_with(sized_case(), &options(&[Fallback::Slack]), Bytes(60 << 20))?;
    let mut trained = Trained::on(&mut run)?;
    let refused = run.step_with_relief(&mut trained, 1);
    assert!(refused.is_err_and(|error| error.is_out_of_memory()));
    // Nor does a resumed run that had smaller views.
    run.device.use_training_scale(TrainingScale::after(3))?;
    assert_eq!(run.device.training_scale(), TrainingScale::FULL);
    let named = options(&[Fallback::Slack, Fallback::Resolution]);
    let mut run = DryRun::open_with(sized_case(), &named, Bytes(60 << 20))?;
    run.device.use_training_scale(TrainingScale::after(3))?;
    assert_eq!(run.device.training_scale(), TrainingScale::after(3));
    Ok(())
}

#[rstest]
#[case::as_they_are(None)]
#[case::compensated(Some(Compensation::BilateralGrid))]
fn a_step_fails_only_at_the_smallest_size(#[case] compensation: Option<Compensation>) -> Result {
    let sized_case = Case { compensation, ..sized_case() };
    let give_up = options(&[Fallback::Slack, Fallback::Photographs, Fallback::Resolution]);
    let mut failed = 0;
    // From too little for the smallest views to enough for the full size: each part of a step is refused in turn.
    for mib in 8..100 {
        let mut run = DryRun::open_with(sized_case, &give_up, Bytes(400 << 20))?;
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
fn a_smaller_view_predicts_the_scratch_of_a_full_one() -> Result {
    let need = |divisor: Divisor| {
        // Splats that are much smaller than tiles: all sizes have as many instances.
        let instances = 3000;
        let sized_case =
            Case { px: PX.map(|side| side / divisor.get()), divisor, instances, ..sized_case() };
        let mut run = DryRun::open_with(sized_case, &options(&[]), Bytes(400 << 20))?;
        let request = sized_case.train_request();
        run.predicted(&sized_case.settings(), &request, Inputs::NONE).map(|bytes| bytes.0)
    };
    let whole = need(Divisor::One)?;
    for divisor in [Divisor::Two, Divisor::Four] {
        let found = need(divisor)?;
        // The plan includes the rows and columns that the division may have dropped.
        assert!((whole..whole + whole / 50).contains(&found), "{found} of {whole}");
    }
    Ok(())
}

#[test]
fn growth_leaves_memory_for_later_terms() -> Result {
    let granted = |inputs, coarse| {
        let options =
            CudaOptions { inputs, coarse, ..options(&[Fallback::Slack, Fallback::NewGaussians]) };
        let mut run = DryRun::open_with(sized_case(), &options, Bytes(400 << 20))?;
        let mut trained = Trained::on(&mut run)?;
        run.step(&mut trained, 1)?;
        run.device.trim_memory()?;
        let heap = &run.device.session.heap;
        heap.set_budget(Bytes(heap.total().0 + (200 << 20)));
        run.device.grant_new_gaussians(&mut trained.model, 10_000_000)
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
fn a_view_predicts_the_scratch_of_later_terms() -> Result {
    let later = Term::Distortion.needs();
    let scratch = |inputs, requested| {
        let mut run = DryRun::open_with(sized_case(), &options(&[]), Bytes(400 << 20))?;
        let settings = RenderSettings { footprint: Footprint::Surfel, ..RenderSettings::DEFAULT };
        let request = TrainRequest { inputs, ..TrainRequest::default() };
        run.predicted(&settings, &request, requested)
    };
    let with = scratch(later, Inputs::NONE)?;
    assert_eq!(scratch(Inputs::NONE, later)?, with);
    assert_eq!(scratch(later, later)?, with);
    // 48 bytes per pixel, and the maps' share of splats and instances.
    let without = scratch(Inputs::NONE, Inputs::NONE)?;
    let pixels = PX.map(u64::from).iter().product::<u64>();
    assert!(with.0 - without.0 > 48 * pixels, "{with} and {without}");
    Ok(())
}
