//! What a device measures of itself for `splat bench`: how long its stages take, and what one view
//! gives them to do.

use serde::{Serialize, Serializer};

use super::error::DeviceError;
use super::stage::Stage;
use crate::memory::Bytes;

/// A device that can be measured from inside. `Model` and `Frame` are those of its
/// [`Render`](super::Render).
pub trait Profiler<Model, Frame> {
    /// Begins or ends the timing of stages, which costs a little time itself.
    fn time_stages(&mut self, on: bool) -> Result<(), DeviceError>;
    /// What the stages since the last call took, in the order of an iteration; waits for them. Empty
    /// while they are not timed.
    fn stage_times(&mut self) -> Result<Vec<StageTime>, DeviceError>;
    /// How fast the device copies its own memory: what the stages' times are compared with. Waits
    /// for it. Nothing where there is no room for the copy.
    fn copy_speed(&mut self) -> Result<Option<CopySpeed>, DeviceError>;
    /// Counts what a frame, drawn for the backward pass, gives the stages to do when the step
    /// follows. Waits for the device, and takes long. Nothing of other frames.
    fn work(&mut self, model: &Model, frame: &Frame) -> Result<Option<Work>, DeviceError>;
    /// Gives back the memory that is kept for the next iteration.
    fn trim_memory(&mut self) -> Result<(), DeviceError>;
}

impl Stage {
    /// All, in the order of an iteration.
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

    /// As tables name it.
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

/// What the device spent on one stage of one iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Milliseconds on the device.
    pub ms: f64,
}

/// How fast a device copies its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CopySpeed {
    /// What was copied at a time.
    pub bytes: Bytes,
    /// 10⁹ bytes a second, those read and those written.
    pub gb_per_s: f64,
}

/// What one view gives the stages to do, counted. A lane block is 32 Gaussians that lie together,
/// a part is a warp's pixels of a tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Gaussians of the model.
    pub gaussians: u64,
    /// Words that a Gaussian takes as the model is stored.
    pub row_words: RowWords,
    /// Gaussians that the view sees: splats.
    pub visible: u64,
    /// Lane blocks of which the view sees something.
    pub lane_blocks_seen: u64,
    /// Gaussians that share a sector of 32 bytes, which is how memory moves, with one that the view
    /// sees.
    pub rows_fetched: u64,
    /// Those of them whose colours are behind, and catch up.
    pub rows_late: u64,
    /// Pixels of the view.
    pub pixels: u64,
    /// Its tiles.
    pub tiles: u64,
    /// Pairs of a splat and a tile that it reaches.
    pub instances: u64,
    /// Those of them that came before all pixels of their tile were finished.
    pub instances_reached: u64,
    /// Splats that reach a part which was not finished before.
    pub splats_hit: u64,
    /// Words of hits that were written: a bit for each of 32 instances, for each part.
    pub hit_words: u64,
    /// Chunks of tiles' lists that pixels got to.
    pub chunks: u64,
    /// States of a part's pixels that were kept before a chunk.
    pub states: u64,
    /// Pairs of a splat and a pixel whose opacity was evaluated, once forward and once backward:
    /// those of the splats that reach a part, with all of its pixels.
    pub pairs_evaluated: u64,
}

/// Words of 4 bytes that a Gaussian takes in each table, in the storage of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RowWords {
    /// Parameters that are no colours.
    pub geometry: u64,
    /// Both moments of these.
    pub geometry_moments: u64,
    /// Harmonics.
    pub sh: u64,
    /// Both moments of these.
    pub sh_moments: u64,
}

/// Gaussians of a lane block, and pixels of a part.
pub(crate) const LANES: u64 = 32;

impl Work {
    /// Gaussians in the lane blocks of which the view sees something.
    pub fn rows_seen(&self) -> u64 {
        (self.lane_blocks_seen * LANES).min(self.gaussians)
    }

    /// The mean of several views' work, each count rounded down; nothing of no views.
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
    fn the_mean_of_views_is_that_of_each_count() {
        assert_eq!(Work::mean(&[]), None);
        let [few, many] = [2, 5].map(|visible| Work { gaussians: 9, visible, ..Work::default() });
        let mean = Work::mean(&[few, many, many]);
        assert_eq!(mean, Some(Work { gaussians: 9, visible: 4, ..Work::default() }));
    }
}
