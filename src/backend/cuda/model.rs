//! The model on the device: columns in lane blocks, with their moments, and density statistics.

use std::ops::Range;

use super::heap::{Buffer, Heap, Pinned, Region};
use super::lanes::{self, LANES, Part, table_len};
use super::momentum::Momentum;
use super::project::count_u32;
use super::session::Session;
use crate::abi::{self, Out, SampleArgs, TABLES};
use crate::backend::{DeviceError, Snapshot};
use crate::memory::Bytes;
use crate::model::{Gaussians, Primitive, sh_rest_count};

/// The first of the host's columns make up the geometry table, the others the SH table.
const GEOMETRY_GROUPS: usize = 4;

/// Columns of the geometry table.
pub(super) const GEOMETRY_WIDTH: usize = abi::GEOMETRY_WIDTH as usize;

/// Page-locked memory that rows pass through between host and device, in floats: 2 MiB, beyond
/// which the bus runs no faster. There are two, so that one is packed while the other is copied.
const STAGING_FLOATS: usize = 1 << 19;

/// Gaussians in training.
pub struct Model {
    len: usize,
    sh_degree: u32,
    /// Parameters and moments, each [lane blocks, 11, 32].
    pub(super) geometry: Region<f32>,
    pub(super) geometry_first: Region<f32>,
    pub(super) geometry_second: Region<f32>,
    /// Parameters and moments, each [lane blocks, 3 (degree + 1)², 32].
    pub(super) sh: Region<f32>,
    pub(super) sh_first: Region<f32>,
    pub(super) sh_second: Region<f32>,
    /// Steps that each lane block's SH has taken, [lane blocks]; the others' are in `momentum`.
    pub(super) sh_steps: Region<u32>,
    pub(super) momentum: Momentum,
    /// Sums of the norms of the screen-space gradients, `[n]`.
    pub(super) gradient_norm_sums: Region<f32>,
    /// Views that saw the Gaussian, `[n]`.
    pub(super) views_seen: Region<u32>,
}

impl Model {
    fn known_row(&self, row: usize) -> Result<u32, DeviceError> {
        if row < self.len {
            count_u32(row)
        } else {
            Err(DeviceError::NoSuchRow { row, len: self.len })
        }
    }

    fn empty(heap: &Heap, sh_degree: u32) -> Result<Self, DeviceError> {
        Ok(Self {
            len: 0,
            sh_degree,
            geometry: heap.region("geometry")?,
            geometry_first: heap.region("geometry, first moments")?,
            geometry_second: heap.region("geometry, second moments")?,
            sh: heap.region("sh")?,
            sh_first: heap.region("sh, first moments")?,
            sh_second: heap.region("sh, second moments")?,
            sh_steps: heap.region("sh, steps taken")?,
            momentum: Momentum::default(),
            gradient_norm_sums: heap.region("density statistics, gradients")?,
            views_seen: heap.region("density statistics, views")?,
        })
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

    /// Columns of the SH table.
    pub(super) fn sh_width(&self) -> u32 {
        3 * (self.sh_degree + 1) * (self.sh_degree + 1)
    }

    /// Bytes of the parameters, and of the moments with the statistics.
    pub fn bytes(&self) -> [Bytes; 2] {
        let table = |table: &Region<f32>| Bytes::of::<f32>(table.len());
        let moments =
            [&self.geometry_first, &self.geometry_second, &self.sh_first, &self.sh_second];
        let statistics = table(&self.gradient_norm_sums) + Bytes::of::<u32>(self.views_seen.len());
        let steps = Bytes::of::<u32>(self.sh_steps.len());
        [
            table(&self.geometry) + table(&self.sh),
            moments.into_iter().map(table).sum::<Bytes>() + steps + statistics,
        ]
    }

    /// The six tables in the order of the kernels that treat them alike.
    pub(super) fn tables(&mut self) -> [Out<'_, f32>; TABLES as usize] {
        [
            self.geometry.write(),
            self.geometry_first.write(),
            self.geometry_second.write(),
            self.sh.write(),
            self.sh_first.write(),
            self.sh_second.write(),
        ]
    }

    /// Makes room for so many Gaussians more, all zero; where it is refused the model stays as it
    /// was.
    pub(super) fn grow(&mut self, session: &Session, births: usize) -> Result<(), DeviceError> {
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

    fn trim(&mut self) -> Result<(), DeviceError> {
        for (table, _) in self.regions() {
            table.trim()?;
        }
        self.sh_steps.trim()?;
        self.gradient_norm_sums.trim()?;
        self.views_seen.trim()
    }

    fn grow_regions(&mut self, session: &Session, rows: usize) -> Result<(), DeviceError> {
        for (table, width) in self.regions() {
            table.grow_zeroed(&session.stream, table_len(rows, width))?;
        }
        self.sh_steps.grow_zeroed(&session.stream, rows.div_ceil(LANES))?;
        self.gradient_norm_sums.grow_zeroed(&session.stream, rows)?;
        self.views_seen.grow_zeroed(&session.stream, rows)
    }

    /// Lets go of what lies behind so many rows; the memory stays mapped.
    pub(super) fn shrink(&mut self, rows: usize) {
        for (table, width) in self.regions() {
            table.shrink(table_len(rows, width));
        }
        self.sh_steps.shrink(rows.div_ceil(LANES));
        self.gradient_norm_sums.shrink(rows);
        self.views_seen.shrink(rows);
        self.len = rows;
    }

    /// Starts the density statistics afresh.
    pub(super) fn forget_statistics(&mut self, session: &Session) -> Result<(), DeviceError> {
        self.gradient_norm_sums.zero(&session.stream)?;
        self.views_seen.zero(&session.stream)
    }

    /// The six tables with their widths.
    pub(super) fn regions(&mut self) -> [(&mut Region<f32>, usize); TABLES as usize] {
        let sh_width = sh_width(self.sh_degree);
        [
            (&mut self.geometry, GEOMETRY_WIDTH),
            (&mut self.geometry_first, GEOMETRY_WIDTH),
            (&mut self.geometry_second, GEOMETRY_WIDTH),
            (&mut self.sh, sh_width),
            (&mut self.sh_first, sh_width),
            (&mut self.sh_second, sh_width),
        ]
    }
}

/// A model of so many Gaussians as the host's, all zero.
pub(super) fn zeros(session: &Session, host: &Gaussians) -> Result<Model, DeviceError> {
    let mut model = Model::empty(&session.heap, host.sh_degree)?;
    model.grow(session, host.len())?;
    Ok(model)
}

/// Puts Gaussians into a model of as many, all zero.
pub(super) fn upload(
    session: &Session,
    host: &Gaussians,
    mut model: Model,
) -> Result<Model, DeviceError> {
    let tables = [&mut model.geometry, &mut model.sh];
    Staging::new(session)?.send(session, host, tables)?;
    Ok(model)
}

/// The parameters on their own.
pub(super) fn download(session: &Session, model: &Model) -> Result<Gaussians, DeviceError> {
    Staging::new(session)?.fetch(session, model, [&model.geometry, &model.sh])
}

/// Parameters, moments and statistics.
pub(super) fn snapshot(
    session: &Session,
    model: &Model,
) -> Result<Snapshot<Gaussians>, DeviceError> {
    let mut staging = Staging::new(session)?;
    let mut of = |tables| staging.fetch(session, model, tables);
    let mut snapshot = Snapshot {
        parameters: of([&model.geometry, &model.sh])?,
        first_moments: of([&model.geometry_first, &model.sh_first])?,
        second_moments: of([&model.geometry_second, &model.sh_second])?,
        gradient_norm_sums: vec![0.0; model.len],
        views_seen: vec![0; model.len],
    };
    model.gradient_norm_sums.download(&session.stream, 0, &mut snapshot.gradient_norm_sums)?;
    model.views_seen.download(&session.stream, 0, &mut snapshot.views_seen)?;
    Ok(snapshot)
}

/// The model that the snapshot was taken of, from one of as many Gaussians, all zero. Each part of
/// the snapshot is let go when it has been taken over.
pub(super) fn restore(
    session: &Session,
    snapshot: Snapshot<Gaussians>,
    model: Model,
) -> Result<Model, DeviceError> {
    let Snapshot { parameters, first_moments, second_moments, .. } = snapshot;
    let mut model = upload(session, &parameters, model)?;
    drop(parameters);
    let mut staging = Staging::new(session)?;
    let tables = [&mut model.geometry_first, &mut model.sh_first];
    staging.send(session, &first_moments, tables)?;
    drop(first_moments);
    let tables = [&mut model.geometry_second, &mut model.sh_second];
    staging.send(session, &second_moments, tables)?;
    drop(second_moments);
    model.gradient_norm_sums.upload(&session.stream, 0, &snapshot.gradient_norm_sums)?;
    model.views_seen.upload(&session.stream, 0, &snapshot.views_seen)?;
    Ok(model)
}

/// The parameters of these Gaussians, in their order.
pub(super) fn sample(
    session: &Session,
    model: &Model,
    rows: &[usize],
) -> Result<Gaussians, DeviceError> {
    let mut host = Gaussians::zeros(model.sh_degree, 0);
    let widths = widths(&host);
    let width: usize = widths.iter().sum();
    let at_once = STAGING_FLOATS / width;
    let most = at_once.min(rows.len());
    let mut numbers = session.heap.scratch::<u32>("sampled rows", most)?;
    let mut values = session.heap.scratch::<f32>("sample", most * width)?;
    let mut staged = vec![0.0; most * width];
    for rows in rows.chunks(at_once) {
        let known: Result<Vec<u32>, _> = rows.iter().map(|&row| model.known_row(row)).collect();
        numbers.upload(&session.stream, 0, &known?)?;
        let args = SampleArgs {
            geometry: model.geometry.read(),
            sh: model.sh.read(),
            rows: numbers.read(),
            sample: values.write(),
            count: count_u32(rows.len())?,
            sh_width: model.sh_width(),
        };
        let staged = &mut staged[..rows.len() * width];
        session.kernels.sample_rows.over(&session.stream, staged.len(), &args)?;
        values.download(&session.stream, 0, staged)?;
        for mut rest in staged.chunks_exact(width) {
            for (&width, column) in widths.iter().zip(host.groups_mut()) {
                let (values, behind) = rest.split_at(width);
                column.extend_from_slice(values);
                rest = behind;
            }
        }
    }
    Ok(host)
}

/// Page-locked memory that tables pass through.
struct Staging {
    halves: [Pinned<f32>; 2],
}

impl Staging {
    fn new(session: &Session) -> Result<Self, DeviceError> {
        let half = || session.heap.pinned("staging of the model", STAGING_FLOATS);
        Ok(Self { halves: [half()?, half()?] })
    }

    /// Fills a geometry and an SH table from the host's columns.
    fn send(
        &mut self,
        session: &Session,
        host: &Gaussians,
        tables: [&mut Region<f32>; 2],
    ) -> Result<(), DeviceError> {
        let groups = host.groups();
        let parts: Vec<Part<'_>> =
            groups.iter().map(|group| Part { width: group.width, values: group.values }).collect();
        let (geometry, sh) = parts.split_at(GEOMETRY_GROUPS);
        for (table, parts) in tables.into_iter().zip([geometry, sh]) {
            let width: usize = parts.iter().map(|part| part.width).sum();
            for (turn, rows) in chunks(host.len(), width).enumerate() {
                let half = &mut self.halves[turn % 2];
                let (first, len) = (rows.start * width, table_len(rows.len(), width));
                // Waits for the copy of the chunk before the last.
                lanes::pack(parts, rows, &mut half.as_mut_slice()?[..len]);
                table.upload_pinned(&session.stream, first, (half, 0..len))?;
            }
        }
        Ok(())
    }

    /// The host's columns from a geometry and an SH table.
    fn fetch(
        &mut self,
        session: &Session,
        model: &Model,
        tables: [&Region<f32>; 2],
    ) -> Result<Gaussians, DeviceError> {
        let mut host = Gaussians::zeros(model.sh_degree, model.len);
        let widths = widths(&host);
        let mut columns: Vec<(usize, &mut Vec<f32>)> =
            widths.into_iter().zip(host.groups_mut()).collect();
        let (geometry, sh) = columns.split_at_mut(GEOMETRY_GROUPS);
        for (table, columns) in tables.into_iter().zip([geometry, sh]) {
            let table_width: usize = columns.iter().map(|(width, _)| width).sum();
            let [now, next] = &mut self.halves;
            let ask = |rows: &Range<usize>, half: &mut Pinned<f32>| {
                let first = rows.start * table_width;
                let range = first..first + table_len(rows.len(), table_width);
                table.download_pinned(&session.stream, range, half)
            };
            let (mut now, mut next) = (now, next);
            let mut chunks = chunks(model.len, table_width).peekable();
            if let Some(rows) = chunks.peek() {
                ask(rows, now)?;
            }
            while let Some(rows) = chunks.next() {
                if let Some(rows) = chunks.peek() {
                    ask(rows, next)?;
                }
                let blocks = &now.as_slice()?[..table_len(rows.len(), table_width)];
                let mut first = 0;
                for (width, values) in columns.iter_mut() {
                    let values = &mut values[rows.start * *width..rows.end * *width];
                    lanes::unpack(blocks, (table_width, first), *width, values);
                    first += *width;
                }
                std::mem::swap(&mut now, &mut next);
            }
        }
        Ok(host)
    }
}

/// Rows in chunks of whole lane blocks that fit the staging memory.
fn chunks(rows: usize, width: usize) -> impl Iterator<Item = Range<usize>> {
    let at_once = STAGING_FLOATS / (width * LANES) * LANES;
    (0..rows).step_by(at_once).map(move |first| first..rows.min(first + at_once))
}

fn widths(host: &Gaussians) -> Vec<usize> {
    host.groups().iter().map(|group| group.width).collect()
}

fn sh_width(sh_degree: u32) -> usize {
    3 + 3 * sh_rest_count(sh_degree)
}
