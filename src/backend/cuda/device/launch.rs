//! The table of kernels. Each kernel takes one struct of arguments.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::rc::Rc;

use cudarc::driver::{result, sys};

use super::driver::{self, failed};
use super::stream::{Launch, Stream};
use crate::abi::{Arguments, BlendArgs, CountRowsArgs, InstancesArgs, WorthArgs};
use crate::backend::DeviceError;
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
    pub(crate) fn over(
        &self,
        stream: &Stream,
        threads: usize,
        arguments: &A::With<'_>,
    ) -> Result<(), DeviceError> {
        self.blocks(stream, threads.div_ceil(self.block as usize), arguments)
    }

    /// Runs this many blocks; none if `blocks` is 0.
    pub(crate) fn blocks(
        &self,
        stream: &Stream,
        blocks: usize,
        arguments: &A::With<'_>,
    ) -> Result<(), DeviceError> {
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
        // compared; its pointers borrow buffers whose memory is not given back before the device
        // has finished.
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

pub(crate) trait Find {
    /// Finds a function that takes `bytes` bytes of arguments.
    fn find(&mut self, name: &KernelName, bytes: usize) -> Result<Found, DeviceError>;
}

pub(crate) struct Found {
    function: sys::CUfunction,
    /// The module that holds the function; `None` if the function is null.
    module: Option<Rc<Module>>,
}

/// Returns null functions, for a queue that runs nothing.
pub(crate) struct Nothing;

impl Find for Nothing {
    fn find(&mut self, _name: &KernelName, _bytes: usize) -> Result<Found, DeviceError> {
        Ok(Found { function: std::ptr::null_mut(), module: None })
    }
}

/// Loads each module once.
#[derive(Default)]
pub(crate) struct Loader {
    modules: HashMap<Code, Rc<Module>>,
}

impl Loader {
    fn module(&mut self, code: Code) -> Result<Rc<Module>, DeviceError> {
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
    fn find(&mut self, name: &KernelName, bytes: usize) -> Result<Found, DeviceError> {
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
        Ok(Found { function, module: Some(module) })
    }
}

/// Finds a kernel that runs in blocks of `block` threads, and compares the size of its arguments.
pub(crate) fn kernel<A: Arguments>(
    by: &mut dyn Find,
    name: &KernelName,
    block: u32,
) -> Result<Kernel<A>, DeviceError> {
    let Found { function, module } = by.find(name, size_of::<A::With<'static>>())?;
    Ok(Kernel { function, block, _module: module, arguments: PhantomData })
}

/// Declares the kernels: `handle: file::function(Arguments) x BLOCK;`, with names from `abi`.
macro_rules! kernels {
    ($(
        $handle:ident: $file:ident::$name:ident($arguments:ident) x $block:ident;
    )*) => {
        /// All kernels except those of primitives.
        pub(crate) struct Kernels {
            $(pub(crate) $handle: Kernel<$crate::abi::$arguments<'static>>,)*
        }

        impl Kernels {
            /// Loads all kernels and compares the sizes of their arguments. A context must be current.
            pub(crate) fn load(by: &mut dyn Find) -> Result<Self, DeviceError> {
                Ok(Self {
                    $($handle: kernel(
                        by,
                        &KernelName {
                            code: Code::Program(stringify!($file)),
                            function: stringify!($name),
                        },
                        $crate::abi::$block,
                    )?,)*
                })
            }
        }
    };
}

kernels! {
    unpack_splats: ranks::unpack_splats(UnpackSplatsArgs) x RANKS_BLOCK;
    instances_16: bin::instances_16(InstancesArgs) x BIN_BLOCK;
    instances_16_surfels: bin::instances_16_surfels(InstancesArgs) x BIN_BLOCK;
    instances_16_triangles: bin::instances_16_triangles(InstancesArgs) x BIN_BLOCK;
    instances_32: bin::instances_32(InstancesArgs) x BIN_BLOCK;
    instances_32_surfels: bin::instances_32_surfels(InstancesArgs) x BIN_BLOCK;
    instances_32_triangles: bin::instances_32_triangles(InstancesArgs) x BIN_BLOCK;
    count_rows: bin::count_rows(CountRowsArgs) x BIN_BLOCK;
    count_rows_surfels: bin::count_rows_surfels(CountRowsArgs) x BIN_BLOCK;
    count_rows_triangles: bin::count_rows_triangles(CountRowsArgs) x BIN_BLOCK;
    band_instances_16: bin::band_instances_16(InstancesArgs) x BIN_BLOCK;
    band_instances_16_surfels: bin::band_instances_16_surfels(InstancesArgs) x BIN_BLOCK;
    band_instances_16_triangles: bin::band_instances_16_triangles(InstancesArgs) x BIN_BLOCK;
    band_instances_32: bin::band_instances_32(InstancesArgs) x BIN_BLOCK;
    band_instances_32_surfels: bin::band_instances_32_surfels(InstancesArgs) x BIN_BLOCK;
    band_instances_32_triangles: bin::band_instances_32_triangles(InstancesArgs) x BIN_BLOCK;
    ranges_16: bin::ranges_16(RangesArgs) x BIN_BLOCK;
    ranges_32: bin::ranges_32(RangesArgs) x BIN_BLOCK;
    blend_fwd: blend::blend_fwd(BlendArgs) x BLEND_BLOCK;
    blend_fwd_surfels: blend_surfels::blend_fwd_surfels(BlendArgs) x BLEND_BLOCK;
    blend_counted: blend::blend_counted(BlendArgs) x BLEND_BLOCK;
    blend_counted_surfels: blend_surfels::blend_counted_surfels(BlendArgs) x BLEND_BLOCK;
    blend_fwd_depth: blend::blend_fwd_depth(BlendArgs) x BLEND_BLOCK;
    blend_fwd_depth_surfels: blend_surfels::blend_fwd_depth_surfels(BlendArgs) x BLEND_BLOCK;
    blend_fwd_surface: blend::blend_fwd_surface(BlendArgs) x BLEND_BLOCK;
    blend_fwd_surface_surfels: blend_surfels::blend_fwd_surface_surfels(BlendArgs) x BLEND_BLOCK;
    blend_bwd: blend::blend_bwd(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_surfels: blend_surfels::blend_bwd_surfels(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_absolute: blend::blend_bwd_absolute(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_absolute_surfels: blend_surfels::blend_bwd_absolute_surfels(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_squares: blend::blend_bwd_squares(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_squares_surfels: blend_surfels::blend_bwd_squares_surfels(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_depth: blend::blend_bwd_depth(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_depth_surfels: blend_surfels::blend_bwd_depth_surfels(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_depth_absolute: blend::blend_bwd_depth_absolute(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_depth_absolute_surfels: blend_surfels::blend_bwd_depth_absolute_surfels(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_depth_squares: blend::blend_bwd_depth_squares(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_depth_squares_surfels: blend_surfels::blend_bwd_depth_squares_surfels(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_surface: blend::blend_bwd_surface(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_surface_surfels: blend_surfels::blend_bwd_surface_surfels(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_surface_absolute: blend::blend_bwd_surface_absolute(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_surface_absolute_surfels: blend_surfels::blend_bwd_surface_absolute_surfels(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_surface_squares: blend::blend_bwd_surface_squares(BlendArgs) x BLEND_BWD_BLOCK;
    blend_bwd_surface_squares_surfels: blend_surfels::blend_bwd_surface_squares_surfels(BlendArgs) x BLEND_BWD_BLOCK;
    blend_fwd_triangles_1: blend_triangles::blend_fwd_triangles_1(BlendArgs) x BLEND_BLOCK;
    blend_bwd_triangles_1: blend_triangles::blend_bwd_triangles_1(BlendArgs) x BLEND_BLOCK;
    blend_fwd_triangles_2: blend_triangles::blend_fwd_triangles_2(BlendArgs) x BLEND_BLOCK;
    blend_bwd_triangles_2: blend_triangles::blend_bwd_triangles_2(BlendArgs) x BLEND_BLOCK;
    blend_fwd_triangles_3: blend_triangles::blend_fwd_triangles_3(BlendArgs) x BLEND_BLOCK;
    blend_bwd_triangles_3: blend_triangles::blend_bwd_triangles_3(BlendArgs) x BLEND_BLOCK;
    blend_fwd_triangles_4: blend_triangles::blend_fwd_triangles_4(BlendArgs) x BLEND_BLOCK;
    blend_bwd_triangles_4: blend_triangles::blend_bwd_triangles_4(BlendArgs) x BLEND_BLOCK;
    place_vertices: triangles::place_vertices(ProjectArgs) x PROJECT_BLOCK;
    mark_corners: triangles::mark_corners(FacesArgs) x PROJECT_BLOCK;
    project_faces: triangles::project_faces(FacesArgs) x PROJECT_BLOCK;
    faces_bwd: triangles::faces_bwd(FacesBwdArgs) x PROJECT_BLOCK;
    add_midpoints: remesh::add_midpoints(MidpointsArgs) x REMESH_BLOCK;
    clear_vertex_sizes: remesh::clear_vertex_sizes(VertexSizesArgs) x REMESH_BLOCK;
    add_face_areas: remesh::add_face_areas(VertexSizesArgs) x REMESH_BLOCK;
    set_vertex_sizes: remesh::set_vertex_sizes(VertexSizesArgs) x REMESH_BLOCK;
    raise_opacity_floor: remesh::raise_opacity_floor(RaiseFloorArgs) x REMESH_BLOCK;
    splat_features: normals::splat_features(FeaturesArgs) x FEATURES_BLOCK;
    compare_normals: normals::compare_normals(NormalsArgs) x NORMALS_BLOCK;
    compare_normal_map: normal_map::compare_normal_map(NormalMapArgs) x NORMALS_BLOCK;
    compare_patches: patches::compare_patches(PatchesArgs) x PATCHES_BLOCK;
    ray_gaussians: rays::ray_gaussians(RaysArgs) x RAYS_BLOCK;
    ray_gaussians_bwd: rays::ray_gaussians_bwd(RaysBwdArgs) x RAYS_BLOCK;
    median_depths: median::median_depths(MedianArgs) x MEDIAN_BLOCK;
    median_depths_bwd: median::median_depths_bwd(MedianBwdArgs) x MEDIAN_BLOCK;
    transmittances: transmittance::transmittances(TransmittanceArgs) x TRANSMITTANCE_BLOCK;
    depth_loss: depth::depth_loss(DepthLossArgs) x DEPTH_LOSS_BLOCK;
    measure_distortion: distortion::measure_distortion(DistortionArgs) x DISTORTION_BLOCK;
    loss: loss::loss(LossArgs) x LOSS_BLOCK;
    shrink: shrink::shrink(ShrinkArgs) x SHRINK_BLOCK;
    lpips_input: lpips::lpips_input(LpipsInputArgs) x LPIPS_PIXELS;
    lpips_convolution: lpips::lpips_convolution(LpipsLayerArgs) x LPIPS_BLOCK;
    lpips_pool: lpips::lpips_pool(LpipsLayerArgs) x LPIPS_PIXELS;
    lpips_compare: lpips::lpips_compare(LpipsCompareArgs) x LPIPS_PIXELS;
    catch_up_all: adam::catch_up_all(CatchUpArgs) x ADAM_BLOCK;
    catch_up_all_half: adam::catch_up_all_half(CatchUpArgs) x ADAM_BLOCK;
    catch_up_all_compact: adam::catch_up_all_compact(CatchUpArgs) x ADAM_BLOCK;
    fill_lines: cache::fill_lines(CacheArgs) x CACHE_BLOCK;
    write_lines_back: cache::write_lines_back(CacheArgs) x CACHE_BLOCK;
    sample_rows: model::sample_rows(SampleArgs) x SAMPLE_BLOCK;
    pack_rows: pack::pack_rows(PackArgs) x PACK_BLOCK;
    unpack_rows: pack::unpack_rows(UnpackArgs) x PACK_BLOCK;
    observe: densify::observe(ObserveArgs) x OBSERVE_BLOCK;
    survey: densify::survey(SurveyArgs) x DENSIFY_BLOCK;
    list_candidates: densify::list_candidates(ListArgs) x DENSIFY_BLOCK;
    mark_selected: densify::mark_selected(SelectedArgs) x DENSIFY_BLOCK;
    grow: densify::grow(GrowArgs) x DENSIFY_BLOCK;
    mark_survivors: densify::mark_survivors(SurvivorsArgs) x DENSIFY_BLOCK;
    gather: densify::gather(CompactArgs) x COMPACT_BLOCK;
    scatter: densify::scatter(CompactArgs) x COMPACT_BLOCK;
    clear_padding: densify::clear_padding(PaddingArgs) x COMPACT_BLOCK;
    reset_opacity: densify::reset_opacity(ResetArgs) x DENSIFY_BLOCK;
    fade_opacity: densify::fade_opacity(FadeArgs) x DENSIFY_BLOCK;
    count_digits: quantile::count_digits(DigitsArgs) x DIGITS_BLOCK;
    weigh: relocate::weigh(WeighArgs) x RELOCATE_BLOCK;
    draw_sources: relocate::draw_sources(DrawArgs) x RELOCATE_BLOCK;
    split_opacity: relocate::split_opacity(SplitOpacityArgs) x RELOCATE_BLOCK;
    copy_sources: relocate::copy_sources(CopyArgs) x RELOCATE_BLOCK;
    whiten: weights::whiten(WhitenArgs) x WEIGHTS_BLOCK;
    add_weights: weights::add_weights(AddWeightsArgs) x WEIGHTS_BLOCK;
    worth_pixels: worth::worth_pixels(WorthArgs) x WORTH_BLOCK;
    worth_pixels_surfels: worth::worth_pixels_surfels(WorthArgs) x WORTH_BLOCK;
    add_worths: worth::add_worths(AddWorthsArgs) x WORTH_BLOCK;
    mark_bricks: fuse::mark_bricks(MarkBricksArgs) x FUSE_BLOCK;
    weigh_pixels: fuse::weigh_pixels(WeighPixelsArgs) x FUSE_BLOCK;
    fuse_bricks: fuse::fuse_bricks(FuseBricksArgs) x FUSE_BLOCK;
    near_entries: palette::near_entries(NearEntriesArgs) x PALETTE_BLOCK;
    near_cells: palette::near_cells(NearCellsArgs) x PALETTE_BLOCK;
    morton_keys: reorder::morton_keys(MortonArgs) x REORDER_BLOCK;
    fetch_column: reorder::fetch_column(ColumnsArgs) x REORDER_BLOCK;
    gather_columns: reorder::gather_columns(ColumnsArgs) x REORDER_BLOCK;
    return_columns: reorder::return_columns(ColumnsArgs) x REORDER_BLOCK;
    number_rows: neighbours::number_rows(SplitArgs) x NEIGHBOURS_BLOCK;
    measure_segments: neighbours::measure_segments(SplitArgs) x NEIGHBOURS_BLOCK;
    split_keys: neighbours::split_keys(SplitArgs) x NEIGHBOURS_BLOCK;
    place_centres: neighbours::place_centres(PlaceArgs) x NEIGHBOURS_BLOCK;
    join_boxes: neighbours::join_boxes(JoinArgs) x NEIGHBOURS_BLOCK;
    nearest_16: neighbours::nearest_16(NearestArgs) x NEAREST_BLOCK;
    nearest_32: neighbours::nearest_32(NearestArgs) x NEAREST_BLOCK;
    smooth_nearest: smooth::smooth_nearest(SmoothArgs) x SMOOTH_BLOCK;
    smooth_spread: smooth::smooth_spread(SmoothArgs) x SMOOTH_BLOCK;
    reset_smoothed_opacity: smooth::reset_smoothed_opacity(ResetSmoothedArgs) x SMOOTH_BLOCK;
    count_seen: surface::count_seen(SeenArgs) x SURFACE_BLOCK;
    list_seen: surface::list_seen(SeenArgs) x SURFACE_BLOCK;
    regularise_entropy: surface::regularise_entropy(EntropyArgs) x SURFACE_BLOCK;
    regularise_16: surface::regularise_16(RegulariseArgs) x SURFACE_BLOCK;
    regularise_32: surface::regularise_32(RegulariseArgs) x SURFACE_BLOCK;
    regularise_shown_16: surface::regularise_shown_16(RegulariseArgs) x SURFACE_BLOCK;
    regularise_shown_32: surface::regularise_shown_32(RegulariseArgs) x SURFACE_BLOCK;
    compare_shown_16: surface::compare_shown_16(RegulariseArgs) x SURFACE_BLOCK;
    compare_shown_32: surface::compare_shown_32(RegulariseArgs) x SURFACE_BLOCK;
    find_farthest: surface::find_farthest(ShowArgs) x SURFACE_BLOCK;
    show_depths: surface::show_depths(ShowArgs) x SURFACE_BLOCK;
    count_near: surface::count_near(NearArgs) x SURFACE_BLOCK;
    list_near: surface::list_near(NearArgs) x SURFACE_BLOCK;
    compensate_exposure: appearance::compensate_exposure(CompensateArgs) x APPEARANCE_BLOCK;
    compensate_grid: appearance::compensate_grid(CompensateArgs) x APPEARANCE_BLOCK;
    exposure_bwd: appearance::exposure_bwd(ColorBwdArgs) x APPEARANCE_BLOCK;
    gather_exposure: appearance::gather_exposure(GatherArgs) x APPEARANCE_BLOCK;
    grid_bwd: appearance::grid_bwd(ColorBwdArgs) x GRID_BWD_BLOCK;
    gather_grid: appearance::gather_grid(GatherArgs) x APPEARANCE_BLOCK;
    coast_table: appearance::coast_table(CoastArgs) x APPEARANCE_BLOCK;
    move_table: appearance::move_table(MoveArgs) x APPEARANCE_BLOCK;
    fit_colors: appearance::fit_colors(FitArgs) x APPEARANCE_BLOCK;
    bind_place: bind::bind_place(BindArgs) x BIND_BLOCK;
    bind_forms: bind::bind_forms(BindArgs) x BIND_BLOCK;
    bind_vertices: bind::bind_vertices(BindArgs) x BIND_BLOCK;
    probe: probe::probe(ProbeArgs) x PROBE_BLOCK;
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
    pub(crate) worth_pixels: &'a Kernel<WorthArgs<'static>>,
}

impl Kernels {
    /// Returns the kernels that list these records.
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

    /// Returns the forward and the backward kernel of triangles for `samples` samples along each side of a pixel,
    /// at most 4.
    pub(crate) fn of_triangles(&self, samples: u32) -> [&Kernel<BlendArgs<'static>>; 2] {
        match samples {
            0 | 1 => [&self.blend_fwd_triangles_1, &self.blend_bwd_triangles_1],
            2 => [&self.blend_fwd_triangles_2, &self.blend_bwd_triangles_2],
            3 => [&self.blend_fwd_triangles_3, &self.blend_bwd_triangles_3],
            _ => [&self.blend_fwd_triangles_4, &self.blend_bwd_triangles_4],
        }
    }

    /// Returns the kernels that blend these records. Fails for triangles, which have kernels of their own.
    pub(crate) fn blend(&self, records: Records) -> Result<BlendKernels<'_>, DeviceError> {
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
                worth_pixels: &self.worth_pixels,
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
                worth_pixels: &self.worth_pixels_surfels,
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
    /// Returns the path of the source file.
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
