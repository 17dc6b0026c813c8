//! Triangles between the rows of a model, on the device and on the host.

use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::{Buffer, Region};
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, FaceStatistics};
use crate::layout::{FACE_GRADIENT_NORMS, FACE_REACHES, FACE_WEIGHTS, FACES};
use crate::memory::Bytes;

/// The triangles of a model, and what views have shown of them.
pub(crate) struct FaceTables {
    /// The same as on the device; in a dry run none.
    host: Vec<[u32; 3]>,
    /// [faces, 3]
    pub(crate) faces: Region<u32>,
    /// Largest weight of each in any sample; `[faces]`.
    pub(crate) weights: Region<f32>,
    /// Largest distance of a corner from the middle, px; `[faces]`.
    pub(crate) reaches_px: Region<f32>,
    /// Norms of the gradients of its corners' places, summed over these and views; `[faces]`.
    pub(crate) gradient_norms: Region<f32>,
}

impl FaceTables {
    /// Puts triangles between so many vertices on the device.
    pub(crate) fn new(
        session: &Session,
        host: &[[u32; 3]],
        vertices: usize,
    ) -> Result<Self, DeviceError> {
        let stray = host.as_flattened().iter().find(|&&corner| corner as usize >= vertices);
        if let Some(&row) = stray {
            return Err(DeviceError::NoSuchRow { row: row as usize, len: vertices });
        }
        let mut tables = Self::unknown(session, host.len())?;
        tables.faces.upload(&session.stream, 0, host.as_flattened())?;
        tables.host = host.to_vec();
        Ok(tables)
    }

    /// Room for this number of triangles.
    pub(crate) fn unknown(session: &Session, count: usize) -> Result<Self, DeviceError> {
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

    /// The triangles.
    pub(crate) fn host(&self) -> &[[u32; 3]] {
        &self.host
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.weights.len()
    }

    /// Bytes of the triangles, and of what views have shown of them.
    pub(crate) fn bytes(&self) -> [Bytes; 2] {
        let shown = self.statistics_columns().map(Region::len).iter().sum();
        [Bytes::of::<u32>(self.faces.len()), Bytes::of::<f32>(shown)]
    }

    /// Bytes that are mapped.
    pub(crate) fn mapped(&self) -> Bytes {
        let shown = self.statistics_columns().map(Region::mapped);
        shown.into_iter().fold(self.faces.mapped(), |sum, bytes| sum + bytes)
    }

    /// In the order of [`FaceStatistics::columns`].
    fn statistics_columns(&self) -> [&Region<f32>; 3] {
        let Self { weights, reaches_px, gradient_norms, .. } = self;
        [weights, reaches_px, gradient_norms]
    }

    fn statistics_columns_mut(&mut self) -> [&mut Region<f32>; 3] {
        let Self { weights, reaches_px, gradient_norms, .. } = self;
        [weights, reaches_px, gradient_norms]
    }

    /// What views have shown of them. Waits for the device.
    pub(crate) fn statistics(&self, session: &Session) -> Result<FaceStatistics, DeviceError> {
        let read = |column: &Region<f32>| {
            let mut host = vec![0.0; self.len()];
            column.download(&session.stream, 0, &mut host)?;
            Ok::<_, DeviceError>(host)
        };
        let [weights, reaches_px, gradient_norms] = self.statistics_columns().map(read);
        Ok(FaceStatistics {
            weights: weights?,
            reaches_px: reaches_px?,
            gradient_norms: gradient_norms?,
        })
    }

    /// From now on nothing has been shown of them.
    pub(crate) fn forget(&mut self, session: &Session) -> Result<(), DeviceError> {
        let mut columns = self.statistics_columns_mut().into_iter();
        columns.try_for_each(|column| column.zero(&session.stream))
    }

    /// Goes on with these.
    pub(crate) fn set_statistics(
        &mut self,
        session: &Session,
        statistics: &FaceStatistics,
    ) -> Result<(), DeviceError> {
        let columns = statistics.columns();
        if let Some(other) = columns.iter().find(|column| column.len() != self.len()) {
            return Err(DeviceError::OtherFaces { found: other.len(), faces: self.len() });
        }
        let mut pairs = self.statistics_columns_mut().into_iter().zip(columns);
        pairs.try_for_each(|(column, host)| column.upload(&session.stream, 0, host))
    }
}
