//! Measurements of a device for `splat bench`: times of its stages, and the work that one view causes.

use serde::{Serialize, Serializer};

use super::device::Stage;
use super::error::DeviceError;
use crate::memory::Bytes;

/// A device that measures itself. `Model` and `Frame` are the types of its [`Render`](super::Render).
pub trait Profiler<Model, Frame> {
    /// Starts or stops the timing of stages, which slows the device a little.
    fn time_stages(&mut self, on: bool) -> Result<(), DeviceError>;
    /// Returns the times of the stages since the last call, in the order of an iteration. Waits for them. Empty
    /// without timing.
    fn stage_times(&mut self) -> Result<Vec<StageTime>, DeviceError>;
    /// Measures the speed of copies within the device's memory. Waits for them. `None` if memory is short.
    fn copy_speed(&mut self) -> Result<Option<CopySpeed>, DeviceError>;
    /// Counts the work of the stages and of the next step for a frame that was drawn for the backward pass; `None`
    /// for other frames. Waits for the device; slow.
    fn work(&mut self, model: &Model, frame: &Frame) -> Result<Option<Work>, DeviceError>;
    /// Frees the memory that is kept for the next iteration.
    fn trim_memory(&mut self) -> Result<(), DeviceError>;
}

impl Stage {
    /// All stages in the order of an iteration.
    pub const ALL: [Self; 8] = [
        Self::Project,
        Self::Sort,
        Self::Bin,
        Self::BlendForward,
        Self::Loss,
        Self::BlendBackward,
        Self::Observe,
        Self::Step,
    ];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Sort => "sort",
            Self::Bin => "bin",
            Self::BlendForward => "blend forward",
            Self::Loss => "loss",
            Self::BlendBackward => "blend backward",
            Self::Observe => "observe",
            Self::Step => "step",
        }
    }
}

impl Serialize for Stage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Time of one stage in one iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Milliseconds on the device.
    pub ms: f64,
}

/// Speed of copies within a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CopySpeed {
    /// Size of one copy.
    pub bytes: Bytes,
    /// 10⁹ bytes a second, reads and writes together.
    pub gb_per_s: f64,
}

/// Work of the stages for one view, counted. A lane block is 32 consecutive Gaussians, a warp tile the pixels of a
/// tile that one warp draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Gaussians of the model.
    pub gaussians: u64,
    /// Words of a Gaussian in the model's storage.
    pub row_words: RowWords,
    /// Splats: Gaussians that the view shows.
    pub visible: u64,
    /// Lane blocks with a splat.
    pub lane_blocks_seen: u64,
    /// Gaussians that share a sector of 32 bytes, the unit of memory transfers, with a splat.
    pub rows_fetched: u64,
    /// Fetched Gaussians whose colours are behind and catch up.
    pub rows_late: u64,
    /// Pixels of the view.
    pub pixels: u64,
    /// Tiles of the view.
    pub tiles: u64,
    /// Pairs of a splat and a tile that the splat reaches.
    pub instances: u64,
    /// Pairs that the tile's pixels reach before all of them are finished.
    pub instances_reached: u64,
    /// Splats that reach at least one warp tile before it is finished.
    pub splats_hit: u64,
    /// Words of hits written: for each warp tile a bit for each of 32 instances.
    pub hit_words: u64,
    /// Chunks of the tiles' lists that pixels reach.
    pub chunks: u64,
    /// Stored states of a warp tile's pixels: one before each chunk that they reach, except the first.
    pub states: u64,
    /// Pairs of a splat and a pixel whose opacity is evaluated, once forward and once backward: all pixels of the
    /// warp tiles that a splat reaches.
    pub pairs_evaluated: u64,
}

/// Words of 4 bytes of a Gaussian in each table of the model's storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RowWords {
    /// Parameters except colours.
    pub geometry: u64,
    /// Both moments of the geometry.
    pub geometry_moments: u64,
    /// Spherical harmonics.
    pub sh: u64,
    /// Both moments of the harmonics.
    pub sh_moments: u64,
}

/// Gaussians of a lane block, and pixels of a warp tile.
pub(crate) const LANES: u64 = 32;

impl Work {
    /// Returns the number of Gaussians in lane blocks with a splat.
    pub fn rows_seen(&self) -> u64 {
        (self.lane_blocks_seen * LANES).min(self.gaussians)
    }

    /// Returns the mean of several views' work, each count rounded down; `None` without views.
    pub fn mean(works: &[Self]) -> Option<Self> {
        let count = works.len() as u64;
        if count == 0 {
            return None;
        }
        let mean = |of: fn(&Self) -> u64| works.iter().map(of).sum::<u64>() / count;
        Some(Self {
            gaussians: mean(|work| work.gaussians),
            row_words: works.first().map_or_else(RowWords::default, |work| work.row_words),
            visible: mean(|work| work.visible),
            lane_blocks_seen: mean(|work| work.lane_blocks_seen),
            rows_fetched: mean(|work| work.rows_fetched),
            rows_late: mean(|work| work.rows_late),
            pixels: mean(|work| work.pixels),
            tiles: mean(|work| work.tiles),
            instances: mean(|work| work.instances),
            instances_reached: mean(|work| work.instances_reached),
            splats_hit: mean(|work| work.splats_hit),
            hit_words: mean(|work| work.hit_words),
            chunks: mean(|work| work.chunks),
            states: mean(|work| work.states),
            pairs_evaluated: mean(|work| work.pairs_evaluated),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_views_is_taken_per_count() {
        assert_eq!(Work::mean(&[]), None);
        let [few, many] = [2, 5].map(|visible| Work { gaussians: 9, visible, ..Work::default() });
        let mean = Work::mean(&[few, many, many]);
        assert_eq!(mean, Some(Work { gaussians: 9, visible: 4, ..Work::default() }));
    }
}
