//! Kernels and capabilities of the primitives. Stages after projection share records (`kernels/footprint.cuh`).

use super::device::launch::{Code, Find, Kernel, KernelName, kernel};
use crate::abi::{ADAM_BLOCK, AdamArgs, PROJECT_BLOCK, ProjectArgs, TABLES};
use crate::backend::{Capability, DeviceError, Result, unsupported};
use crate::layout::{Rate, RowForm, Schema, TABLE_PARTS};
use crate::memory::plan::Storage;
use crate::model::{Gaussians, Primitive};

/// A primitive that a GPU trains.
pub trait CudaPrimitive: Primitive + 'static {
    /// Kernels of the primitive.
    const KERNELS: PrimitiveKernels;
    /// Optional features that the kernels support.
    const CAPABILITIES: &'static [Capability];
}

/// The kernels of a primitive, with the arguments of `abi`. "Geometry" is the schema's first table, "SH" its second.
#[derive(Clone, Copy)]
pub struct PrimitiveKernels<K = StorageKernels> {
    /// For models in full precision.
    pub full: K,
    /// For models with colours in 16 bits.
    pub half: Option<K>,
    /// For compact models.
    pub compact: Option<K>,
}

/// The kernels of a primitive that depend on how its model is stored: names, or loaded kernels that project and step.
#[derive(Clone, Copy)]
pub struct StorageKernels<P = KernelName, S = KernelName> {
    /// Projects rows to records; takes `ProjectArgs`.
    pub project: P,
    /// Projects with the filters of the model and of the view.
    pub project_extended: P,
    /// List the lane blocks that a view will see, without and with filters; take `ProjectArgs`.
    pub expect: Option<[P; 2]>,
    /// Steps down the gradient of one view; takes `AdamArgs`.
    pub step: S,
    /// Steps with filters, inverse depths and all other capabilities.
    pub step_extended: S,
    /// Steps down the gradients of several views.
    pub step_views: Option<S>,
    /// Kernels of rows drawn as surfels.
    pub surfels: Option<ShapeKernels<P, S>>,
    /// Kernels of rows drawn as vertices of triangles.
    pub vertices: Option<ShapeKernels<P, S>>,
}

/// The kernels of rows that are drawn as surfels or as vertices of triangles, with the same arguments.
#[derive(Clone, Copy)]
pub struct ShapeKernels<P = KernelName, S = KernelName> {
    /// Projects rows to records, or computes the colours of visible vertices.
    pub project: P,
    /// Steps down the gradient of one view.
    pub step: S,
    /// Steps down the gradients of several views.
    pub step_views: S,
}

const fn of_program(file: &'static str, function: &'static str) -> KernelName {
    KernelName { code: Code::Program(file), function }
}

/// Names the kernels of Gaussians in one storage, which end with a suffix.
macro_rules! gaussian_kernels {
    ($suffix:literal, $expect:expr) => {
        StorageKernels {
            project: of_program("project", concat!("project_fwd", $suffix)),
            project_extended: of_program("project", concat!("project_fwd_extended", $suffix)),
            expect: $expect,
            step: of_program("adam", concat!("adam", $suffix)),
            step_extended: of_program("adam", concat!("adam_extended", $suffix)),
            step_views: Some(of_program("adam_views", concat!("adam_views", $suffix))),
            surfels: Some(ShapeKernels {
                project: of_program("project", concat!("project_surfels", $suffix)),
                step: of_program("adam", concat!("adam_surfels", $suffix)),
                step_views: of_program("adam_views", concat!("adam_views_surfels", $suffix)),
            }),
            vertices: Some(ShapeKernels {
                project: of_program("triangles", concat!("color_vertices", $suffix)),
                step: of_program("adam", concat!("adam_vertices", $suffix)),
                step_views: of_program("adam_views", concat!("adam_views_vertices", $suffix)),
            }),
        }
    };
}

impl CudaPrimitive for Gaussians {
    const KERNELS: PrimitiveKernels = PrimitiveKernels {
        full: gaussian_kernels!("", None),
        half: Some(gaussian_kernels!("_half", None)),
        compact: Some(gaussian_kernels!(
            "_compact",
            Some([
                of_program("project", "expect_rows"),
                of_program("project", "expect_rows_extended"),
            ])
        )),
    };

    const CAPABILITIES: &'static [Capability] =
        &[Capability::Filter3d, Capability::Noise, Capability::Regularisers, Capability::Surfaces];
}

pub(crate) fn require<P: CudaPrimitive>(capability: Capability, is_requested: bool) -> Result {
    if is_requested && !P::CAPABILITIES.contains(&capability) {
        return Err(unsupported::<P>(capability.words()));
    }
    Ok(())
}

pub(crate) fn require_storage<P: CudaPrimitive>(storage: Storage) -> Result {
    match storage {
        Storage::HalfColors if P::KERNELS.half.is_none() => {
            Err(unsupported::<P>("colours in 16 bits"))
        }
        Storage::Offloaded if !is_offloadable::<P>() => {
            Err(unsupported::<P>("colours in the host's memory"))
        }
        Storage::Compact if !is_compactable::<P>() => Err(unsupported::<P>("compact storage")),
        Storage::Full | Storage::HalfColors | Storage::Compact | Storage::Offloaded => Ok(()),
    }
}

/// Returns the error of a primitive without steps of several views.
pub(crate) fn no_batches<P: Primitive>() -> DeviceError {
    unsupported::<P>("steps of several views")
}

pub(crate) fn is_compactable<P: CudaPrimitive>() -> bool {
    P::KERNELS.compact.is_some()
}

/// True if a compact model has lazy tables, which can lie on the host.
pub(crate) fn is_offloadable<P: CudaPrimitive>() -> bool {
    is_compactable::<P>() && P::SCHEMA.is_lazy()
}

type ProjectKernel = Kernel<ProjectArgs<'static>>;
type StepKernel = Kernel<AdamArgs<'static>>;

pub(crate) type LoadedKernels = PrimitiveKernels<LoadedStorage>;
pub(crate) type LoadedStorage = StorageKernels<ProjectKernel, StepKernel>;
pub(crate) type LoadedShape = ShapeKernels<ProjectKernel, StepKernel>;

impl LoadedKernels {
    /// Finds the kernels. A context must be current.
    pub(crate) fn of<P: CudaPrimitive>(by: &mut dyn Find) -> Result<Self> {
        const { assert_fits(P::SCHEMA) };
        let PrimitiveKernels { full, half, compact } = P::KERNELS;
        Ok(Self {
            full: LoadedStorage::of(by, &full)?,
            half: half.map(|half| LoadedStorage::of(by, &half)).transpose()?,
            compact: compact.map(|compact| LoadedStorage::of(by, &compact)).transpose()?,
        })
    }

    pub(crate) fn stored(&self, storage: Storage) -> &LoadedStorage {
        let of_storage = match storage {
            Storage::Full => None,
            Storage::HalfColors => self.half.as_ref(),
            Storage::Compact | Storage::Offloaded => self.compact.as_ref(),
        };
        // A primitive without kernels for a storage has no such model.
        of_storage.unwrap_or(&self.full)
    }
}

impl LoadedStorage {
    fn of(by: &mut dyn Find, names: &StorageKernels) -> Result<Self> {
        let mut project = |name| kernel(by, name, PROJECT_BLOCK);
        let [plain, extended] = [project(&names.project)?, project(&names.project_extended)?];
        let expect = match &names.expect {
            Some([plain, extended]) => Some([project(plain)?, project(extended)?]),
            None => None,
        };
        Ok(Self {
            project: plain,
            project_extended: extended,
            expect,
            step: kernel(by, &names.step, ADAM_BLOCK)?,
            step_extended: kernel(by, &names.step_extended, ADAM_BLOCK)?,
            step_views: match &names.step_views {
                Some(name) => Some(kernel(by, name, ADAM_BLOCK)?),
                None => None,
            },
            surfels: names.surfels.map(|names| LoadedShape::of(by, &names)).transpose()?,
            vertices: names.vertices.map(|names| LoadedShape::of(by, &names)).transpose()?,
        })
    }

    /// Returns the kernels of vertices, or an error if rows cannot be drawn as vertices.
    pub(crate) fn vertices<P: Primitive>(&self) -> Result<&LoadedShape> {
        self.vertices.as_ref().ok_or(unsupported::<P>("being drawn as triangles"))
    }

    /// Returns the kernels of surfels, or an error if rows cannot be drawn as surfels.
    pub(crate) fn surfels<P: Primitive>(&self) -> Result<&LoadedShape> {
        self.surfels.as_ref().ok_or(unsupported::<P>("being drawn as surfels"))
    }
}

impl LoadedShape {
    fn of(by: &mut dyn Find, names: &ShapeKernels) -> Result<Self> {
        Ok(Self {
            project: kernel(by, &names.project, PROJECT_BLOCK)?,
            step: kernel(by, &names.step, ADAM_BLOCK)?,
            step_views: kernel(by, &names.step_views, ADAM_BLOCK)?,
        })
    }
}

pub(crate) const RATES: usize = 6;

/// Checks that a schema fits the kernels' arguments, and that rows begin with centres in single precision.
const fn assert_fits(schema: &Schema) {
    assert!(schema.tables.len() * TABLE_PARTS <= TABLES as usize, "tables");
    assert!(schema.columns.len() <= RATES, "columns");
    let (mut at, mut has_centres) = (0, false);
    while at < schema.columns.len() {
        let column = &schema.columns[at];
        if matches!(column.rate, Rate::Means) {
            let table = &schema.tables[column.table as usize];
            let is_first = at == 0 || schema.columns[at - 1].table != column.table;
            let is_single = matches!(table.full.values, RowForm::Floats)
                && matches!(table.compact.values, RowForm::Floats);
            has_centres = is_first && is_single;
        }
        at += 1;
    }
    assert!(has_centres, "centres");
}
