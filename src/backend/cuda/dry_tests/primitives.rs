//! A primitive of other columns and tables: its model takes the regions that the schema says.

use super::{Case, DryRun, Gradients};
use crate::backend::Capability;
use crate::backend::cuda::primitive::{CudaPrimitive, PrimitiveKernels, StorageKernels};
use crate::backend::cuda::{BandPolicy, Code, CudaOptions, KernelName, Model};
use crate::backend::{
    AdamStep, Device as _, DeviceError, Neighbours as _, Objective, Photo, Rates, Render as _,
    Snapshot, Stay, Store as _,
};
use crate::layout::{
    Column, Forms, Rate, RowForm, Schema, Space, TABLE_PARTS, Table, Width, table_len,
};
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::Storage;
use crate::model::Primitive;
use rstest::rstest;

/// Lights: what they give off is compact where the model is, where they are never.
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

/// A queue that runs nothing finds any kernel.
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

/// What the heap holds of the model's regions is what the schema says.
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
        // Of one value, and of six.
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

/// One iteration over a view, with nothing but colours and inverse depths.
fn iteration(run: &mut DryRun, model: &mut Model<Lights>, number: u32) -> Result<(), DeviceError> {
    let case = run.case;
    let (wants, terms) = (case.wants(), Case::terms());
    let image = &case.photograph();
    let target = run.device.upload_target(Photo { image, stay: Stay::Resident(0) })?;
    let frame = run.device.render_train(model, &case.view(), &case.settings(), &wants)?;
    let objective = Objective { target: &target, terms: &terms, near: None, other: None };
    let (frame, losses) = run.device.objective(model, frame, &objective)?;
    let mut gradients = Gradients::default();
    run.device.backward(model, frame, None, &mut gradients)?;
    run.device.step(model, gradients, &AdamStep::new(number, RATES))?;
    drop(losses);
    assert_eq!(run.device.session.heap.live_scratch(), Bytes(0));
    Ok(())
}

const RATES: Rates = Rates {
    means: 1e-4,
    log_scales: 0.0,
    quats: 0.0,
    opacity_logits: 0.05,
    sh_dc: 2.5e-3,
    sh_rest: 0.0,
};

fn open(case: Case) -> Result<DryRun, DeviceError> {
    let options = CudaOptions { storage: case.storage, ..CudaOptions::default() };
    DryRun::open_with(case, &options, Bytes(1 << 30))
}

#[test]
fn lights_have_no_colours_on_the_host() -> Result<(), DeviceError> {
    let case = Case { storage: Storage::Offloaded, ..Case::SMALL };
    let refused = open(case)?.device.upload(&Lights::zeros(0, case.gaussians));
    let refused = refused.map(drop).unwrap_err().to_string();
    assert_eq!(refused, "lights have no colours in the host's memory on this device");
    Ok(())
}

#[rstest]
fn a_model_of_another_primitive_takes_what_is_planned(
    #[values(Storage::Full, Storage::HalfColors, Storage::Compact)] storage: Storage,
    #[values(1, 33, 100_000)] gaussians: usize,
    #[values(BandPolicy::Never, BandPolicy::AtLeast(3))] bands: BandPolicy,
) -> Result<(), DeviceError> {
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
