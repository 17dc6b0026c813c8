//! Facts that a GPU needs of a primitive to store and to train it.
//!
//! Rows lie in tables as the schema says, and all that only moves them about goes by it. Projecting them
//! and moving them down the gradient is the primitive's own work, which its kernels do. What lies
//! between, from tiles to pixels and back, sees records of ellipses or of surfels
//! (`kernels/footprint.cuh`) and is the same for all primitives.

use super::device::launch::{Code, Find, Kernel, KernelName, kernel};
use crate::abi::{ADAM_BLOCK, AdamArgs, PROJECT_BLOCK, ProjectArgs, TABLES};
use crate::backend::{Capability, DeviceError, unsupported};
use crate::layout::{Rate, RowForm, Schema, TABLE_PARTS};
use crate::memory::plan::Storage;
use crate::model::{Gaussians, Primitive};

/// A primitive that a GPU trains.
pub trait CudaPrimitive: Primitive + 'static {
    /// Its kernels.
    const KERNELS: PrimitiveKernels;
    /// What they can do that not all primitives can.
    const CAPABILITIES: &'static [Capability];
}

/// The kernels of a primitive. All have the arguments of `abi`: the first table of the schema is what
/// these call geometry, the second one, where there is one, what they call SH.
#[derive(Clone, Copy)]
pub struct PrimitiveKernels {
    /// Of a model in full precision.
    pub full: StorageKernels,
    /// Of a model with colours in 16 bits, where there are such.
    pub half: Option<StorageKernels>,
    /// Of a compact model, where there are such.
    pub compact: Option<StorageKernels>,
}

/// The kernels of a primitive that depend on how its model is stored.
#[derive(Clone, Copy)]
pub struct StorageKernels {
    /// Rows to records; takes `ProjectArgs`.
    pub project: KernelName,
    /// The same with the filters of the model and of the view.
    pub project_extended: KernelName,
    /// Which lane blocks a view is going to see, without filters and with them, where colours may come from
    /// the host's memory ahead of it; they take `ProjectArgs`.
    pub expect: Option<[KernelName; 2]>,
    /// A step down the gradient of one view; takes `AdamArgs`.
    pub step: KernelName,
    /// The same with filters, inverse depths and what else the primitive is capable of.
    pub step_extended: KernelName,
    /// A step down the gradients of several views, where there is such a kernel.
    pub step_views: Option<KernelName>,
    /// The same kernels of rows as surfels, where they may be drawn so.
    pub surfels: Option<SurfelKernels>,
    /// The kernels of rows as vertices of triangles, where they may be drawn so.
    pub vertices: Option<VertexKernels>,
}

/// The kernels of rows that are vertices of triangles. They take the same arguments.
#[derive(Clone, Copy)]
pub struct VertexKernels {
    /// Colours of those in view.
    pub color: KernelName,
    /// A step down the gradient of one view.
    pub step: KernelName,
    /// A step down the gradients of several.
    pub step_views: KernelName,
}

/// The kernels of rows that are drawn as surfels. They take the same arguments.
#[derive(Clone, Copy)]
pub struct SurfelKernels {
    /// Rows to records.
    pub project: KernelName,
    /// A step down the gradient of one view.
    pub step: KernelName,
    /// A step down the gradients of several.
    pub step_views: KernelName,
}

const fn of_program(file: &'static str, function: &'static str) -> KernelName {
    KernelName { code: Code::Program(file), function }
}

impl CudaPrimitive for Gaussians {
    const KERNELS: PrimitiveKernels = PrimitiveKernels {
        full: StorageKernels {
            project: of_program("project", "project_fwd"),
            project_extended: of_program("project", "project_fwd_extended"),
            expect: None,
            step: of_program("adam", "adam"),
            step_extended: of_program("adam", "adam_extended"),
            step_views: Some(of_program("adam_views", "adam_views")),
            surfels: Some(SurfelKernels {
                project: of_program("project", "project_surfels"),
                step: of_program("adam", "adam_surfels"),
                step_views: of_program("adam_views", "adam_views_surfels"),
            }),
            vertices: Some(VertexKernels {
                color: of_program("triangles", "color_vertices"),
                step: of_program("adam", "adam_vertices"),
                step_views: of_program("adam_views", "adam_views_vertices"),
            }),
        },
        half: Some(StorageKernels {
            project: of_program("project", "project_fwd_half"),
            project_extended: of_program("project", "project_fwd_extended_half"),
            expect: None,
            step: of_program("adam", "adam_half"),
            step_extended: of_program("adam", "adam_extended_half"),
            step_views: Some(of_program("adam_views", "adam_views_half")),
            surfels: Some(SurfelKernels {
                project: of_program("project", "project_surfels_half"),
                step: of_program("adam", "adam_surfels_half"),
                step_views: of_program("adam_views", "adam_views_surfels_half"),
            }),
            vertices: Some(VertexKernels {
                color: of_program("triangles", "color_vertices_half"),
                step: of_program("adam", "adam_vertices_half"),
                step_views: of_program("adam_views", "adam_views_vertices_half"),
            }),
        }),
        compact: Some(StorageKernels {
            project: of_program("project", "project_fwd_compact"),
            project_extended: of_program("project", "project_fwd_extended_compact"),
            expect: Some([
                of_program("project", "expect_rows"),
                of_program("project", "expect_rows_extended"),
            ]),
            step: of_program("adam", "adam_compact"),
            step_extended: of_program("adam", "adam_extended_compact"),
            step_views: Some(of_program("adam_views", "adam_views_compact")),
            surfels: Some(SurfelKernels {
                project: of_program("project", "project_surfels_compact"),
                step: of_program("adam", "adam_surfels_compact"),
                step_views: of_program("adam_views", "adam_views_surfels_compact"),
            }),
            vertices: Some(VertexKernels {
                color: of_program("triangles", "color_vertices_compact"),
                step: of_program("adam", "adam_vertices_compact"),
                step_views: of_program("adam_views", "adam_views_vertices_compact"),
            }),
        }),
    };

    const CAPABILITIES: &'static [Capability] =
        &[Capability::Filter3d, Capability::Noise, Capability::Regularisers, Capability::Surfaces];
}

/// Fails where a primitive cannot do what is asked for.
pub(crate) fn require<P: CudaPrimitive>(
    capability: Capability,
    is_asked_for: bool,
) -> Result<(), DeviceError> {
    if is_asked_for && !P::CAPABILITIES.contains(&capability) {
        return Err(unsupported::<P>(capability.words()));
    }
    Ok(())
}

/// Fails where a primitive cannot be stored so.
pub(crate) fn require_storage<P: CudaPrimitive>(storage: Storage) -> Result<(), DeviceError> {
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

/// The error of a primitive that takes no steps of several views.
pub(crate) fn no_batches<P: Primitive>() -> DeviceError {
    unsupported::<P>("steps of several views")
}

/// True if there are kernels for a compact model.
pub(crate) fn is_compactable<P: CudaPrimitive>() -> bool {
    P::KERNELS.compact.is_some()
}

/// True if a compact model has tables of which a view needs a part.
pub(crate) fn is_offloadable<P: CudaPrimitive>() -> bool {
    is_compactable::<P>() && P::SCHEMA.is_lazy()
}

/// The kernels of a primitive, loaded.
pub(crate) struct LoadedKernels {
    full: LoadedStorage,
    half: Option<LoadedStorage>,
    compact: Option<LoadedStorage>,
}

/// Those that depend on how the model is stored.
pub(crate) struct LoadedStorage {
    /// Without filters, and with them.
    pub(crate) project: [Kernel<ProjectArgs<'static>>; 2],
    /// Without filters, and with them.
    pub(crate) expect: Option<[Kernel<ProjectArgs<'static>>; 2]>,
    /// Without what is extended, and with it.
    pub(crate) step: [Kernel<AdamArgs<'static>>; 2],
    pub(crate) step_views: Option<Kernel<AdamArgs<'static>>>,
    surfels: Option<LoadedSurfels>,
    vertices: Option<LoadedVertices>,
}

/// Those of rows that are vertices of triangles.
pub(crate) struct LoadedVertices {
    pub(crate) color: Kernel<ProjectArgs<'static>>,
    pub(crate) step: Kernel<AdamArgs<'static>>,
    pub(crate) step_views: Kernel<AdamArgs<'static>>,
}

/// Those of rows that are drawn as surfels.
pub(crate) struct LoadedSurfels {
    pub(crate) project: Kernel<ProjectArgs<'static>>,
    pub(crate) step: Kernel<AdamArgs<'static>>,
    pub(crate) step_views: Kernel<AdamArgs<'static>>,
}

impl LoadedKernels {
    /// Looks the kernels up. A context must be current.
    pub(crate) fn of<P: CudaPrimitive>(by: &mut dyn Find) -> Result<Self, DeviceError> {
        const { assert_fits(P::SCHEMA) };
        let PrimitiveKernels { full, half, compact } = P::KERNELS;
        Ok(Self {
            full: LoadedStorage::of(by, &full)?,
            half: half.map(|half| LoadedStorage::of(by, &half)).transpose()?,
            compact: compact.map(|compact| LoadedStorage::of(by, &compact)).transpose()?,
        })
    }

    /// Those of models that are stored so.
    pub(crate) fn stored(&self, storage: Storage) -> &LoadedStorage {
        let of_storage = match storage {
            Storage::Full => None,
            Storage::HalfColors => self.half.as_ref(),
            Storage::Compact | Storage::Offloaded => self.compact.as_ref(),
        };
        // Where there are none of a storage, there is no such model of the primitive.
        of_storage.unwrap_or(&self.full)
    }
}

impl LoadedStorage {
    fn of(by: &mut dyn Find, names: &StorageKernels) -> Result<Self, DeviceError> {
        let mut project = |name| kernel(by, name, PROJECT_BLOCK);
        let plain_and_extended = [project(&names.project)?, project(&names.project_extended)?];
        let expect = match &names.expect {
            Some([plain, extended]) => Some([project(plain)?, project(extended)?]),
            None => None,
        };
        let mut step = |name| kernel(by, name, ADAM_BLOCK);
        let steps = [step(&names.step)?, step(&names.step_extended)?];
        let step_views = names.step_views.as_ref().map(step).transpose()?;
        let surfels = names.surfels.map(|names| LoadedSurfels::of(by, &names)).transpose()?;
        let vertices = names.vertices.map(|names| LoadedVertices::of(by, &names)).transpose()?;
        Ok(Self { project: plain_and_extended, expect, step: steps, step_views, surfels, vertices })
    }

    /// Those of vertices; an error where rows are not drawn so.
    pub(crate) fn vertices<P: Primitive>(&self) -> Result<&LoadedVertices, DeviceError> {
        self.vertices.as_ref().ok_or(unsupported::<P>("being drawn as triangles"))
    }

    /// Those of surfels; an error where rows are not drawn so.
    pub(crate) fn surfels<P: Primitive>(&self) -> Result<&LoadedSurfels, DeviceError> {
        self.surfels.as_ref().ok_or(unsupported::<P>("being drawn as surfels"))
    }
}

impl LoadedSurfels {
    fn of(by: &mut dyn Find, names: &SurfelKernels) -> Result<Self, DeviceError> {
        Ok(Self {
            project: kernel(by, &names.project, PROJECT_BLOCK)?,
            step: kernel(by, &names.step, ADAM_BLOCK)?,
            step_views: kernel(by, &names.step_views, ADAM_BLOCK)?,
        })
    }
}

impl LoadedVertices {
    fn of(by: &mut dyn Find, names: &VertexKernels) -> Result<Self, DeviceError> {
        Ok(Self {
            color: kernel(by, &names.color, PROJECT_BLOCK)?,
            step: kernel(by, &names.step, ADAM_BLOCK)?,
            step_views: kernel(by, &names.step_views, ADAM_BLOCK)?,
        })
    }
}

/// Learning rates that a step takes.
pub(crate) const RATES: usize = 6;

/// What kernels expect of a schema: not more tables and columns than they have arguments for, and
/// centres in single precision that stand first in the rows of their table.
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
