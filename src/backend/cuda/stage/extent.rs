//! What is listed and drawn at once, and what that takes of the memory: known beforehand, so that a
//! view that does not fit is drawn otherwise.

use std::ops::Range;

use crate::abi::{BLEND_CHUNK, Camera, SHORT_KEYS_MAX, TileRange};
use crate::backend::DeviceError;
use crate::backend::cuda::memory::heap::Carve;
use crate::layout::Library;

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
    pub(crate) fn whole(camera: &Camera, instances: u64) -> Result<Self, DeviceError> {
        Self::band(camera, 0..camera.tiles[1], instances)
    }

    /// These rows of a view. An error where their instances are too many for one list.
    pub(crate) fn band(
        camera: &Camera,
        rows: Range<u32>,
        instances: u64,
    ) -> Result<Self, DeviceError> {
        let count = usize::try_from(instances)
            .ok()
            .filter(|&count| u32::try_from(count).is_ok_and(|count| count <= INSTANCES_MAX))
            .ok_or(DeviceError::TooManyInstances { count: instances, most: INSTANCES_MAX })?;
        Ok(Self { tiles: camera.tiles, rows, instances: count })
    }

    /// Number of the view's tiles.
    pub(crate) fn tiles(&self) -> usize {
        self.tiles[0] as usize * self.tiles[1] as usize
    }

    /// Number of tiles that are listed.
    pub(crate) fn tiles_listed(&self) -> usize {
        self.tiles[0] as usize * self.rows.len()
    }

    /// Most chunks of the tiles' lists that there can be.
    pub(crate) fn chunks_max(&self) -> usize {
        self.instances / BLEND_CHUNK as usize + self.tiles_listed()
    }

    /// Whether keys of 16 bits tell its tiles apart.
    pub(crate) fn has_short_keys(&self) -> bool {
        self.tiles() <= SHORT_KEYS_MAX as usize
    }

    /// Bits of the keys that count: the number behind the last tile marks empty places, so that it
    /// has to fit as well.
    pub(crate) fn key_bits(&self) -> Range<u32> {
        0..usize::BITS - self.tiles().leading_zeros()
    }
}

/// Scratch of the library's calls for a list, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListScratch {
    /// To sort the instances.
    pub(crate) sort: u64,
    /// To sum up the instances of splats that were counted anew.
    pub(crate) sum: u64,
}

impl ListScratch {
    /// As the library has it. `counted` splats are counted anew.
    pub(crate) fn of(library: &Library, extent: &Extent, counted: usize) -> Self {
        let sort = if extent.has_short_keys() { &library.sort16 } else { &library.sort32 };
        let bits = extent.key_bits();
        Self {
            sort: sort.bytes(extent.instances as u64, bits.end - bits.start),
            sum: library.sum32.bytes(counted as u64),
        }
    }
}

/// What listing takes of the arena, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    /// What stays: the list, and what may lie idle below or above it.
    pub(crate) stays: u64,
    /// What is taken on top of that and given back.
    pub(crate) passing: u64,
}

impl Listing {
    /// Of a list for which `counted` splats are counted anew.
    pub(crate) fn of(extent: &Extent, counted: usize, library: ListScratch) -> Self {
        let list = bytes_for::<u32>(extent.instances);
        let keys = if extent.has_short_keys() {
            bytes_for::<u16>(extent.instances)
        } else {
            bytes_for::<u32>(extent.instances)
        };
        let counts = 2 * bytes_for::<u32>(counted);
        Self {
            stays: bytes_for::<TileRange>(extent.tiles()) + 2 * list,
            passing: counts + (2 * keys + library.sort).max(library.sum),
        }
    }
}

/// Bytes of the arena that a block of so many values takes.
pub(crate) fn bytes_for<T>(len: usize) -> u64 {
    Carve::bytes_for::<T>(len) as u64
}
