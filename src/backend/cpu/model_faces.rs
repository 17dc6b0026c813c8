//! The triangles of a model on the processor.

use crate::backend::DeviceError;
use crate::math::Real;
use crate::memory::Bytes;

/// The triangles of a model, and what views have shown of them.
#[derive(Clone, Debug)]
pub(super) struct ModelFaces<R> {
    /// Three rows of each.
    pub(super) corners: Vec<[u32; 3]>,
    /// Largest weight of each in any sample.
    pub(super) weights: Vec<R>,
    /// Largest distance of a corner of each from the middle of all, px.
    pub(super) reaches_px: Vec<R>,
    /// Norms of the gradients of the places of each one's corners, summed over these and views.
    pub(super) gradient_norms: Vec<R>,
}

impl<R: Real> ModelFaces<R> {
    pub(super) const NONE: Self = Self {
        corners: Vec::new(),
        weights: Vec::new(),
        reaches_px: Vec::new(),
        gradient_norms: Vec::new(),
    };

    /// These triangles, of which views have shown nothing yet.
    pub(super) fn new(corners: &[[u32; 3]]) -> Self {
        let zeros = vec![R::ZERO; corners.len()];
        Self {
            corners: corners.to_vec(),
            weights: zeros.clone(),
            reaches_px: zeros.clone(),
            gradient_norms: zeros,
        }
    }

    /// From now on views have shown nothing of them.
    pub(super) fn forget(&mut self) {
        self.weights.fill(R::ZERO);
        self.reaches_px.fill(R::ZERO);
        self.gradient_norms.fill(R::ZERO);
    }

    /// Has the triangles follow their vertices into another order.
    pub(super) fn follow(&mut self, row_from_place: &[usize]) {
        if self.corners.is_empty() {
            return;
        }
        let mut place_from_row = vec![0; row_from_place.len()];
        for (place, &row) in (0..).zip(row_from_place) {
            place_from_row[row] = place;
        }
        for corner in self.corners.as_flattened_mut() {
            *corner = place_from_row[*corner as usize];
        }
    }

    /// Fails where there are triangles, of which rows cannot come and go by themselves.
    pub(super) fn require_none(&self, what: &'static str) -> Result<(), DeviceError> {
        match self.corners[..] {
            [] => Ok(()),
            [..] => Err(DeviceError::Unsupported { primitives: "triangles", what }),
        }
    }

    /// Bytes of the triangles, and of their statistics.
    pub(super) fn bytes(&self) -> [Bytes; 2] {
        let Self { weights, reaches_px, gradient_norms, .. } = self;
        let statistics = [weights, reaches_px, gradient_norms].map(Vec::capacity).iter().sum();
        [Bytes::of::<[u32; 3]>(self.corners.capacity()), Bytes::of::<R>(statistics)]
    }
}
