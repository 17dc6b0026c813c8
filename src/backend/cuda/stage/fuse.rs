//! Stage `fuse`: fuses the depths of views into voxels. The twin of `backend/cpu/stage/fuse.rs`.

use std::sync::Arc;

use splat_mesh::Camera;
use splat_mesh::narrow::{to_f32, to_f32s};
use splat_mesh::tsdf::{
    DIRECTIONS, DISTANCE_STEPS, FARTHEST, Fusion, FusionError, GRAZING_WEIGHT, LEAST_WEIGHT,
    MARGIN, MOST_WEIGHT, Space, SpaceKind, Survey, SurveyedBricks, TRUNCATION_VOXELS,
};

use super::blend::Canvas;
use crate::abi::{
    self, BRICK_SIDE, BRICK_WIDTH, FuseBricksArgs, LatticeView, MarkBricksArgs, WeighPixelsArgs,
};
use crate::backend::cuda::prelude::*;
use crate::backend::{MaskedView, camera_of};
use crate::layout::{BRICK_MARKS, BrickSlots, DepthSlots, DepthUse, marks_len};
use crate::math::linalg::{Vec3, add, mul, mul_transposed, scale};
use crate::math::normals::OPAQUE_MIN;

// The kernels' constants equal the host's.
const _: () = {
    assert!(abi::BRICK_DIRECTIONS as usize == DIRECTIONS, "directions of a brick");
    assert!(is_same(abi::FARTHEST, to_f32(FARTHEST)), "the end of contracted space");
    assert!(is_same(abi::GRAZING_WEIGHT, to_f32(GRAZING_WEIGHT)), "the least weight of a pixel");
    assert!(is_same(abi::DISTANCE_STEPS, DISTANCE_STEPS), "steps of a distance");
    assert!(is_same(abi::VOXEL_WEIGHT_MIN, LEAST_WEIGHT), "the least weight of a voxel");
    assert!(is_same(abi::VOXEL_WEIGHT_MAX, MOST_WEIGHT), "the largest weight of a voxel");
    assert!(is_same(abi::OPAQUE_MIN, to_f32(OPAQUE_MIN)), "what is opaque");
};

const fn is_same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits()
}

/// The bricks near surfaces in the views so far.
pub struct BrickSurvey {
    survey: Survey,
    /// One bit per brick of the lattice, x fastest.
    marks: Block<u32>,
    bricks: [u32; 3],
}

impl BrickSurvey {
    pub(crate) fn new(session: &Session, space: Space) -> Result<Self> {
        let bricks = space.nodes.map(|nodes| nodes.div_ceil(BRICK_SIDE));
        let mut marks = session.heap.take(&BRICK_MARKS, &marks_len(bricks))?;
        marks.zero(&session.stream)?;
        Ok(Self { survey: Survey::new(space), marks, bricks })
    }

    /// Marks the bricks near the surface in a view. Waits for its depths.
    pub(crate) fn mark(
        &mut self,
        session: &Session,
        canvas: &Canvas,
        seen: MaskedView<'_>,
    ) -> Result {
        let (camera, medians) = (camera_of(seen.view), medians(canvas, seen)?);
        let (heap, pixels) = (&session.heap, medians.len() as u64);
        let DepthSlots { mut counted, .. } =
            DepthSlots::reserve(heap, pixels, seen.mask.is_some(), DepthUse::FindBricks)?;
        let mask = upload_mask(session, seen, counted.as_mut())?;
        let depths = medians.download_vec(&session.stream, 0..medians.len())?;
        let Some(stride) = self.survey.note(camera, &depths)? else { return Ok(()) };
        let [columns, rows] = [camera.width, camera.height].map(|side| side.div_ceil(stride));
        let args = MarkBricksArgs {
            depths: medians.read(),
            mask,
            marks: self.marks.write(),
            view: lattice_view(&self.survey.space, &camera)?,
            bricks: self.bricks,
            stride: count_u32(stride)?,
            columns: count_u32(columns)?,
            count: count_u32(columns * rows)?,
            margin: to_f32(MARGIN),
        };
        session.kernels.mark_bricks.over(&session.stream, columns * rows, &args)
    }

    /// Returns the survey. Waits for the device.
    pub(crate) fn read(self, session: &Session) -> Result<Survey> {
        let Self { mut survey, marks, bricks: [wide, high, _] } = self;
        let words = marks.download_vec(&session.stream, 0..marks.len())?;
        let [wide, high] = [wide, high].map(u64::from);
        let place = |brick: u64| {
            [brick % wide, brick / wide % high, brick / wide / high]
                .map(|at| u32::try_from(at).unwrap_or(u32::MAX))
        };
        let marked = (0..).zip(words).filter(|&(_, word)| word != 0);
        survey.call_bricks(marked.flat_map(|(number, word)| {
            let bits = (0..u32::BITS).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| place(number * u64::from(u32::BITS) + u64::from(bit)))
        }));
        Ok(survey)
    }
}

/// The voxels after the views so far.
pub struct FusedVoxels {
    of: Arc<SurveyedBricks>,
    on_device: BrickSlots<Heap>,
    views: usize,
}

impl FusedVoxels {
    pub(crate) fn new(session: &Session, of: &Arc<SurveyedBricks>) -> Result<Self> {
        let mut on_device = BrickSlots::reserve(&session.heap, of.len() as u64)?;
        let mut rows = Vec::with_capacity(of.len() * BRICK_WIDTH as usize);
        for brick in 0..of.len() {
            rows.extend(of.place(brick).map(|at| to_f32(f64::from(at))));
            rows.extend_from_slice(of.directions(brick).as_flattened());
        }
        on_device.bricks.upload(&session.stream, 0, &rows)?;
        on_device.voxels.zero(&session.stream)?;
        Ok(Self { of: Arc::clone(of), on_device, views: 0 })
    }

    /// Adds a view to the means of the voxels that it sees.
    pub(crate) fn fuse(
        &mut self,
        session: &Session,
        canvas: &Canvas,
        seen: MaskedView<'_>,
    ) -> Result {
        let (camera, medians) = (camera_of(seen.view), medians(canvas, seen)?);
        let Some(maps) = &canvas.surface else { return Err(DeviceError::NoMedianDepths) };
        let view = lattice_view(&self.of.space, &camera)?;
        let pixels = medians.len();
        let (heap, has_mask) = (&session.heap, seen.mask.is_some());
        let DepthSlots { mut counted, mut weighed } =
            DepthSlots::reserve(heap, pixels as u64, has_mask, DepthUse::Fuse)?;
        let mask = upload_mask(session, seen, counted.as_mut())?;
        let args = WeighPixelsArgs {
            depths: medians.read(),
            mask,
            weighed: weighed.as_mut().map_or(Out::NULL, Buffer::write),
            focal_px: view.focal_px,
            centre_px: view.centre_px,
            size: view.size,
        };
        session.kernels.weigh_pixels.over(&session.stream, pixels, &args)?;
        let BrickSlots { bricks, voxels } = &mut self.on_device;
        let args = FuseBricksArgs {
            bricks: bricks.read(),
            weighed: weighed.as_ref().map_or(In::NULL, Buffer::read),
            image: canvas.image.read(),
            maps: maps.read(),
            voxels: voxels.write(),
            view,
            near: to_f32(self.of.near),
        };
        session.kernels.fuse_bricks.blocks(&session.stream, self.of.len(), &args)?;
        self.views += 1;
        Ok(())
    }

    pub(crate) fn read(self, session: &Session) -> Result<Fusion> {
        let Self { of, on_device: BrickSlots { voxels, .. }, views } = self;
        Fusion::filled(of, views, |first, host| {
            voxels.download(&session.stream, first, bytemuck::cast_slice_mut(host))
        })
    }
}

fn upload_mask<'a>(
    session: &Session,
    seen: MaskedView<'_>,
    room: Option<&'a mut Block<u8>>,
) -> Result<In<'a, u8>> {
    let (Some(mask), Some(room)) = (seen.mask, room) else { return Ok(In::NULL) };
    let [width, height] = [seen.view.camera.width, seen.view.camera.height];
    check_size("mask", mask.len(), [width, height])?;
    room.upload(&session.stream, 0, mask)?;
    Ok(room.read())
}

/// Returns the median depths of a frame, which must have the view's size.
fn medians<'a>(canvas: &'a Canvas, seen: MaskedView<'_>) -> Result<&'a Block<f32>> {
    let Some(medians) = &canvas.median_depths else { return Err(DeviceError::NoMedianDepths) };
    check_size("depth map", medians.len(), [seen.view.camera.width, seen.view.camera.height])?;
    Ok(medians)
}

fn check_size(map: &'static str, found: usize, size: [u32; 2]) -> Result<(), FusionError> {
    let [width, height] = size.map(|side| side as usize);
    if found == width * height {
        return Ok(());
    }
    Err(FusionError::MapSize { map, found, width, height })
}

/// Returns the lattice in camera space. World positions are subtracted in double precision.
fn lattice_view(space: &Space, camera: &Camera) -> Result<LatticeView> {
    let (origin, radius) = match space.kind {
        SpaceKind::Box { low } => (low, 0.0),
        SpaceKind::Contracted { centre, radius } => (centre, radius),
    };
    let origin_cam: Vec3<f64> = add(mul(&camera.rotation, origin), camera.translation);
    let eye = scale(mul_transposed(&camera.rotation, origin_cam), -1.0);
    let mut rotation = [0.0; 9];
    for (narrow, &wide) in rotation.iter_mut().zip(camera.rotation.as_flattened()) {
        *narrow = to_f32(wide);
    }
    Ok(LatticeView {
        rotation,
        origin_cam: to_f32s(origin_cam),
        eye: to_f32s(eye),
        focal_px: camera.focal_px.map(to_f32),
        centre_px: camera.centre_px.map(to_f32),
        size: [count_u32(camera.width)?, count_u32(camera.height)?],
        voxel: to_f32(space.voxel),
        truncation: to_f32(TRUNCATION_VOXELS * space.voxel),
        radius: to_f32(radius),
        nodes: space.nodes,
    })
}
