//! Stage `project` of triangles: vertices to the screen, faces to triangles there, and their gradients back.

use super::project::{DrawnView, Order, SplatRecords, Splats, Vertices};
use crate::abi::{FacesArgs, FacesBwdArgs, In, Out, ProjectArgs};
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Buffer, Heap};
use crate::backend::cuda::memory::status::SplatCounts;
use crate::backend::cuda::model::tables::{Model, SH, SH_FIRST, SH_SECOND};
use crate::backend::cuda::primitive::CudaPrimitive;
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, Drawing, Footprint, Window, unsupported};
use crate::layout::{Projected, Records, SplatSlots, VERTEX_GRADIENTS, ViewSizes, splat_capacity};
use crate::math::Real;
use crate::math::splat::PlaceGradients;

/// The window of what is drawn as triangles.
pub(crate) fn window(footprint: Footprint) -> Option<Window> {
    match footprint {
        Footprint::Triangle(window) => Some(window),
        Footprint::Ellipse { .. } | Footprint::Surfel => None,
    }
}

/// Projects the model's faces, as `project::forward` does with rows.
pub(crate) fn forward<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    drawn: DrawnView<'_>,
    window: &Window,
) -> Result<Splats, DeviceError> {
    let (gaussians, kind) = (model.len() as u64, Records::Triangles);
    let (_, faces) = faces_of(model);
    let sizes = |most_visible: usize| ViewSizes {
        gaussians,
        visible: 0,
        capacity: splat_capacity(most_visible as u64, faces as u64),
        records: kind,
        pixels: 0,
    };
    let mut room = sizes(session.most_visible);
    let mut projected = Projected::reserve(&session.heap, &room)?;
    place_vertices(session, model, drawn, window, &mut projected)?;
    loop {
        let SplatCounts { instances, visible } =
            project_faces(session, model, drawn, window, &mut projected)?;
        if visible as u64 <= room.capacity {
            let Projected { splat_from_gaussian, vertices, splats } = projected;
            let records = vertices.ok_or(unsupported::<P>("being drawn as triangles"))?;
            let backward = drawn.settings.trains;
            let gradients = backward.then(|| session.heap.take(&VERTEX_GRADIENTS, &room));
            return Ok(Splats {
                visible,
                instances,
                kind,
                records: SplatRecords::new(splats.records),
                splat_from_gaussian,
                gradients: splats.gradients,
                features: None,
                rays: None,
                vertices: Some(Vertices { records, gradients: gradients.transpose()? }),
            });
        }
        // Twice the work, once: later views start with this capacity.
        session.most_visible = visible;
        room = sizes(visible);
        projected = projected.renew(&session.heap, &room)?;
    }
}

/// The triangles of a model, and how many: none of a model that was given none.
fn faces_of<P: CudaPrimitive>(model: &Model<P>) -> (In<'_, u32>, usize) {
    model.faces.as_ref().map_or((In::NULL, 0), |tables| (tables.faces.read(), tables.len()))
}

/// Where each vertex is, and the colours of those whose faces the view sees.
fn place_vertices<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    DrawnView { camera, settings }: DrawnView<'_>,
    window: &Window,
    projected: &mut Projected<Heap>,
) -> Result<(), DeviceError> {
    let (faces, faces_len) = faces_of(model);
    let kernels = model.stored_kernels().vertices::<P>()?;
    model.lines.wait(session)?;
    let begun = session.timers.begin(Stage::Project, &session.stream)?;
    let rows = model.len();
    let Projected { splat_from_gaussian, vertices, .. } = projected;
    let vertices = vertices.as_mut().ok_or(unsupported::<P>("being drawn as triangles"))?;
    let (counts, fault) = session.status.counts_and_fault(P::SCHEMA);
    let args = ProjectArgs {
        geometry: model.geometry(),
        filter_3d: In::NULL,
        sh: model.table(SH),
        sh_first: model.table(SH_FIRST),
        sh_second: model.table(SH_SECOND),
        sh_steps: model.sh_steps.read(),
        sh_drifts: model.sh_drifts.read(),
        cache: model.color_cache_of(settings),
        splat_from_gaussian: splat_from_gaussian.write(),
        splats: vertices.write(),
        tiles: Out::NULL,
        depth_keys: Out::NULL,
        splat_indices: Out::NULL,
        instance_counts: Out::NULL,
        fault,
        counts,
        camera: *camera,
        lazy: model.momentum.now(),
        gaussians: count_u32(rows)?,
        capacity: 0,
        sh_degree: settings.sh_degree,
        sh_width: model.sh_width(),
        opacity_floor: f32::of(window.opacity_floor),
        reserved: 0,
    };
    session.kernels.place_vertices.over(&session.stream, rows, &args)?;
    let marking = FacesArgs {
        faces,
        vertices: In::at(args.splats.address()),
        splat_from_gaussian: args.splat_from_gaussian,
        splats: Out::NULL,
        tiles: Out::NULL,
        depth_keys: Out::NULL,
        splat_indices: Out::NULL,
        instance_counts: Out::NULL,
        counts: Out::NULL,
        camera: *camera,
        faces_len: count_u32(faces_len)?,
        capacity: 0,
        inradius_min_px: f32::of(window.inradius_min_px),
        reserved: 0,
    };
    session.kernels.mark_corners.over(&session.stream, faces_len, &marking)?;
    kernels.color.over(&session.stream, rows, &args)?;
    session.timers.end(&begun, &session.stream)
}

/// Lists the triangles that the view sees. Waits for the device.
fn project_faces<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    DrawnView { camera, .. }: DrawnView<'_>,
    window: &Window,
    projected: &mut Projected<Heap>,
) -> Result<SplatCounts, DeviceError> {
    let begun = session.timers.begin(Stage::Project, &session.stream)?;
    session.status.clear_counts(&session.stream)?;
    let Projected { splat_from_gaussian, vertices, splats } = projected;
    let SplatSlots { gradients, records } = splats;
    let capacity = gradients.len() / Records::Triangles.width() as usize;
    let mut order = Order::of(gradients, Records::Triangles)?;
    let (faces, len) = faces_of(model);
    let (counts, _) = session.status.counts_and_fault(P::SCHEMA);
    let args = FacesArgs {
        faces,
        vertices: vertices.as_ref().map_or(In::NULL, Buffer::read),
        splat_from_gaussian: splat_from_gaussian.write(),
        splats: records.write(),
        tiles: order.tiles.write(),
        depth_keys: order.depth_keys[0].write(),
        splat_indices: order.splat_indices[0].write(),
        instance_counts: order.instance_counts.write(),
        counts,
        camera: *camera,
        faces_len: count_u32(len)?,
        capacity: count_u32(capacity)?,
        inradius_min_px: f32::of(window.inradius_min_px),
        reserved: 0,
    };
    session.kernels.project_faces.over(&session.stream, len, &args)?;
    session.timers.end(&begun, &session.stream)?;
    session.status.read_counts(&session.stream)
}

/// Turns the gradients of triangles into those of their vertices, which take their place. Does nothing with other
/// splats.
pub(crate) fn backward<P: CudaPrimitive>(
    session: &Session,
    model: &mut Model<P>,
    splats: &mut Splats,
    settings: &Drawing,
) -> Result<(), DeviceError> {
    let Some(window) = window(settings.footprint) else { return Ok(()) };
    let mut vertices = splats.vertices.take().ok_or(DeviceError::NoView)?;
    let mut d_vertices = vertices.gradients.take().ok_or(DeviceError::NoView)?;
    let begun = session.timers.begin(Stage::BlendBackward, &session.stream)?;
    d_vertices.zero(&session.stream)?;
    let Some(tables) = &mut model.faces else {
        splats.gradients = d_vertices;
        return session.timers.end(&begun, &session.stream);
    };
    let args = FacesBwdArgs {
        faces: tables.faces.read(),
        vertices: vertices.records.read(),
        splats: splats.records.read(),
        gradients: splats.gradients.read(),
        d_vertices: d_vertices.write(),
        reaches_px: match settings.observe {
            Some(_) => tables.reaches_px.write(),
            None => Out::NULL,
        },
        gradient_norms: match settings.observe {
            Some(_) => tables.gradient_norms.write(),
            None => Out::NULL,
        },
        visible: count_u32(splats.visible)?,
        inradius_min_px: f32::of(window.inradius_min_px),
        opacity_floor: f32::of(window.opacity_floor),
        by_distances: u32::from(window.gradients == PlaceGradients::EdgeDistances),
    };
    session.kernels.faces_bwd.over(&session.stream, splats.visible, &args)?;
    splats.gradients = d_vertices;
    session.timers.end(&begun, &session.stream)
}
