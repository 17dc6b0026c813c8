//! Models on the device: columns in lane blocks, their moments, density statistics, and faces.

use std::marker::PhantomData;
use std::rc::Rc;

use super::color_cache::ColorLines;
use super::lanes::{LANES, table_len};
use super::lazy_adam::LazySteps;
use crate::abi::{self, CacheArgs, CatchUpArgs, DRIFT_STEPS, In, Out, TABLES};
use crate::backend::cuda::device::driver::count_u32;
use crate::backend::cuda::memory::heap::{Buffer, Heap, Region};
use crate::backend::cuda::primitive::{
    CudaPrimitive, LoadedKernels, LoadedStorage, require, require_storage,
};
use crate::backend::cuda::session::Session;
use crate::backend::rows::RowsVersion;
use crate::backend::{Capability, DeviceError, DrawSettings, FaceStatistics, Result};
use crate::layout::{
    self, FACE_GRADIENT_NORMS, FACE_REACHES, FACE_WEIGHTS, FACES, MemoryPlace, ModelSize,
    TABLE_PARTS,
};
use crate::math::random::{RandomStream, RandomUse};
use crate::memory::Bytes;
use crate::memory::plan::{OptionalColumns, REGIONS, Storage};
use crate::model::{Gaussians, Primitive};

/// Indices of the tables of geometry and spherical harmonics.
pub(crate) const GEOMETRY: usize = 0;
pub(crate) const GEOMETRY_FIRST: usize = 1;
pub(crate) const SH: usize = 3;
pub(crate) const SH_FIRST: usize = 4;
pub(crate) const SH_SECOND: usize = 5;

/// Returns pointers to the tables in the kernels' order; null for missing tables.
pub(crate) fn pointers(tables: &mut [Region<u32>]) -> [Out<'_, u32>; TABLES as usize] {
    let mut tables = tables.iter_mut();
    std::array::from_fn(|_| tables.next().map_or(Out::NULL, Buffer::write))
}

/// A model in training.
pub struct Model<P = Gaussians> {
    len: usize,
    sh_degree: u32,
    storage: Storage,
    /// Each [lane blocks, width, 32].
    pub(crate) tables: Vec<Region<u32>>,
    /// Number of steps that each lane block's lazy table has taken, [lane blocks]; other steps are in `momentum`.
    pub(crate) sh_steps: Region<u32>,
    /// Drifts of skipped steps for each of the latest steps, [`DRIFT_STEPS`, 2].
    pub(crate) sh_drifts: Region<f32>,
    /// Device cache of tables in the host's memory.
    pub(crate) lines: ColorLines,
    pub(crate) momentum: LazySteps,
    /// Sums of the norms of the screen-space gradients, `[n]`.
    pub(crate) gradient_norm_sums: Region<f32>,
    /// Numbers of views that saw each Gaussian, `[n]`.
    pub(crate) views_seen: Region<u32>,
    /// Sums of the absolute screen-space gradients, `[n]`; empty until they are enabled.
    pub(crate) absolute_norm_sums: Region<f32>,
    /// Standard deviations of the 3D filter, world units, `[n]`; empty without the filter.
    pub(crate) filter_3d: Region<f32>,
    pub(crate) faces: Option<FaceTables>,
    rows_version: RowsVersion,
    kernels: Rc<LoadedKernels>,
    primitive: PhantomData<P>,
}

impl<P: Primitive> Model<P> {
    pub(crate) fn set_storage(&mut self, storage: Storage) {
        self.storage = storage;
    }

    /// Returns the index of a row, or an error if there is no such row.
    pub(crate) fn known_row(&self, row: usize) -> Result<u32> {
        if row < self.len {
            count_u32(row)
        } else {
            Err(DeviceError::NoSuchRow { row, len: self.len })
        }
    }

    fn empty(
        heap: &Heap,
        kernels: Rc<LoadedKernels>,
        sh_degree: u32,
        storage: Storage,
    ) -> Result<Self> {
        let places =
            P::SCHEMA.tables.iter().flat_map(|table| [storage.place_of(table); TABLE_PARTS]);
        let slots = layout::table_slots(P::SCHEMA).zip(places);
        let tables = slots.map(|(slot, place)| heap.region_in(place, &slot));
        Ok(Self {
            len: 0,
            sh_degree,
            storage,
            tables: tables.collect::<Result<_, _>>()?,
            sh_steps: heap.region(&layout::SH_STEPS)?,
            sh_drifts: heap.region(&layout::SH_DRIFTS)?,
            lines: ColorLines::new(heap)?,
            momentum: LazySteps::default(),
            gradient_norm_sums: heap.region(&layout::GRADIENT_NORM_SUMS)?,
            views_seen: heap.region(&layout::VIEWS_SEEN)?,
            absolute_norm_sums: heap.region(&layout::ABSOLUTE_NORM_SUMS)?,
            filter_3d: heap.region(&layout::FILTER_3D)?,
            faces: None,
            rows_version: RowsVersion::new(),
            kernels,
            primitive: PhantomData,
        })
    }

    /// Returns the version of the rows, which changes when rows are added, removed or moved.
    pub(crate) fn rows_version(&self) -> &RowsVersion {
        &self.rows_version
    }

    pub(crate) fn kernels(&self) -> &Rc<LoadedKernels> {
        &self.kernels
    }

    /// Returns the kernels for the model's storage.
    pub(crate) fn stored_kernels(&self) -> &LoadedStorage {
        self.kernels.stored(self.storage)
    }

    /// Starts a new version of the rows, before they change. Growth that is undone is no change.
    pub(crate) fn invalidate_rows(&mut self) {
        self.rows_version = RowsVersion::new();
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the model has no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the highest degree of the spherical harmonics.
    pub fn sh_degree(&self) -> u32 {
        self.sh_degree
    }

    /// Returns the number of rows and the layout of a row.
    pub fn size(&self) -> ModelSize {
        ModelSize {
            gaussians: self.len as u64,
            schema: if self.faces.is_some() { &layout::TRIANGLES } else { P::SCHEMA },
            sh_degree: self.sh_degree,
            storage: self.storage,
            optional: self.optional(),
        }
    }

    /// Returns the storage.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// Returns the words per row of each table.
    pub(crate) fn widths(&self) -> impl Iterator<Item = usize> + use<P> {
        self.size().widths().map(|width| width as usize)
    }

    /// Returns the words per row of each table for kernels; 0 for missing tables.
    pub(crate) fn kernel_widths(&self) -> [u32; TABLES as usize] {
        let mut widths = self.size().widths();
        std::array::from_fn(|_| widths.next().unwrap_or(0))
    }

    /// Returns which optional columns the model has.
    pub fn optional(&self) -> OptionalColumns {
        OptionalColumns {
            filter_3d: !self.filter_3d.is_empty(),
            absolute_norm_sums: !self.absolute_norm_sums.is_empty(),
        }
    }

    pub(crate) fn enable_absolute_norms(&mut self, session: &Session) -> Result {
        self.absolute_norm_sums.grow_zeroed(&session.stream, self.len)
    }

    /// Enables the 3D filter, initially zero.
    pub(crate) fn enable_filter(&mut self, session: &Session) -> Result
    where
        P: CudaPrimitive,
    {
        require::<P>(Capability::Filter3d, true)?;
        self.filter_3d.grow_zeroed(&session.stream, self.len)
    }

    pub(crate) fn optional_columns(&mut self) -> impl Iterator<Item = &mut Region<f32>> {
        [&mut self.absolute_norm_sums, &mut self.filter_3d]
            .into_iter()
            .filter(|column| !column.is_empty())
    }

    /// Returns the bytes of the parameters with the 3D filter, and of the moments with the statistics.
    pub fn bytes(&self) -> [Bytes; 2] {
        let table = |table: &Region<u32>| Bytes::of::<u32>(table.len());
        // Each table's values precede its first and second moments.
        let parameters = self.tables.iter().step_by(TABLE_PARTS).map(table);
        let all: Bytes = self.tables.iter().map(table).sum();
        let sums = self.gradient_norm_sums.len() + self.absolute_norm_sums.len();
        let statistics = Bytes::of::<f32>(sums) + table(&self.views_seen);
        let [faces, shown] = self.faces.as_ref().map_or([Bytes(0); 2], FaceTables::bytes);
        let parameters: Bytes = parameters.sum::<Bytes>() + faces;
        let behind = table(&self.sh_steps) + Bytes::of::<f32>(self.sh_drifts.len());
        let behind = behind + self.lines.bytes();
        let moments = Bytes(all.0 + faces.0 - parameters.0) + behind + shown;
        [parameters + Bytes::of::<f32>(self.filter_3d.len()), moments + statistics]
    }

    /// Returns the standard deviations of the 3D filter, `[n]`, or null.
    pub(crate) fn filter(&self) -> In<'_, f32> {
        if self.filter_3d.is_empty() { In::NULL } else { self.filter_3d.read() }
    }

    /// Returns pointers to the tables in the kernels' order.
    pub(crate) fn tables(&mut self) -> [Out<'_, u32>; TABLES as usize] {
        pointers(&mut self.tables)
    }

    /// Adds `new_gaussians` rows of zeros. If memory is refused the model is unchanged.
    pub(crate) fn grow(&mut self, session: &Session, new_gaussians: usize) -> Result {
        let (before, rows) = (self.len, self.len.saturating_add(new_gaussians));
        count_u32(rows)?;
        self.write_lines_back(session)?;
        match self.grow_regions(session, rows) {
            Ok(()) => self.len = rows,
            Err(refusal) => {
                // The memory that the first regions got would lie idle.
                self.shrink(before);
                self.trim()?;
                return Err(refusal);
            }
        }
        Ok(())
    }

    pub(crate) fn trim(&mut self) -> Result {
        for (table, _) in self.regions() {
            table.trim()?;
        }
        self.sh_steps.trim()?;
        self.lines.trim()?;
        self.gradient_norm_sums.trim()?;
        self.views_seen.trim()?;
        // An empty column frees the memory of removed rows.
        self.absolute_norm_sums.trim()?;
        self.filter_3d.trim()
    }

    fn grow_regions(&mut self, session: &Session, rows: usize) -> Result {
        for (table, width) in self.regions() {
            table.grow_zeroed(&session.stream, table_len(rows, width))?;
        }
        if P::SCHEMA.is_lazy() {
            self.sh_steps.grow_zeroed(&session.stream, rows.div_ceil(LANES))?;
            self.sh_drifts.grow_zeroed(&session.stream, 2 * DRIFT_STEPS as usize)?;
        }
        self.gradient_norm_sums.grow_zeroed(&session.stream, rows)?;
        self.views_seen.grow_zeroed(&session.stream, rows)?;
        self.optional_columns().try_for_each(|column| column.grow_zeroed(&session.stream, rows))?;
        self.lines.grow(&self.size().with(rows as u64))
    }

    /// Drops the rows from `rows` on. The memory stays mapped.
    pub(crate) fn shrink(&mut self, rows: usize) {
        for (table, width) in self.regions() {
            table.shrink(table_len(rows, width));
        }
        self.sh_steps.shrink(rows.div_ceil(LANES));
        let size = self.size().with(rows as u64);
        self.lines.shrink(&size);
        self.gradient_norm_sums.shrink(rows);
        self.views_seen.shrink(rows);
        self.absolute_norm_sums.shrink(rows);
        self.filter_3d.shrink(rows);
        self.len = rows;
    }

    /// Returns the bytes of the host that the tables have taken.
    pub(crate) fn mapped_on_host(&self) -> Bytes {
        self.tables.iter().map(|table| table.mapped_in(MemoryPlace::Host)).sum()
    }

    /// Returns the mapped bytes of each region on the device, in the order of growth; 0 after the last.
    pub(crate) fn mapped(&self) -> [Bytes; REGIONS] {
        let mut mapped = self.tables.iter().map(Region::mapped).chain([
            self.sh_steps.mapped(),
            self.sh_drifts.mapped(),
            self.gradient_norm_sums.mapped(),
            self.views_seen.mapped(),
            self.absolute_norm_sums.mapped(),
            self.filter_3d.mapped(),
            self.lines.mapped(),
            self.faces.as_ref().map_or(Bytes(0), FaceTables::mapped),
        ]);
        std::array::from_fn(|_| mapped.next().unwrap_or(Bytes(0)))
    }

    /// Clears the density statistics and the 3D filter, which must be computed again after a densification step.
    pub(crate) fn forget_statistics(&mut self, session: &Session) -> Result {
        self.gradient_norm_sums.zero(&session.stream)?;
        self.views_seen.zero(&session.stream)?;
        self.optional_columns().try_for_each(|column| column.zero(&session.stream))
    }

    /// Clears the moments of all rows. Lazy tables must have caught up.
    pub(crate) fn forget_moments(&mut self, session: &Session) -> Result {
        let moments = self.tables.iter_mut().enumerate().filter(|(i, _)| i % TABLE_PARTS > 0);
        for (_, table) in moments {
            table.zero(&session.stream)?;
        }
        Ok(())
    }

    pub(crate) fn regions(&mut self) -> impl Iterator<Item = (&mut Region<u32>, usize)> {
        let widths = self.widths();
        self.tables.iter_mut().zip(widths)
    }

    /// Returns a table, or null if there is none.
    pub(crate) fn table(&self, number: usize) -> In<'_, u32> {
        self.tables.get(number).map_or(In::NULL, Buffer::read)
    }

    /// Returns the parameters of the first table: the geometry of Gaussians, [lane blocks, 11, 32].
    pub(crate) fn geometry(&self) -> In<'_, f32> {
        self.table(GEOMETRY).floats()
    }

    /// Returns the values per row of the second table, the SH coefficients of Gaussians; 0 without one.
    pub(crate) fn sh_width(&self) -> u32 {
        P::SCHEMA.values(self.sh_degree).nth(1).unwrap_or(0)
    }

    /// Returns the cache of tables in the host's memory, before the coming step.
    pub(crate) fn color_cache(&self) -> abi::ColorCache<'_> {
        self.lines.args(&self.size(), self.momentum.steps() + 1)
    }

    /// Returns the cache for a view that is drawn, whether a step follows or not.
    pub(crate) fn color_cache_of(&self, drawing: &DrawSettings) -> abi::ColorCache<'_> {
        let step = if drawing.trains { self.momentum.steps() + 1 } else { 0 };
        self.lines.args(&self.size(), step)
    }

    /// Returns the arguments of copies between the host's memory and the cache.
    pub(crate) fn cache_args(&mut self) -> CacheArgs<'_> {
        let [.., sh_words, moment_words, _] = self.kernel_widths();
        let cache = self.lines.args(&self.size(), self.momentum.steps() + 1);
        let [.., sh, sh_first, sh_second] = pointers(&mut self.tables);
        CacheArgs { cache, sh, sh_first, sh_second, sh_words, moment_words }
    }

    /// Writes all cache lines back to the host's memory and empties the cache.
    pub(crate) fn write_lines_back(&mut self, session: &Session) -> Result {
        if !self.lines.is_in_use() {
            return Ok(());
        }
        self.lines.wait(session)?;
        let args = self.cache_args();
        let threads = args.cache.lines as usize * LANES;
        session.kernels.write_lines_back.over(&session.stream, threads, &args)?;
        self.lines.mark_empty();
        Ok(())
    }
}

/// Returns the table whose rows begin with the centres, and its values per row; null without centres.
pub(crate) fn centres<P: Primitive>(tables: &[Region<u32>], sh_degree: u32) -> (In<'_, f32>, u32) {
    let Some(column) = P::SCHEMA.places() else { return (In::NULL, 0) };
    let table = usize::from(P::SCHEMA.columns[column].table);
    let width = P::SCHEMA.values(sh_degree).nth(table).unwrap_or(0);
    (tables.get(TABLE_PARTS * table).map_or(In::NULL, Buffer::read).floats(), width)
}

pub(crate) fn zeros<P: CudaPrimitive>(
    session: &mut Session,
    sh_degree: u32,
    count: usize,
) -> Result<Model<P>> {
    require_storage::<P>(session.storage)?;
    let kernels = session.kernels_of::<P>()?;
    let mut model = Model::empty(&session.heap, kernels, sh_degree, session.storage)?;
    model.grow(session, count)?;
    Ok(model)
}

/// The triangles of a model and their statistics.
pub(crate) struct FaceTables {
    /// Triangles on the host; empty in a dry run.
    host: Vec<[u32; 3]>,
    /// [faces, 3]
    pub(crate) faces: Region<u32>,
    /// Largest weight of each face in any sample; `[faces]`.
    pub(crate) weights: Region<f32>,
    /// Largest distance of a corner from the centre, px; `[faces]`.
    pub(crate) reaches_px: Region<f32>,
    /// Norms of the gradients of the corners' positions, summed over corners and views; `[faces]`.
    pub(crate) gradient_norms: Region<f32>,
}

impl FaceTables {
    /// Uploads triangles between `vertices` vertices.
    pub(crate) fn new(session: &Session, host: &[[u32; 3]], vertices: usize) -> Result<Self> {
        let stray = host.as_flattened().iter().find(|&&corner| corner as usize >= vertices);
        if let Some(&row) = stray {
            return Err(DeviceError::NoSuchRow { row: row as usize, len: vertices });
        }
        let mut tables = Self::unknown(session, host.len())?;
        tables.faces.upload(&session.stream, 0, host.as_flattened())?;
        tables.host = host.to_vec();
        Ok(tables)
    }

    /// Creates tables for `count` unknown triangles.
    pub(crate) fn unknown(session: &Session, count: usize) -> Result<Self> {
        count_u32(count)?;
        let heap = &session.heap;
        let mut faces = heap.region(&FACES)?;
        faces.grow(count * 3)?;
        let mut weights = heap.region(&FACE_WEIGHTS)?;
        let mut reaches_px = heap.region(&FACE_REACHES)?;
        let mut gradient_norms = heap.region(&FACE_GRADIENT_NORMS)?;
        for column in [&mut weights, &mut reaches_px, &mut gradient_norms] {
            column.grow_zeroed(&session.stream, count)?;
        }
        Ok(Self { host: Vec::new(), faces, weights, reaches_px, gradient_norms })
    }

    pub(crate) fn host(&self) -> &[[u32; 3]] {
        &self.host
    }

    pub(crate) fn len(&self) -> usize {
        self.weights.len()
    }

    /// Returns the bytes of the triangles and of their statistics.
    pub(crate) fn bytes(&self) -> [Bytes; 2] {
        let shown = self.statistics_columns().map(Region::len).iter().sum();
        [Bytes::of::<u32>(self.faces.len()), Bytes::of::<f32>(shown)]
    }

    pub(crate) fn mapped(&self) -> Bytes {
        let shown = self.statistics_columns().map(Region::mapped);
        shown.into_iter().fold(self.faces.mapped(), |sum, bytes| sum + bytes)
    }

    /// Returns the columns in the order of [`FaceStatistics::columns`].
    fn statistics_columns(&self) -> [&Region<f32>; 3] {
        let Self { weights, reaches_px, gradient_norms, .. } = self;
        [weights, reaches_px, gradient_norms]
    }

    fn statistics_columns_mut(&mut self) -> [&mut Region<f32>; 3] {
        let Self { weights, reaches_px, gradient_norms, .. } = self;
        [weights, reaches_px, gradient_norms]
    }

    pub(crate) fn statistics(&self, session: &Session) -> Result<FaceStatistics> {
        let read = |column: &Region<f32>| column.download_vec(&session.stream, 0..self.len());
        let [weights, reaches_px, gradient_norms] = self.statistics_columns().map(read);
        Ok(FaceStatistics {
            weights: weights?,
            reaches_px: reaches_px?,
            gradient_norms: gradient_norms?,
        })
    }

    pub(crate) fn forget(&mut self, session: &Session) -> Result {
        let mut columns = self.statistics_columns_mut().into_iter();
        columns.try_for_each(|column| column.zero(&session.stream))
    }

    pub(crate) fn set_statistics(
        &mut self,
        session: &Session,
        statistics: &FaceStatistics,
    ) -> Result {
        let columns = statistics.columns();
        if let Some(other) = columns.iter().find(|column| column.len() != self.len()) {
            return Err(DeviceError::OtherFaces { found: other.len(), faces: self.len() });
        }
        let mut pairs = self.statistics_columns_mut().into_iter().zip(columns);
        pairs.try_for_each(|(column, host)| column.upload(&session.stream, 0, host))
    }
}

/// Applies the skipped steps to all colours, so that the tables hold what dense Adam would.
pub(crate) fn catch_up<P: Primitive>(session: &Session, model: &mut Model<P>) -> Result {
    let Some(table) = P::SCHEMA.tables.iter().position(|table| table.is_lazy) else {
        model.momentum.mark_caught_up();
        return Ok(());
    };
    model.write_lines_back(session)?;
    let lane_blocks = model.len().div_ceil(LANES);
    let (sh_width, storage) =
        (P::SCHEMA.values(model.sh_degree()).nth(table).unwrap_or(0), model.storage());
    let steps = u64::from(model.momentum.steps());
    let mut tables = pointers(&mut model.tables).into_iter().skip(TABLE_PARTS * table);
    let mut next = || tables.next().unwrap_or(Out::NULL);
    let [sh, sh_first, sh_second] = [next(), next(), next()];
    let args = CatchUpArgs {
        lazy: model.momentum.now(),
        lane_blocks: count_u32(lane_blocks)?,
        sh_width,
        sh,
        sh_first,
        sh_second,
        sh_steps: model.sh_steps.write(),
        sh_drifts: model.sh_drifts.read(),
        key: RandomStream::new(session.seed, steps, RandomUse::RoundCatchUp).key(),
    };
    let kernel = match storage {
        Storage::Full => &session.kernels.catch_up_all,
        Storage::HalfColors => &session.kernels.catch_up_all_half,
        Storage::Compact | Storage::Offloaded => &session.kernels.catch_up_all_compact,
    };
    kernel.over(&session.stream, lane_blocks * LANES, &args)?;
    model.momentum.mark_caught_up();
    Ok(())
}
