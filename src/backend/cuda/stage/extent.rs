//! What is listed and drawn at once: all tiles of a view, or a band of its rows of tiles.

use std::ops::Range;

use crate::abi::{BLEND_CHUNK, ViewCamera};
use crate::backend::DeviceError;
use crate::layout::ListSizes;

/// Most instances of a list: kernels count in steps of up to a chunk, in 32 bits, past the last.
pub(crate) const INSTANCES_MAX: u32 = u32::MAX - BLEND_CHUNK;

/// What a list is of: all tiles of a view, or a band of its rows of tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Tiles of the view in a row and in a column.
    pub(crate) tiles: [u32; 2],
    /// Rows of tiles that are listed.
    pub(crate) rows: Range<u32>,
    /// Pairs of a splat and a tile that it reaches in these rows.
    pub(crate) instances: usize,
}

impl Extent {
    /// All of a view. An error where its instances are too many for one list.
    pub(crate) fn whole(camera: &ViewCamera, instances: u64) -> Result<Self, DeviceError> {
        Self::band(camera, 0..camera.tiles[1], instances)
    }

    /// These rows of a view. An error where their instances are too many for one list.
    pub(crate) fn band(
        camera: &ViewCamera,
        rows: Range<u32>,
        instances: u64,
    ) -> Result<Self, DeviceError> {
        let count = usize::try_from(instances)
            .ok()
            .filter(|&count| u32::try_from(count).is_ok_and(|count| count <= INSTANCES_MAX))
            .ok_or(DeviceError::TooManyInstances { count: instances, most: INSTANCES_MAX })?;
        Ok(Self { tiles: camera.tiles, rows, instances: count })
    }

    /// Its sizes. In a view in bands so many splats are counted anew.
    pub(crate) fn sizes(&self, counted: Option<usize>) -> ListSizes {
        ListSizes {
            tiles: self.tiles,
            rows: self.rows.end.saturating_sub(self.rows.start),
            instances: self.instances as u64,
            counted: counted.map(|counted| counted as u64),
        }
    }

    /// Number of the view's tiles.
    pub(crate) fn tiles(&self) -> usize {
        self.tiles[0] as usize * self.tiles[1] as usize
    }

    /// Number of tiles that are listed.
    pub(crate) fn tiles_listed(&self) -> usize {
        self.tiles[0] as usize * self.rows.len()
    }
}
