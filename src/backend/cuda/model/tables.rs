//! The model on the device: columns in lane blocks, with their moments, and density statistics.

use super::lanes::{LANES, table_len};
use super::lazy_adam::LazySteps;
use super::pack::RowForm;
use crate::abi::{self, In, Out, TABLES};
use crate::backend::DeviceError;
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::{Buffer, Heap, Region};
use crate::backend::cuda::session::Session;
use crate::backend::rows_version::RowsVersion;
use crate::memory::Bytes;
use crate::memory::plan::{OptionalColumns, REGIONS, Storage};
use crate::model::sh_rest_count;

/// Columns of the geometry table.
pub(crate) const GEOMETRY_WIDTH: usize = abi::GEOMETRY_WIDTH as usize;

/// Indices of the tables of a model: parameters, first and second moments of the geometry, then of
/// the SH.
pub(crate) const GEOMETRY: usize = 0;
pub(crate) const GEOMETRY_FIRST: usize = 1;
pub(crate) const GEOMETRY_SECOND: usize = 2;
pub(crate) const SH: usize = 3;
pub(crate) const SH_FIRST: usize = 4;
pub(crate) const SH_SECOND: usize = 5;

const LABELS: [&str; TABLES as usize] = [
    "geometry",
    "geometry, first moments",
    "geometry, second moments",
    "sh",
    "sh, first moments",
    "sh, second moments",
];

/// How the words of each table store its values (`kernels/state.cuh`). Compact state is rounded at
/// random, so that on average nothing is lost.
pub(crate) const fn forms(storage: Storage) -> [RowForm; TABLES as usize] {
    use RowForm::{Bfloats, Firsts, Floats, Halves, Seconds};
    match storage {
        Storage::Full => [Floats; TABLES as usize],
        Storage::Compact => [Floats, Bfloats, Floats, Halves, Firsts, Seconds],
    }
}

/// Words that a Gaussian takes in each table.
pub(crate) fn widths(storage: Storage, sh_degree: u32) -> [usize; TABLES as usize] {
    let (forms, values) = (forms(storage), values(sh_degree));
    std::array::from_fn(|table| forms[table].words(values[table]))
}

/// Values of a Gaussian in each table.
pub(crate) fn values(sh_degree: u32) -> [usize; TABLES as usize] {
    let sh = 3 + 3 * sh_rest_count(sh_degree);
    [GEOMETRY_WIDTH, GEOMETRY_WIDTH, GEOMETRY_WIDTH, sh, sh, sh]
}

/// Gaussians in training.
pub struct Model {
    len: usize,
    sh_degree: u32,
    storage: Storage,
    /// Each [lane blocks, width, 32].
    pub(crate) tables: [Region<u32>; TABLES as usize],
    /// Steps that each lane block's SH has taken, [lane blocks]; the others' are in `momentum`.
    pub(crate) sh_steps: Region<u32>,
    pub(crate) momentum: LazySteps,
    /// Sums of the norms of the screen-space gradients, `[n]`.
    pub(crate) gradient_norm_sums: Region<f32>,
    /// Views that saw the Gaussian, `[n]`.
    pub(crate) views_seen: Region<u32>,
    /// Sums of the absolute screen-space gradients, `[n]`; empty until they are enabled.
    pub(crate) absolute_norm_sums: Region<f32>,
    /// Standard deviations of the 3D filter, world units, `[n]`; empty without the filter.
    pub(crate) filter_3d: Region<f32>,
    rows_version: RowsVersion,
}

impl Model {
    /// The tables hold it so from now on.
    pub(crate) fn set_storage(&mut self, storage: Storage) {
        self.storage = storage;
    }

    /// The index of an existing row.
    pub(crate) fn known_row(&self, row: usize) -> Result<u32, DeviceError> {
        if row < self.len {
            count_u32(row)
        } else {
            Err(DeviceError::NoSuchRow { row, len: self.len })
        }
    }

    fn empty(heap: &Heap, sh_degree: u32, storage: Storage) -> Result<Self, DeviceError> {
        let [geometry, geometry_first, geometry_second, sh, sh_first, sh_second] = LABELS;
        let region = |label| heap.region(label);
        Ok(Self {
            len: 0,
            sh_degree,
            storage,
            tables: [
                region(geometry)?,
                region(geometry_first)?,
                region(geometry_second)?,
                region(sh)?,
                region(sh_first)?,
                region(sh_second)?,
            ],
            sh_steps: heap.region("sh, steps taken")?,
            momentum: LazySteps::default(),
            gradient_norm_sums: heap.region("density statistics, gradients")?,
            views_seen: heap.region("density statistics, views")?,
            absolute_norm_sums: heap.region("density statistics, absolute gradients")?,
            filter_3d: heap.region("3d filter")?,
            rows_version: RowsVersion::new(),
        })
    }

    /// The version of its rows: it changes when rows are added, removed or moved.
    pub(crate) fn rows_version(&self) -> &RowsVersion {
        &self.rows_version
    }

    /// Starts a new version of the rows. Called before they change; growth that is undone does not
    /// count as a change.
    pub(crate) fn invalidate_rows(&mut self) {
        self.rows_version = RowsVersion::new();
    }

    /// Number of Gaussians.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No Gaussians at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Highest degree of the spherical harmonics.
    pub fn sh_degree(&self) -> u32 {
        self.sh_degree
    }

    /// How the state is kept.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// SH values of a Gaussian.
    pub(crate) fn sh_width(&self) -> u32 {
        3 * (self.sh_degree + 1) * (self.sh_degree + 1)
    }

    /// Words of a Gaussian in each table.
    pub(crate) fn widths(&self) -> [usize; TABLES as usize] {
        widths(self.storage, self.sh_degree)
    }

    /// The same for kernels.
    pub(crate) fn widths_u32(&self) -> Result<[u32; TABLES as usize], DeviceError> {
        let mut widths = [0; TABLES as usize];
        for (width, wide) in widths.iter_mut().zip(self.widths()) {
            *width = count_u32(wide)?;
        }
        Ok(widths)
    }

    /// The optional columns that the model has.
    pub fn optional(&self) -> OptionalColumns {
        OptionalColumns {
            filter_3d: !self.filter_3d.is_empty(),
            absolute_norm_sums: !self.absolute_norm_sums.is_empty(),
        }
    }

    /// Enables the sums of absolute gradients.
    pub(crate) fn enable_absolute_norms(&mut self, session: &Session) -> Result<(), DeviceError> {
        self.absolute_norm_sums.grow_zeroed(&session.stream, self.len)
    }

    /// Enables the 3D filter, which is zero at first.
    pub(crate) fn enable_filter(&mut self, session: &Session) -> Result<(), DeviceError> {
        self.filter_3d.grow_zeroed(&session.stream, self.len)
    }

    /// The optional columns that the model has.
    pub(crate) fn optional_columns(&mut self) -> impl Iterator<Item = &mut Region<f32>> {
        [&mut self.absolute_norm_sums, &mut self.filter_3d]
            .into_iter()
            .filter(|column| !column.is_empty())
    }

    /// Bytes of the parameters with the 3D filter, and of the moments with the statistics.
    pub fn bytes(&self) -> [Bytes; 2] {
        let table = |table: &Region<u32>| Bytes::of::<u32>(table.len());
        let parameters = [GEOMETRY, SH].map(|number| table(&self.tables[number]));
        let all: Bytes = self.tables.iter().map(table).sum();
        let sums = self.gradient_norm_sums.len() + self.absolute_norm_sums.len();
        let statistics = Bytes::of::<f32>(sums) + table(&self.views_seen);
        let parameters: Bytes = parameters.into_iter().sum();
        let moments = Bytes(all.0 - parameters.0) + table(&self.sh_steps);
        [parameters + Bytes::of::<f32>(self.filter_3d.len()), moments + statistics]
    }

    /// The geometry, [lane blocks, 11, 32], which is the same in either storage.
    pub(crate) fn geometry(&self) -> In<'_, f32> {
        self.tables[GEOMETRY].read().floats()
    }

    /// Standard deviations of the 3D filter, `[n]`, or null.
    pub(crate) fn filter(&self) -> In<'_, f32> {
        if self.filter_3d.is_empty() { In::NULL } else { self.filter_3d.read() }
    }

    /// The six tables, in the order of the kernels that treat them alike.
    pub(crate) fn tables(&mut self) -> [Out<'_, u32>; TABLES as usize] {
        self.tables.each_mut().map(Buffer::write)
    }

    /// Adds `more` Gaussians, all zero; if memory is refused the model is unchanged.
    pub(crate) fn grow(&mut self, session: &Session, births: usize) -> Result<(), DeviceError> {
        let (before, rows) = (self.len, self.len.saturating_add(births));
        count_u32(rows)?;
        match self.grow_regions(session, rows) {
            Ok(()) => self.len = rows,
            Err(refusal) => {
                // What the first regions got before the others were refused would lie idle.
                self.shrink(before);
                self.trim()?;
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Gives back the whole blocks of memory after the last Gaussian.
    pub(crate) fn trim(&mut self) -> Result<(), DeviceError> {
        for (table, _) in self.regions() {
            table.trim()?;
        }
        self.sh_steps.trim()?;
        self.gradient_norm_sums.trim()?;
        self.views_seen.trim()?;
        // One that is empty gives back what it had for Gaussians that are gone.
        self.absolute_norm_sums.trim()?;
        self.filter_3d.trim()
    }

    fn grow_regions(&mut self, session: &Session, rows: usize) -> Result<(), DeviceError> {
        for (table, width) in self.regions() {
            table.grow_zeroed(&session.stream, table_len(rows, width))?;
        }
        self.sh_steps.grow_zeroed(&session.stream, rows.div_ceil(LANES))?;
        self.gradient_norm_sums.grow_zeroed(&session.stream, rows)?;
        self.views_seen.grow_zeroed(&session.stream, rows)?;
        self.optional_columns().try_for_each(|column| column.grow_zeroed(&session.stream, rows))
    }

    /// Drops the rows after so many; the memory stays mapped.
    pub(crate) fn shrink(&mut self, rows: usize) {
        for (table, width) in self.regions() {
            table.shrink(table_len(rows, width));
        }
        self.sh_steps.shrink(rows.div_ceil(LANES));
        self.gradient_norm_sums.shrink(rows);
        self.views_seen.shrink(rows);
        self.absolute_norm_sums.shrink(rows);
        self.filter_3d.shrink(rows);
        self.len = rows;
    }

    /// Mapped bytes of each region, in the order of growth.
    pub(crate) fn mapped(&self) -> [Bytes; REGIONS] {
        let [geometry, geometry_first, geometry_second, sh, sh_first, sh_second] =
            self.tables.each_ref().map(Region::mapped);
        [
            geometry,
            geometry_first,
            geometry_second,
            sh,
            sh_first,
            sh_second,
            self.sh_steps.mapped(),
            self.gradient_norm_sums.mapped(),
            self.views_seen.mapped(),
            self.absolute_norm_sums.mapped(),
            self.filter_3d.mapped(),
        ]
    }

    /// Clears the density statistics. After a round of density control the 3D filter is unknown: it is
    /// zero until it is computed again.
    pub(crate) fn forget_statistics(&mut self, session: &Session) -> Result<(), DeviceError> {
        self.gradient_norm_sums.zero(&session.stream)?;
        self.views_seen.zero(&session.stream)?;
        self.optional_columns().try_for_each(|column| column.zero(&session.stream))
    }

    /// The six tables with their widths.
    pub(crate) fn regions(&mut self) -> impl Iterator<Item = (&mut Region<u32>, usize)> {
        let widths = self.widths();
        self.tables.iter_mut().zip(widths)
    }
}

/// A model of so many Gaussians, all zero.
pub(crate) fn zeros(session: &Session, sh_degree: u32, count: usize) -> Result<Model, DeviceError> {
    let mut model = Model::empty(&session.heap, sh_degree, session.storage)?;
    model.grow(session, count)?;
    Ok(model)
}
