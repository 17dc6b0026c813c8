//! Stage `project`: primitives to splats.

use crate::abi::{self, Counts, FacesArgs, FacesBwdArgs, ProjectArgs, TileRect};
use crate::backend::cuda::device::stream::Stream;
use crate::backend::cuda::memory::heap::{Carve, Piece};
use crate::backend::cuda::memory::status::SplatCounts;
use crate::backend::cuda::model::tables::{SH, SH_FIRST, SH_SECOND};
use crate::backend::cuda::prelude::*;
use crate::backend::{DrawSettings, Footprint, Window, unsupported};
use crate::dataset::View;
use crate::layout::{
    self, Projected, Records, Records as RecordKind, SplatSlots, VERTEX_GRADIENTS, ViewSizes,
    splat_capacity,
};
use crate::math::splat::{PlaceGradients, TILE};

/// Surface features of splats.
pub(crate) type Features = layout::FeatureSlots<Heap>;

/// Splats as rays meet them.
pub(crate) type Rays = layout::RaySlots<Heap>;

/// The visible splats of a view.
pub(crate) struct Splats {
    pub(crate) visible: usize,
    /// Number of pairs of a splat and a tile that it reaches.
    pub(crate) instances: u64,
    pub(crate) kind: RecordKind,
    pub(crate) records: SplatRecords,
    /// Index of each Gaussian's splat; `[gaussians]`.
    pub(crate) splat_from_gaussian: Block<u32>,
    /// Gradients, [capacity, record]; holds the inputs of sorting first.
    pub(crate) gradients: Block<f32>,
    pub(crate) features: Option<Features>,
    /// Ray records, if median depths are drawn.
    pub(crate) rays: Option<Rays>,
    /// Vertices of triangles, until the backward pass.
    pub(crate) vertices: Option<Vertices>,
}

pub(crate) struct Vertices {
    /// [gaussians, 8]
    pub(crate) records: Block<f32>,
    /// [gaussians, 12]; `Some` if a backward pass follows.
    pub(crate) gradients: Option<Block<f32>>,
}

/// Records of splats, [capacity, record]; `None` once only a step follows.
pub(crate) struct SplatRecords(Option<Block<f32>>);

impl SplatRecords {
    /// [capacity, record]
    pub(crate) fn read(&self) -> In<'_, f32> {
        self.0.as_ref().map_or(In::NULL, Buffer::read)
    }

    /// Returns the memory of the records, or an error if it was freed.
    pub(crate) fn block(&self) -> Result<&Block<f32>> {
        self.0.as_ref().ok_or(DeviceError::NoView)
    }

    pub(crate) fn write(&mut self) -> Out<'_, f32> {
        self.0.as_mut().map_or(Out::NULL, Buffer::write)
    }
}

impl Splats {
    /// Creates the splats of a projection.
    pub(crate) fn of(projected: Projected<Heap>, kind: RecordKind, counts: &SplatCounts) -> Self {
        let Projected { splat_from_gaussian, splats, .. } = projected;
        Self {
            visible: counts.visible,
            instances: counts.instances,
            kind,
            records: SplatRecords(Some(splats.records)),
            splat_from_gaussian,
            gradients: splats.gradients,
            features: None,
            rays: None,
            vertices: None,
        }
    }

    /// Creates splats that have gradients only, for a step.
    pub(crate) fn of_gradients(
        splat_from_gaussian: Block<u32>,
        gradients: Block<f32>,
        visible: usize,
    ) -> Self {
        Self {
            visible,
            instances: 0,
            kind: RecordKind::Ellipses,
            records: SplatRecords(None),
            splat_from_gaussian,
            gradients,
            features: None,
            rays: None,
            vertices: None,
        }
    }

    pub(crate) fn sizes(&self, gaussians: usize, camera: &ViewCamera) -> ViewSizes {
        ViewSizes {
            gaussians: gaussians as u64,
            visible: self.visible as u64,
            capacity: (self.gradients.len() / self.kind.width() as usize) as u64,
            records: self.kind,
            pixels: camera.size.map(u64::from).iter().product(),
        }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let features = self.features.as_ref().map_or(Bytes::default(), |f| f.values.bytes());
        let records = self.records.0.as_ref().map_or(Bytes::default(), Block::bytes);
        let rays = self.rays.as_ref().map_or(Bytes::default(), |rays| rays.values.bytes());
        records + self.splat_from_gaussian.bytes() + features + rays
    }

    pub(crate) fn gradient_bytes(&self) -> Bytes {
        let features = self.features.as_ref().and_then(|features| features.gradients.as_ref());
        let rays = self.rays.as_ref().and_then(|rays| rays.gradients.as_ref());
        let beside = [features, rays].map(|taken| taken.map_or(Bytes::default(), Block::bytes));
        self.gradients.bytes() + beside[0] + beside[1]
    }

    /// Frees the records for gradients of sampled terms. Features lie behind them, so with features nothing is gained.
    pub(crate) fn make_room(&mut self) {
        if self.features.is_none() {
            self.release();
        }
    }

    /// Frees what a step does not need: the records, and features without gradients.
    pub(crate) fn release(&mut self) {
        self.features.take_if(|features| features.gradients.is_none());
        self.records.0 = None;
    }

    pub(crate) fn clear_gradients(&mut self, stream: &Stream) -> Result {
        self.gradients.zero(stream)?;
        let features = self.features.as_mut().and_then(|features| features.gradients.as_mut());
        let rays = self.rays.as_mut().and_then(|rays| rays.gradients.as_mut());
        features.into_iter().chain(rays).try_for_each(|gradients| gradients.zero(stream))
    }
}

/// Inputs of sorting, in the memory of the gradients: 32 of 48 or 64 bytes per splat.
pub(crate) struct Order<'a> {
    pub(crate) tiles: Piece<'a, TileRect>,
    pub(crate) depth_keys: [Piece<'a, u32>; 2],
    pub(crate) splat_indices: [Piece<'a, u32>; 2],
    pub(crate) instance_counts: Piece<'a, u32>,
    /// First instance of each splat, front to back.
    pub(crate) firsts: Piece<'a, u32>,
}

impl<'a> Order<'a> {
    /// Returns the inputs at fixed places for the capacity.
    pub(crate) fn of(gradients: &'a mut Block<f32>, kind: RecordKind) -> Result<Self> {
        let capacity = gradients.len() / kind.width() as usize;
        let mut room: Carve<'a> = gradients.carve();
        Ok(Self {
            tiles: room.take(capacity)?,
            depth_keys: [room.take(capacity)?, room.take(capacity)?],
            splat_indices: [room.take(capacity)?, room.take(capacity)?],
            instance_counts: room.take(capacity)?,
            firsts: room.take(capacity)?,
        })
    }
}

/// A camera with the settings of its drawing.
#[derive(Clone, Copy)]
pub(crate) struct DrawnView<'a> {
    pub(crate) camera: &'a ViewCamera,
    pub(crate) settings: &'a DrawSettings,
}

/// Returns the camera of the kernels.
pub(crate) fn camera(view: &View, settings: &DrawSettings) -> Result<ViewCamera> {
    let size = [view.camera.width, view.camera.height];
    // Kernels index the values of an image with 32 bits.
    let values = size.map(u64::from).iter().product::<u64>() * 3;
    if size.iter().any(|&side| side > u32::from(u16::MAX)) || values > u64::from(u32::MAX) {
        return Err(DeviceError::ImageTooLarge { size });
    }
    let point = settings.viewpoint::<f32>(view);
    let bounds = [point.guard(), point.sides()]
        .map(|[along_x, along_y]| [along_x.low, along_x.high, along_y.low, along_y.high]);
    let [guard, sides] = bounds;
    let mut rotation = [0.0; 9];
    rotation.copy_from_slice(point.rotation.as_flattened());
    Ok(ViewCamera {
        rotation,
        translation: point.translation,
        centre_world: point.centre_world,
        focal_px: point.focal_px,
        centre_px: point.centre_px,
        guard,
        sides,
        size,
        tiles: size.map(|side| side.div_ceil(TILE)),
        near: point.near,
        variance_px2: point.variance_px2,
        compensates: u32::from(point.compensates),
    })
}

/// True if the view has its own screen-space filter.
pub(crate) fn filters_screen(camera: &ViewCamera) -> bool {
    camera.compensates != 0 || camera.variance_px2.to_bits() != abi::DILATION_PX2.to_bits()
}

/// True if the model or the view has a filter other than the usual dilation.
pub(crate) fn is_extended<P: CudaPrimitive>(model: &Model<P>, camera: &ViewCamera) -> bool {
    model.optional().filter_3d || filters_screen(camera)
}

/// Projects the model. Waits for the device once, so that sorts and their memory have exact sizes.
pub(crate) fn forward<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    drawn: DrawnView<'_>,
) -> Result<Splats> {
    let gaussians = model.len() as u64;
    let kind = drawn.settings.footprint.records();
    let sizes = |most_visible: usize| ViewSizes {
        gaussians,
        visible: 0,
        capacity: splat_capacity(most_visible as u64, gaussians),
        records: kind,
        pixels: 0,
    };
    let mut room = sizes(session.most_visible);
    let mut projected = Projected::reserve(&session.heap, &room)?;
    loop {
        session.status.clear_counts(&session.stream)?;
        let slots = ProjectionRoom::of(&mut projected);
        launch(session, model, drawn, slots, None)?;
        let counts = session.status.read_counts(&session.stream)?;
        let visible = counts.visible;
        if visible as u64 <= room.capacity {
            return Ok(Splats::of(projected, kind, &counts));
        }
        // Projects a second time, once: later views start with this capacity.
        session.most_visible = visible;
        room = sizes(visible);
        projected = projected.renew(&session.heap, &room)?;
    }
}

/// Outputs of a projection.
pub(crate) struct ProjectionRoom<'a> {
    /// `[gaussians]`
    pub(crate) splat_from_gaussian: &'a mut Block<u32>,
    /// [capacity, record]
    pub(crate) records: &'a mut Block<f32>,
    /// Gradients, which hold the inputs of sorting; `None` if another rank sorts.
    pub(crate) gradients: Option<&'a mut Block<f32>>,
}

impl<'a> ProjectionRoom<'a> {
    /// Returns the outputs of a view that is drawn on this rank.
    pub(crate) fn of(projected: &'a mut Projected<Heap>) -> Self {
        let Projected { splat_from_gaussian, splats, .. } = projected;
        let SplatSlots { gradients, records } = splats;
        Self { splat_from_gaussian, records, gradients: Some(gradients) }
    }
}

/// Returns the arguments that read a model, without outputs.
fn read_args<'a, P: CudaPrimitive>(
    model: &'a Model<P>,
    camera: &ViewCamera,
    drawing: &DrawSettings,
) -> Result<ProjectArgs<'a>> {
    Ok(ProjectArgs {
        geometry: model.geometry(),
        filter_3d: model.filter(),
        sh: model.table(SH),
        sh_first: model.table(SH_FIRST),
        sh_second: model.table(SH_SECOND),
        sh_steps: model.sh_steps.read(),
        sh_drifts: model.sh_drifts.read(),
        cache: model.color_cache_of(drawing),
        camera: *camera,
        lazy: model.momentum.now(),
        gaussians: count_u32(model.len())?,
        sh_degree: drawing.sh_degree,
        sh_width: model.sh_width(),
        ..ProjectArgs::default()
    })
}

/// Projects the model and adds to the session's counts, or to those of the views of all ranks.
pub(crate) fn launch<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    DrawnView { camera, settings }: DrawnView<'_>,
    room: ProjectionRoom<'_>,
    of_ranks: Option<Out<'_, Counts>>,
) -> Result {
    let gaussians = model.len();
    let &DrawSettings { footprint, trains, .. } = settings;
    model.lines.wait(session)?;
    let begun = session.timers.begin(Stage::Project, &session.stream)?;
    let ProjectionRoom { splat_from_gaussian, records, gradients } = room;
    let kind = footprint.records();
    let capacity = records.len() / kind.width() as usize;
    let mut order = gradients.map(|gradients| Order::of(gradients, kind)).transpose()?;
    let (own, fault) = session.status.counts_and_fault(P::SCHEMA);
    let mut args = ProjectArgs {
        splat_from_gaussian: splat_from_gaussian.write(),
        splats: records.write(),
        fault,
        counts: of_ranks.unwrap_or(own),
        capacity: count_u32(capacity)?,
        ..read_args(model, camera, settings)?
    };
    if let Some(Order { tiles, depth_keys, splat_indices, instance_counts, .. }) = &mut order {
        args.tiles = tiles.write();
        args.depth_keys = depth_keys[0].write();
        args.splat_indices = splat_indices[0].write();
        args.instance_counts = instance_counts.write();
    }
    let kernels = model.stored_kernels();
    let is_extended = is_extended(model, camera);
    let kernel = match kind {
        RecordKind::Surfels => &kernels.surfels::<P>()?.project,
        RecordKind::Triangles => return Err(unsupported::<P>("being projected as triangles")),
        RecordKind::Ellipses if is_extended => &kernels.project_extended,
        RecordKind::Ellipses => &kernels.project,
    };
    kernel.over(&session.stream, gaussians, &args)?;
    if trains {
        session.seen.record(&session.stream)?;
        model.lines.note_projection(model.momentum.steps() + 1);
    }
    session.timers.end(&begun, &session.stream)
}

/// Threads that fill cache lines: enough to keep the bus busy, few enough to leave multiprocessors to the step.
const FILLING_THREADS: usize = 8192;

/// Fetches colours of the view after the coming step into cache lines that neither view uses. Does nothing before a
/// view of the coming step is projected. Colours that this misses are read on the host.
pub(crate) fn expect<P: CudaPrimitive>(
    session: &Session,
    model: &mut Model<P>,
    view: &View,
    drawing: &DrawSettings,
) -> Result {
    if drawing.footprint.records() != Records::Ellipses
        || model.stored_kernels().expect.is_none()
        || !model.lines.is_projected_for(model.momentum.steps() + 1)
        || !model.lines.make_ready(&session.stream)?
    {
        return Ok(());
    }
    let camera = camera(view, drawing)?;
    session.copies.wait(&session.seen)?;
    model.lines.begin(&session.copies)?;
    let args = ProjectArgs { cache: model.color_cache(), ..read_args(model, &camera, drawing)? };
    if let Some([plain, extended]) = &model.stored_kernels().expect {
        let kernel = if is_extended(model, &camera) { extended } else { plain };
        kernel.over(&session.copies, model.len(), &args)?;
    }
    session.kernels.fill_lines.over(&session.copies, FILLING_THREADS, &model.cache_args())?;
    session.filled.record(&session.copies)
}

pub(crate) fn window(footprint: Footprint) -> Option<Window> {
    match footprint {
        Footprint::Triangle(window) => Some(window),
        Footprint::Ellipse { .. } | Footprint::Surfel => None,
    }
}

/// Projects the model's faces, like [`forward`] for rows.
pub(crate) fn project_triangles<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    drawn: DrawnView<'_>,
    window: &Window,
) -> Result<Splats> {
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
        let counts = project_faces(session, model, drawn, window, &mut projected)?;
        let visible = counts.visible;
        if visible as u64 <= room.capacity {
            let vertices = projected.vertices.take();
            let records = vertices.ok_or(unsupported::<P>("being drawn as triangles"))?;
            let backward = drawn.settings.trains;
            let gradients = backward.then(|| session.heap.take(&VERTEX_GRADIENTS, &room));
            let vertices = Some(Vertices { records, gradients: gradients.transpose()? });
            return Ok(Splats { vertices, ..Splats::of(projected, kind, &counts) });
        }
        // Projects a second time, once: later views start with this capacity.
        session.most_visible = visible;
        room = sizes(visible);
        projected = projected.renew(&session.heap, &room)?;
    }
}

/// Returns the triangles of a model and their number.
fn faces_of<P: CudaPrimitive>(model: &Model<P>) -> (In<'_, u32>, usize) {
    model.faces.as_ref().map_or((In::NULL, 0), |tables| (tables.faces.read(), tables.len()))
}

/// Projects the vertices, and computes the colours of those whose faces are visible.
fn place_vertices<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    DrawnView { camera, settings }: DrawnView<'_>,
    window: &Window,
    projected: &mut Projected<Heap>,
) -> Result {
    let (faces, faces_len) = faces_of(model);
    let kernels = model.stored_kernels().vertices::<P>()?;
    model.lines.wait(session)?;
    let begun = session.timers.begin(Stage::Project, &session.stream)?;
    let rows = model.len();
    let Projected { splat_from_gaussian, vertices, .. } = projected;
    let vertices = vertices.as_mut().ok_or(unsupported::<P>("being drawn as triangles"))?;
    let (counts, fault) = session.status.counts_and_fault(P::SCHEMA);
    let args = ProjectArgs {
        filter_3d: In::NULL,
        splat_from_gaussian: splat_from_gaussian.write(),
        splats: vertices.write(),
        fault,
        counts,
        opacity_floor: f32::of(window.opacity_floor),
        ..read_args(model, camera, settings)?
    };
    session.kernels.place_vertices.over(&session.stream, rows, &args)?;
    let marking = FacesArgs {
        faces,
        vertices: In::at(args.splats.address()),
        splat_from_gaussian: args.splat_from_gaussian,
        camera: *camera,
        faces_len: count_u32(faces_len)?,
        inradius_min_px: f32::of(window.inradius_min_px),
        ..FacesArgs::default()
    };
    session.kernels.mark_corners.over(&session.stream, faces_len, &marking)?;
    kernels.project.over(&session.stream, rows, &args)?;
    session.timers.end(&begun, &session.stream)
}

/// Lists the visible triangles. Waits for the device.
fn project_faces<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    DrawnView { camera, .. }: DrawnView<'_>,
    window: &Window,
    projected: &mut Projected<Heap>,
) -> Result<SplatCounts> {
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

/// Replaces the gradients of triangles by those of their vertices. Does nothing for other splats.
pub(crate) fn backward<P: CudaPrimitive>(
    session: &Session,
    model: &mut Model<P>,
    splats: &mut Splats,
    settings: &DrawSettings,
) -> Result {
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
