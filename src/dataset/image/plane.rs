//! A map beside a photograph, before it has the size that is trained.

use std::path::Path;

use super::error::{ImageError, name};
use super::{mask, resample};
use crate::dataset::lens::Undistortion;
use crate::dataset::source::ImageSource;

/// What a map is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapKind {
    /// In messages.
    pub(super) name: &'static str,
    /// The option that names the maps' folder.
    pub(super) flag: &'static str,
}

impl MapKind {
    /// Fails where a map of `size` has not the proportions of its photograph of `photograph_px`.
    pub(super) fn check_shape(
        self,
        path: &Path,
        size: [u32; 2],
        source: &ImageSource,
        photograph_px: [u32; 2],
    ) -> Result<(), ImageError> {
        if mask::same_shape(size, photograph_px) {
            return Ok(());
        }
        Err(ImageError::MapShape {
            path: name(path),
            kind: self.name,
            flag: self.flag,
            size,
            photograph: name(&source.path),
            photograph_size: photograph_px,
        })
    }
}

/// Values of pixels, rows from the top.
pub(super) struct Plane<T> {
    pub(super) px: [u32; 2],
    pub(super) values: Vec<T>,
}

impl<T: Copy> Plane<T> {
    /// The map in the file `path` as the photograph of size `photograph_px` is straightened. Fails where it
    /// has not the photograph's proportions.
    pub(super) fn straightened(
        self,
        path: &Path,
        kind: MapKind,
        source: &ImageSource,
        photograph_px: [u32; 2],
    ) -> Result<Self, ImageError> {
        kind.check_shape(path, self.px, source, photograph_px)?;
        Ok(match &source.undistort {
            Some(lens) => self.straighten(lens, source.full_size, photograph_px),
            None => self,
        })
    }

    /// What a pinhole camera of `full_px` would have seen, by the nearest stored values.
    pub(super) fn straighten(
        &self,
        lens: &Undistortion,
        full_px: [u32; 2],
        photograph_px: [u32; 2],
    ) -> Self {
        let ratio = [0, 1].map(|i| f64::from(self.px[i]) / f64::from(photograph_px[i]));
        let mut values = Vec::with_capacity(full_px[0] as usize * full_px[1] as usize);
        resample::each_place(full_px, &|at| lens.source_px(at), |at| {
            let [x, y] = [0, 1].map(|i| nearest(at[i] * ratio[i], self.px[i]));
            values.push(self.values[y * self.px[0] as usize + x]);
        });
        Self { px: full_px, values }
    }
}

/// The pixel of a row or column that holds `at`, or the nearest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the row first; what is not a number becomes pixel 0"
)]
fn nearest(at: f64, length: u32) -> usize {
    at.clamp(0.0, f64::from(length) - 1.0) as usize
}
