//! The kernels that read what records of splats hold, which are instances of the same templates.

use super::launch::{Kernel, Kernels};
use crate::abi::{BlendArgs, CountRowsArgs, InstancesArgs, WorthArgs};
use crate::backend::DeviceError;
use crate::layout::Records;

/// Those that list one kind of records.
pub(crate) struct ListKernels<'a> {
    /// With keys of 16 bits and of 32.
    pub(crate) instances: [&'a Kernel<InstancesArgs<'static>>; 2],
    /// The same of a band.
    pub(crate) band_instances: [&'a Kernel<InstancesArgs<'static>>; 2],
    pub(crate) count_rows: &'a Kernel<CountRowsArgs<'static>>,
}

/// Those that blend one kind of records, each its own value in a pixel.
pub(crate) struct BlendKernels<'a> {
    pub(crate) blend_fwd: &'a Kernel<BlendArgs<'static>>,
    pub(crate) blend_counted: &'a Kernel<BlendArgs<'static>>,
    pub(crate) blend_fwd_depth: &'a Kernel<BlendArgs<'static>>,
    pub(crate) blend_fwd_surface: &'a Kernel<BlendArgs<'static>>,
    /// Without statistics, with absolute gradients, and with squares.
    pub(crate) blend_bwd: [&'a Kernel<BlendArgs<'static>>; 3],
    /// The same with inverse depths.
    pub(crate) blend_bwd_depth: [&'a Kernel<BlendArgs<'static>>; 3],
    /// The same with a surface's maps.
    pub(crate) blend_bwd_surface: [&'a Kernel<BlendArgs<'static>>; 3],
    pub(crate) worth_pixels: &'a Kernel<WorthArgs<'static>>,
}

impl Kernels {
    /// Those that list such records.
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

    /// Both passes of triangles with so many samples along a pixel's sides; more than there are kernels for
    /// count as the most.
    pub(crate) fn of_triangles(&self, samples: u32) -> [&Kernel<BlendArgs<'static>>; 2] {
        match samples {
            0 | 1 => [&self.blend_fwd_triangles_1, &self.blend_bwd_triangles_1],
            2 => [&self.blend_fwd_triangles_2, &self.blend_bwd_triangles_2],
            3 => [&self.blend_fwd_triangles_3, &self.blend_bwd_triangles_3],
            _ => [&self.blend_fwd_triangles_4, &self.blend_bwd_triangles_4],
        }
    }

    /// Those that blend such records. Triangles have kernels of their own.
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
