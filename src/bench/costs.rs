//! How far the stages are from the least that they could take.

use serde::Serialize;

use super::floor::floor;
use crate::backend::{CopySpeed, Stage, StageTime, Work};
use crate::memory::Bytes;

/// What a stage takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageCost {
    /// The stage.
    pub stage: Stage,
    /// Median time on the device.
    pub ms: f64,
    /// What it moves at least; nothing where views' work was not counted.
    #[serde(flatten)]
    pub traffic: Option<Traffic>,
}

/// What a stage moves at least, and how fast that is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// Bytes that it must read and write, mean of the views whose work was counted.
    pub floor_bytes: Bytes,
    /// 10⁹ of these bytes a second.
    pub gb_per_s: f64,
    /// That, as a share of a copy's speed: the time of such a copy over the stage's. What fits the
    /// device's caches may reach more than 1.
    pub copy_share: Option<f64>,
}

impl Traffic {
    /// So many bytes in so many milliseconds; nothing in no time.
    pub fn new(floor_bytes: Bytes, ms: f64, copy: Option<CopySpeed>) -> Option<Self> {
        let gb_per_s = floor_bytes.0 as f64 * 1e-9 / (ms * 1e-3);
        let copy_share = copy.map(|copy| gb_per_s / copy.gb_per_s);
        (ms > 0.0).then_some(Self { floor_bytes, gb_per_s, copy_share })
    }
}

/// Pairs of a splat and a pixel, mean of the views whose work was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pairs {
    /// Those that each blend stage evaluates; nothing where the device does not count them.
    pub evaluated: Option<u64>,
    /// Those in which the splat changes the pixel.
    pub contributing: u64,
}

/// Puts beside the stages' times what they move at least for these views.
pub(super) fn costs(
    times: &[StageTime],
    works: &[Work],
    copy: Option<CopySpeed>,
) -> Vec<StageCost> {
    let cost = |&StageTime { stage, ms }| {
        let sum: u64 = works.iter().map(|work| floor(stage, work).0).sum();
        let mean = sum.checked_div(works.len() as u64).map(Bytes);
        StageCost { stage, ms, traffic: mean.and_then(|bytes| Traffic::new(bytes, ms, copy)) }
    };
    times.iter().map(cost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: [StageTime; 2] =
        [StageTime { stage: Stage::Loss, ms: 0.5 }, StageTime { stage: Stage::Observe, ms: 0.0 }];

    #[test]
    fn bytes_are_the_mean_of_the_views_and_the_share_that_of_a_copy() {
        let works = [1_000_000, 3_000_000].map(|pixels| Work { pixels, ..Work::default() });
        let copy = CopySpeed { bytes: Bytes::GIB, gb_per_s: 432.0 };
        let [loss, observe] = costs(&TIMES, &works, Some(copy)).try_into().unwrap();
        let Traffic { floor_bytes, gb_per_s, copy_share } = loss.traffic.unwrap();
        // 27 bytes a pixel: 54 MB in half a millisecond.
        assert_eq!((loss.stage, floor_bytes), (Stage::Loss, Bytes(54_000_000)));
        assert!((gb_per_s - 108.0).abs() < 1e-9, "{gb_per_s}");
        assert!((copy_share.unwrap() - 0.25).abs() < 1e-9, "{copy_share:?}");
        assert_eq!(observe.traffic, None, "took no time");
    }

    #[test]
    fn a_device_that_does_not_count_has_times_only() {
        let found = costs(&TIMES, &[], None);
        assert_eq!(found.iter().map(|cost| cost.ms).collect::<Vec<_>>(), [0.5, 0.0]);
        assert!(found.iter().all(|cost| cost.traffic.is_none()));
        let json = serde_json::to_value(found[0]).unwrap();
        assert_eq!(json, serde_json::json!({ "stage": "loss", "ms": 0.5 }));
    }
}
