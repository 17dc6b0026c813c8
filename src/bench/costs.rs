//! Times of the stages beside lower bounds of their memory traffic.

use serde::Serialize;

use super::floor::floor;
use crate::backend::{CopySpeed, Stage, StageTime, Work};
use crate::memory::Bytes;

/// Cost of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageCost {
    /// The stage.
    pub stage: Stage,
    /// Median time on the device, ms.
    pub ms: f64,
    /// Lower bound of the traffic; `None` if the views' work was not counted.
    #[serde(flatten)]
    pub traffic: Option<Traffic>,
}

/// Lower bound of a stage's memory traffic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// Bytes that the stage must read and write; mean over the counted views.
    pub floor_bytes: Bytes,
    /// 10⁹ of these bytes a second.
    pub gb_per_s: f64,
    /// `gb_per_s` as a share of a copy's speed. May exceed 1 if the data fits the device's caches.
    pub copy_share: Option<f64>,
}

impl Traffic {
    /// Returns the traffic of a stage that takes `ms`; `None` if the time is 0.
    pub fn new(floor_bytes: Bytes, ms: f64, copy: Option<CopySpeed>) -> Option<Self> {
        let gb_per_s = floor_bytes.0 as f64 * 1e-9 / (ms * 1e-3);
        let copy_share = copy.map(|copy| gb_per_s / copy.gb_per_s);
        (ms > 0.0).then_some(Self { floor_bytes, gb_per_s, copy_share })
    }
}

/// Pairs of a splat and a pixel; mean over the counted views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pairs {
    /// Pairs that each blend stage evaluates; `None` if the device does not count them.
    pub evaluated: Option<u64>,
    /// Pairs in which the splat changes the pixel.
    pub contributing: u64,
}

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
    fn traffic_is_the_mean_of_the_views() {
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
