//! Triangles between the rows of a model, on the device and on the host.

use crate::backend::cuda::memory::heap::{Buffer, Region};
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, FaceStatistics};
use crate::layout::{FACE_REACHES, FACE_WEIGHTS, FACES};
use crate::memory::Bytes;

/// The triangles of a model, and what views have shown of them.
pub(crate) struct FaceTables {
    /// The same as on the device.
    host: Vec<[u32; 3]>,
    /// [faces, 3]
    pub(crate) faces: Region<u32>,
    /// Largest weight of each in any sample; `[faces]`.
    pub(crate) weights: Region<f32>,
    /// Largest distance of a corner from the middle, px; `[faces]`.
    pub(crate) reaches_px: Region<f32>,
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
        let heap = &session.heap;
        let mut faces = heap.region(&FACES)?;
        faces.grow(host.len() * 3)?;
        faces.upload(&session.stream, 0, host.as_flattened())?;
        let (mut weights, mut reaches_px) =
            (heap.region(&FACE_WEIGHTS)?, heap.region(&FACE_REACHES)?);
        weights.grow_zeroed(&session.stream, host.len())?;
        reaches_px.grow_zeroed(&session.stream, host.len())?;
        Ok(Self { host: host.to_vec(), faces, weights, reaches_px })
    }

    /// The triangles.
    pub(crate) fn host(&self) -> &[[u32; 3]] {
        &self.host
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.host.len()
    }

    /// Bytes of the triangles, and of what views have shown of them.
    pub(crate) fn bytes(&self) -> [Bytes; 2] {
        let shown = self.weights.len() + self.reaches_px.len();
        [Bytes::of::<u32>(self.faces.len()), Bytes::of::<f32>(shown)]
    }

    /// Bytes that are mapped.
    pub(crate) fn mapped(&self) -> Bytes {
        self.faces.mapped() + self.weights.mapped() + self.reaches_px.mapped()
    }

    /// What views have shown of them. Waits for the device.
    pub(crate) fn statistics(&self, session: &Session) -> Result<FaceStatistics, DeviceError> {
        let read = |column: &Region<f32>| {
            let mut host = vec![0.0; self.len()];
            column.download(&session.stream, 0, &mut host)?;
            Ok::<_, DeviceError>(host)
        };
        Ok(FaceStatistics { weights: read(&self.weights)?, reaches_px: read(&self.reaches_px)? })
    }

    /// From now on nothing has been shown of them.
    pub(crate) fn forget(&mut self, session: &Session) -> Result<(), DeviceError> {
        self.weights.zero(&session.stream)?;
        self.reaches_px.zero(&session.stream)
    }

    /// Goes on with these.
    pub(crate) fn set_statistics(
        &mut self,
        session: &Session,
        statistics: &FaceStatistics,
    ) -> Result<(), DeviceError> {
        let FaceStatistics { weights, reaches_px } = statistics;
        for column in [weights, reaches_px] {
            if column.len() != self.len() {
                return Err(DeviceError::OtherFaces { found: column.len(), faces: self.len() });
            }
        }
        self.weights.upload(&session.stream, 0, weights)?;
        self.reaches_px.upload(&session.stream, 0, reaches_px)
    }
}
