//! Splats and instances of a view as a function of the number of Gaussians.

use serde::Serialize;

use crate::abi::TILE;
use crate::memory::TrainingScale;

/// Sizes of a view that its memory depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ViewSize {
    /// Width and height, px.
    pub px: [u32; 2],
    /// Number of visible Gaussians.
    pub visible: u64,
    /// Number of pairs of a splat and a tile.
    pub instances: u64,
}

impl ViewSize {
    /// Returns the number of pixels.
    pub fn pixels(&self) -> u64 {
        self.px.map(u64::from).iter().product()
    }

    /// Returns the number of tiles.
    pub fn tiles(&self) -> u64 {
        self.px.map(|side| u64::from(side.div_ceil(TILE))).iter().product()
    }
}

/// Growth of the most demanding view with the number of Gaussians.
///
/// A splat counts in every tile that its box touches. In a denser model splats get smaller while their surface, S
/// tiles in total, stays constant: V splats with sides of s tiles touch about (1 + s/2)² tiles each, with s² = S / V.
/// The sum is V + √(V S) + S/4, modelled as V + √(V S') + S' with a measured S'.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ViewGrowth {
    /// Size of the largest view, px.
    pub px: [u32; 2],
    /// Share of the Gaussians that are visible.
    pub share: f64,
    /// S', tiles.
    pub surface: f64,
}

impl ViewGrowth {
    /// Fits the growth to a view of a model with this number of Gaussians.
    pub fn counted(gaussians: u64, view: &ViewSize) -> Self {
        let root = (view.visible as f64).sqrt();
        let more = view.instances.saturating_sub(view.visible) as f64;
        // x² + √V x = M - V.
        let x = 0.5 * ((root * root + 4.0 * more).sqrt() - root);
        Self { px: view.px, share: view.visible as f64 / gaussians.max(1) as f64, surface: x * x }
    }

    /// Returns the growth of the views at another scale.
    pub fn scaled(&self, scale: TrainingScale) -> Self {
        self.resized(scale.px(self.px))
    }

    /// Returns the growth of the views at another size, px. The surface scales with the number of tiles.
    pub fn resized(&self, px: [u32; 2]) -> Self {
        let tiles = |px: [u32; 2]| px.map(|side| f64::from(side) / f64::from(TILE));
        let ([wide, high], [new_wide, new_high]) = (tiles(self.px), tiles(px));
        Self { px, surface: self.surface * (new_wide * new_high) / (wide * high), ..*self }
    }

    /// Returns the view of a model with this number of Gaussians.
    pub fn of(&self, gaussians: u64) -> ViewSize {
        let visible = gaussians as f64 * self.share.clamp(0.0, 1.0);
        let instances = visible + (visible * self.surface).sqrt() + self.surface;
        let instances = if gaussians == 0 { 0.0 } else { instances };
        ViewSize { px: self.px, visible: whole(visible), instances: whole(instances) }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count far below 2^63, and never negative"
)]
fn whole(count: f64) -> u64 {
    count.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counted_view_is_reproduced() {
        for (gaussians, visible, instances) in
            [(1_000_000, 400_000, 900_000), (50, 50, 50), (7, 0, 0), (1000, 10, 1_000_000)]
        {
            let view = ViewSize { px: [48, 32], visible, instances };
            let again = ViewGrowth::counted(gaussians, &view).of(gaussians);
            assert!(again.visible.abs_diff(visible) <= 1, "{again:?}");
            assert!(again.instances.abs_diff(instances) <= 2, "{again:?} of {view:?}");
        }
    }

    #[test]
    fn a_denser_model_has_fewer_instances_a_splat() {
        let seen = ViewGrowth { px: [800, 533], share: 0.5, surface: 286_000.0 };
        let [few, many] = [100_000, 10_000_000].map(|gaussians| seen.of(gaussians));
        assert_eq!(many.visible, 100 * few.visible);
        let each = |view: &ViewSize| view.instances as f64 / view.visible as f64;
        assert!(each(&few) > 3.0 && each(&many) < 1.5, "{} {}", each(&few), each(&many));
        assert_eq!(seen.of(0), ViewSize { px: [800, 533], visible: 0, instances: 0 });
    }
}
