//! The table of kernels. Each kernel takes one struct of arguments.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::rc::Rc;

use cudarc::driver::{result, sys};

use super::driver::{self, failed};
use super::stream::{Launch, Stream};
use crate::abi::{Arguments, BlendArgs, ContributionArgs, CountRowsArgs, InstancesArgs};
use crate::backend::{DeviceError, Result};
use crate::layout::Records;

/// A kernel with arguments `A`, of any lifetime.
pub(crate) struct Kernel<A: Arguments> {
    function: sys::CUfunction,
    block: u32,
    /// The module that holds the function; `None` in a dry run.
    _module: Option<Rc<Module>>,
    arguments: PhantomData<fn(A)>,
}

impl<A: Arguments> Kernel<A> {
    /// Runs at least this many threads, in whole blocks; none if `threads` is 0.
    pub(crate) fn over(&self, stream: &Stream, threads: usize, arguments: &A::With<'_>) -> Result {
        self.blocks(stream, threads.div_ceil(self.block as usize), arguments)
    }

    /// Runs this many blocks; none if `blocks` is 0.
    pub(crate) fn blocks(&self, stream: &Stream, blocks: usize, arguments: &A::With<'_>) -> Result {
        if blocks == 0 {
            return Ok(());
        }
        let Some(grid) = u32::try_from(blocks).ok().filter(|&grid| grid <= i32::MAX.unsigned_abs())
        else {
            return Err(DeviceError::Driver {
                call: "cuLaunchKernel",
                reason: format!("{blocks} blocks are more than a grid has"),
            });
        };
        let launch = Launch { function: self.function, grid, block: self.block };
        let arguments = std::ptr::from_ref(arguments).cast::<c_void>().cast_mut();
        // SAFETY: the kernel takes one `A`, whose layout nvcc asserted and whose size `load`
        // compared; its pointers borrow buffers whose memory is not given back before the device has finished.
        unsafe { stream.queue().launch(&launch, arguments) }
    }
}

pub(crate) struct Module {
    raw: sys::CUmodule,
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: kernels keep their module, so it is unused when dropped.
        if let Err(error) = unsafe { result::module::unload(self.raw) } {
            tracing::debug!("cuModuleUnload: {error}");
        }
    }
}

/// A function and the module that holds it; null and `None` in a dry run.
type Found = Result<(sys::CUfunction, Option<Rc<Module>>)>;

pub(crate) trait Find {
    fn find(&mut self, name: &KernelName, bytes: usize) -> Found;
}

/// Returns null functions, for a queue that runs nothing.
pub(crate) struct Nothing;

impl Find for Nothing {
    fn find(&mut self, _name: &KernelName, _bytes: usize) -> Found {
        Ok((std::ptr::null_mut(), None))
    }
}

/// Loads each module once.
#[derive(Default)]
pub(crate) struct Loader {
    modules: HashMap<Code, Rc<Module>>,
}

impl Loader {
    fn module(&mut self, code: Code) -> Result<Rc<Module>> {
        if let Some(module) = self.modules.get(&code) {
            return Ok(Rc::clone(module));
        }
        let image = match code {
            Code::Program(file) => {
                let known = driver::FATBINS.iter().find(|(name, _)| *name == file);
                known.map(|&(_, image)| image)
            }
            Code::Fatbin { image, .. } => Some(image),
        };
        let Some(image) = image else {
            return Err(DeviceError::Driver {
                call: "cuModuleLoadData",
                reason: format!("this program holds no {}", code.source()),
            });
        };
        // The driver wants images to begin at a multiple of eight bytes. The program's own fatbins do.
        let copy = matches!(code, Code::Fatbin { .. }).then(|| aligned(image));
        let image = copy.as_ref().map_or(image.as_ptr(), |words| words.as_ptr().cast());
        // SAFETY: the image is a whole fatbin as nvcc wrote it.
        let raw = unsafe { result::module::load_data(image.cast()) }
            .map_err(failed("cuModuleLoadData"))?;
        let module = Rc::new(Module { raw });
        self.modules.insert(code, Rc::clone(&module));
        Ok(module)
    }
}

fn aligned(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0_u64; bytes.len().div_ceil(size_of::<u64>())];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}

impl Find for Loader {
    fn find(&mut self, name: &KernelName, bytes: usize) -> Found {
        let &KernelName { code, function } = name;
        let module = self.module(code)?;
        let wrong = |reason: String| DeviceError::Driver {
            call: "cuModuleGetFunction",
            reason: format!("{}, `{function}`: {reason}", code.source()),
        };
        let name = CString::new(function).map_err(|error| wrong(error.to_string()))?;
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(module.raw, name) }
            .map_err(|error| wrong(error.to_string()))?;
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function exists, and the call writes two sizes.
        unsafe { sys::cuFuncGetParamInfo(function, 0, &raw mut offset, &raw mut size) }
            .result()
            .map_err(failed("cuFuncGetParamInfo"))?;
        if size != bytes {
            return Err(wrong(format!("takes {size} bytes where {bytes} would be passed")));
        }
        // Otherwise the first launch loads the code, which the memory budget would not include.
        // SAFETY: the function exists.
        unsafe { sys::cuFuncLoad(function) }.result().map_err(failed("cuFuncLoad"))?;
        Ok((function, Some(module)))
    }
}

/// Finds a kernel that runs in blocks of `block` threads, and compares the size of its arguments.
pub(crate) fn kernel<A: Arguments>(
    by: &mut dyn Find,
    name: &KernelName,
    block: u32,
) -> Result<Kernel<A>> {
    let (function, module) = by.find(name, size_of::<A::With<'static>>())?;
    Ok(Kernel { function, block, _module: module, arguments: PhantomData })
}

/// Declares the kernels: `file(Arguments) x BLOCK: kernel, ...;`, with names from `abi`.
macro_rules! kernels {
    ($($file:ident($arguments:ident) x $block:ident: $($name:ident),*;)*) => {
        /// All kernels except those of primitives.
        pub(crate) struct Kernels {
            $($(pub(crate) $name: Kernel<$crate::abi::$arguments<'static>>,)*)*
        }

        impl Kernels {
            /// Loads all kernels and compares the sizes of their arguments. A context must be current.
            pub(crate) fn load(by: &mut dyn Find) -> Result<Self> {
                Ok(Self {
                    $($($name: kernel(
                        by,
                        &KernelName {
                            code: Code::Program(stringify!($file)),
                            function: stringify!($name),
                        },
                        $crate::abi::$block,
                    )?,)*)*
                })
            }
        }
    };
}

kernels! {
    project(UnpackSplatsArgs) x RANKS_BLOCK: unpack_splats;
    bin(InstancesArgs) x BIN_BLOCK: instances_16, instances_16_surfels, instances_16_triangles,
        instances_32, instances_32_surfels, instances_32_triangles, band_instances_16,
        band_instances_16_surfels, band_instances_16_triangles, band_instances_32,
        band_instances_32_surfels, band_instances_32_triangles;
    bin(CountRowsArgs) x BIN_BLOCK: count_rows, count_rows_surfels, count_rows_triangles;
    bin(RangesArgs) x BIN_BLOCK: ranges_16, ranges_32;
    blend(BlendArgs) x BLEND_BLOCK: blend_fwd, blend_counted, blend_fwd_depth, blend_fwd_surface;
    blend_surfels(BlendArgs) x BLEND_BLOCK: blend_fwd_surfels, blend_counted_surfels,
        blend_fwd_depth_surfels, blend_fwd_surface_surfels;
    blend(BlendArgs) x BLEND_BWD_BLOCK: blend_bwd, blend_bwd_absolute, blend_bwd_squares,
        blend_bwd_depth, blend_bwd_depth_absolute, blend_bwd_depth_squares, blend_bwd_surface,
        blend_bwd_surface_absolute, blend_bwd_surface_squares;
    blend_surfels(BlendArgs) x BLEND_BWD_BLOCK: blend_bwd_surfels, blend_bwd_absolute_surfels,
        blend_bwd_squares_surfels, blend_bwd_depth_surfels, blend_bwd_depth_absolute_surfels,
        blend_bwd_depth_squares_surfels, blend_bwd_surface_surfels,
        blend_bwd_surface_absolute_surfels, blend_bwd_surface_squares_surfels;
    blend_triangles(BlendArgs) x BLEND_BLOCK: blend_fwd_triangles_1, blend_bwd_triangles_1,
        blend_fwd_triangles_2, blend_bwd_triangles_2, blend_fwd_triangles_3,
        blend_bwd_triangles_3, blend_fwd_triangles_4, blend_bwd_triangles_4;
    triangles(ProjectArgs) x PROJECT_BLOCK: place_vertices;
    triangles(FacesArgs) x PROJECT_BLOCK: mark_corners, project_faces;
    triangles(FacesBwdArgs) x PROJECT_BLOCK: faces_bwd;
    triangles(MidpointsArgs) x REMESH_BLOCK: add_midpoints;
    triangles(VertexSizesArgs) x REMESH_BLOCK: clear_vertex_sizes, add_face_areas, set_vertex_sizes;
    triangles(RaiseFloorArgs) x REMESH_BLOCK: raise_opacity_floor;
    normals(FeaturesArgs) x FEATURES_BLOCK: splat_features;
    normals(NormalsArgs) x NORMALS_BLOCK: compare_normals;
    normals(NormalMapArgs) x NORMALS_BLOCK: compare_normal_map;
    patches(PatchesArgs) x PATCHES_BLOCK: compare_patches;
    rays(RaysArgs) x RAYS_BLOCK: ray_gaussians;
    rays(RaysBwdArgs) x RAYS_BLOCK: ray_gaussians_bwd;
    rays(MedianArgs) x MEDIAN_BLOCK: median_depths;
    rays(MedianBwdArgs) x MEDIAN_BLOCK: median_depths_bwd;
    rays(TransmittanceArgs) x TRANSMITTANCE_BLOCK: transmittances;
    depth(DepthLossArgs) x DEPTH_LOSS_BLOCK: depth_loss;
    depth(DistortionArgs) x DISTORTION_BLOCK: measure_distortion;
    loss(LossArgs) x LOSS_BLOCK: loss;
    loss(ShrinkArgs) x SHRINK_BLOCK: shrink;
    lpips(LpipsInputArgs) x LPIPS_PIXELS: lpips_input;
    lpips(LpipsLayerArgs) x LPIPS_BLOCK: lpips_convolution;
    lpips(LpipsLayerArgs) x LPIPS_PIXELS: lpips_pool;
    lpips(LpipsCompareArgs) x LPIPS_PIXELS: lpips_compare;
    adam(CatchUpArgs) x ADAM_BLOCK: catch_up_all, catch_up_all_half, catch_up_all_compact;
    model(CacheArgs) x CACHE_BLOCK: fill_lines, write_lines_back;
    model(SampleArgs) x SAMPLE_BLOCK: sample_rows;
    model(PackArgs) x PACK_BLOCK: pack_rows;
    model(UnpackArgs) x PACK_BLOCK: unpack_rows;
    densify(ObserveArgs) x OBSERVE_BLOCK: observe;
    densify(SurveyArgs) x DENSIFY_BLOCK: survey;
    densify(ListArgs) x DENSIFY_BLOCK: list_candidates;
    densify(SelectedArgs) x DENSIFY_BLOCK: mark_selected;
    densify(GrowArgs) x DENSIFY_BLOCK: grow;
    densify(SurvivorsArgs) x DENSIFY_BLOCK: mark_survivors;
    densify(CompactArgs) x COMPACT_BLOCK: gather, scatter;
    densify(PaddingArgs) x COMPACT_BLOCK: clear_padding;
    densify(ResetArgs) x DENSIFY_BLOCK: reset_opacity;
    densify(DecayArgs) x DENSIFY_BLOCK: decay_opacity;
    densify(DigitsArgs) x DIGITS_BLOCK: count_digits;
    relocate(WeighArgs) x RELOCATE_BLOCK: weigh;
    relocate(DrawArgs) x RELOCATE_BLOCK: draw_sources;
    relocate(SplitOpacityArgs) x RELOCATE_BLOCK: split_opacity;
    relocate(CopyArgs) x RELOCATE_BLOCK: copy_sources;
    contribution(WhitenArgs) x WEIGHTS_BLOCK: whiten;
    contribution(AddWeightsArgs) x WEIGHTS_BLOCK: add_weights;
    contribution(ContributionArgs) x CONTRIBUTION_BLOCK: contribution_pixels, contribution_pixels_surfels;
    contribution(AddContributionsArgs) x CONTRIBUTION_BLOCK: add_contributions;
    fuse(MarkBricksArgs) x FUSE_BLOCK: mark_bricks;
    fuse(WeighPixelsArgs) x FUSE_BLOCK: weigh_pixels;
    fuse(FuseBricksArgs) x FUSE_BLOCK: fuse_bricks;
    neighbours(NearEntriesArgs) x PALETTE_BLOCK: near_entries;
    neighbours(NearCellsArgs) x PALETTE_BLOCK: near_cells;
    reorder(MortonArgs) x REORDER_BLOCK: morton_keys;
    reorder(ColumnsArgs) x REORDER_BLOCK: fetch_column, gather_columns, return_columns;
    neighbours(SplitArgs) x NEIGHBOURS_BLOCK: number_rows, measure_segments, split_keys;
    neighbours(PlaceArgs) x NEIGHBOURS_BLOCK: place_centres;
    neighbours(JoinArgs) x NEIGHBOURS_BLOCK: join_boxes;
    neighbours(NearestArgs) x NEAREST_BLOCK: nearest_16, nearest_32;
    smooth(SmoothArgs) x SMOOTH_BLOCK: smooth_nearest, smooth_spread;
    smooth(ResetSmoothedArgs) x SMOOTH_BLOCK: reset_smoothed_opacity;
    surface(SeenArgs) x SURFACE_BLOCK: count_seen, list_seen;
    surface(EntropyArgs) x SURFACE_BLOCK: regularise_entropy;
    surface(RegulariseArgs) x SURFACE_BLOCK: regularise_16, regularise_32, regularise_shown_16,
        regularise_shown_32, compare_shown_16, compare_shown_32;
    surface(ShowArgs) x SURFACE_BLOCK: find_farthest, show_depths;
    surface(NearArgs) x SURFACE_BLOCK: count_near, list_near;
    appearance(CompensateArgs) x APPEARANCE_BLOCK: compensate_exposure, compensate_grid;
    appearance(ColorBwdArgs) x APPEARANCE_BLOCK: exposure_bwd;
    appearance(GatherArgs) x APPEARANCE_BLOCK: gather_exposure, gather_grid;
    appearance(ColorBwdArgs) x GRID_BWD_BLOCK: grid_bwd;
    appearance(CoastArgs) x APPEARANCE_BLOCK: coast_table;
    appearance(MoveArgs) x APPEARANCE_BLOCK: move_table;
    appearance(FitArgs) x APPEARANCE_BLOCK: fit_colors;
    bind(BindArgs) x BIND_BLOCK: bind_place, bind_forms, bind_vertices;
    probe(ProbeArgs) x PROBE_BLOCK: probe;
}

/// The kernels that list splats of one kind of records.
pub(crate) struct ListKernels<'a> {
    /// With 16-bit and with 32-bit keys.
    pub(crate) instances: [&'a Kernel<InstancesArgs<'static>>; 2],
    /// With 16-bit and with 32-bit keys, for one band.
    pub(crate) band_instances: [&'a Kernel<InstancesArgs<'static>>; 2],
    pub(crate) count_rows: &'a Kernel<CountRowsArgs<'static>>,
}

/// The kernels that blend splats of one kind of records.
pub(crate) struct BlendKernels<'a> {
    pub(crate) blend_fwd: &'a Kernel<BlendArgs<'static>>,
    pub(crate) blend_counted: &'a Kernel<BlendArgs<'static>>,
    pub(crate) blend_fwd_depth: &'a Kernel<BlendArgs<'static>>,
    pub(crate) blend_fwd_surface: &'a Kernel<BlendArgs<'static>>,
    /// Without statistics, with absolute gradients, and with squared gradients.
    pub(crate) blend_bwd: [&'a Kernel<BlendArgs<'static>>; 3],
    /// Like `blend_bwd`, with inverse depths.
    pub(crate) blend_bwd_depth: [&'a Kernel<BlendArgs<'static>>; 3],
    /// Like `blend_bwd`, with the surface's maps.
    pub(crate) blend_bwd_surface: [&'a Kernel<BlendArgs<'static>>; 3],
    pub(crate) contribution_pixels: &'a Kernel<ContributionArgs<'static>>,
}

impl Kernels {
    pub(crate) fn of(&self, records: Records) -> ListKernels<'_> {
        match records {
            Records::Ellipses => ListKernels {
                instances: [&self.instances_16, &self.instances_32],
                band_instances: [&self.band_instances_16, &self.band_instances_32],
                count_rows: &self.count_rows,
            },
            Records::Surfels => ListKernels {
                instances: [&self.instances_16_surfels, &self.instances_32_surfels],
                band_instances: [&self.band_instances_16_surfels, &self.band_instances_32_surfels],
                count_rows: &self.count_rows_surfels,
            },
            Records::Triangles => ListKernels {
                instances: [&self.instances_16_triangles, &self.instances_32_triangles],
                band_instances: [
                    &self.band_instances_16_triangles,
                    &self.band_instances_32_triangles,
                ],
                count_rows: &self.count_rows_triangles,
            },
        }
    }

    /// Returns the forward and the backward kernel of triangles for `samples` samples along a pixel's side, at most 4.
    pub(crate) fn of_triangles(&self, samples: u32) -> [&Kernel<BlendArgs<'static>>; 2] {
        match samples {
            0 | 1 => [&self.blend_fwd_triangles_1, &self.blend_bwd_triangles_1],
            2 => [&self.blend_fwd_triangles_2, &self.blend_bwd_triangles_2],
            3 => [&self.blend_fwd_triangles_3, &self.blend_bwd_triangles_3],
            _ => [&self.blend_fwd_triangles_4, &self.blend_bwd_triangles_4],
        }
    }

    /// Returns the kernels that blend these records. Fails for triangles, which have kernels of their own.
    pub(crate) fn blend(&self, records: Records) -> Result<BlendKernels<'_>> {
        match records {
            Records::Ellipses => Ok(BlendKernels {
                blend_fwd: &self.blend_fwd,
                blend_counted: &self.blend_counted,
                blend_fwd_depth: &self.blend_fwd_depth,
                blend_fwd_surface: &self.blend_fwd_surface,
                blend_bwd: [&self.blend_bwd, &self.blend_bwd_absolute, &self.blend_bwd_squares],
                blend_bwd_depth: [
                    &self.blend_bwd_depth,
                    &self.blend_bwd_depth_absolute,
                    &self.blend_bwd_depth_squares,
                ],
                blend_bwd_surface: [
                    &self.blend_bwd_surface,
                    &self.blend_bwd_surface_absolute,
                    &self.blend_bwd_surface_squares,
                ],
                contribution_pixels: &self.contribution_pixels,
            }),
            Records::Surfels => Ok(BlendKernels {
                blend_fwd: &self.blend_fwd_surfels,
                blend_counted: &self.blend_counted_surfels,
                blend_fwd_depth: &self.blend_fwd_depth_surfels,
                blend_fwd_surface: &self.blend_fwd_surface_surfels,
                blend_bwd: [
                    &self.blend_bwd_surfels,
                    &self.blend_bwd_absolute_surfels,
                    &self.blend_bwd_squares_surfels,
                ],
                blend_bwd_depth: [
                    &self.blend_bwd_depth_surfels,
                    &self.blend_bwd_depth_absolute_surfels,
                    &self.blend_bwd_depth_squares_surfels,
                ],
                blend_bwd_surface: [
                    &self.blend_bwd_surface_surfels,
                    &self.blend_bwd_surface_absolute_surfels,
                    &self.blend_bwd_surface_squares_surfels,
                ],
                contribution_pixels: &self.contribution_pixels_surfels,
            }),
            Records::Triangles => Err(DeviceError::Unsupported {
                primitives: "triangles",
                what: "being blended as Gaussians",
            }),
        }
    }
}

/// A piece of code for the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// A file of `kernels/` without its extension.
    Program(&'static str),
    /// A fatbin that nvcc wrote.
    Fatbin {
        /// Source file, for messages.
        source: &'static str,
        /// Bytes of the fatbin.
        image: &'static [u8],
    },
}

impl Code {
    pub(crate) fn source(self) -> String {
        match self {
            Self::Program(file) => format!("kernels/{file}.cu"),
            Self::Fatbin { source, .. } => source.to_owned(),
        }
    }
}

/// The name of a kernel.
#[derive(Clone, Copy)]
pub struct KernelName {
    /// Code that holds the kernel.
    pub code: Code,
    /// Function name without mangling.
    pub function: &'static str,
}
