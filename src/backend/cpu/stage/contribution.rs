//! Stage `contribution`: the contribution of each Gaussian to the similarity of a view and its photograph.
//!
//! Rows of tiles run in parallel; each pixel visits its splats front to back. Absent Gaussians are evaluated at their
//! depth but do not change the pixel.

use super::bin::Bins;
use super::blend::place_in_tile;
use crate::backend::cpu::primitive::{InPixel, Splat};
use crate::backend::{Contribution, Held};
use crate::dataset::Image;
use crate::math::Real;
use crate::math::blend::{PixelChange, PixelLayer, TRANSMITTANCE_MIN, pixel_change};
use crate::math::linalg::{Vec3, scale, sub};
use crate::math::splat::{Rect, TILE};
use crate::memory::Bytes;

/// Contributions of Gaussians, summed over views.
#[derive(Debug)]
pub struct ContributionSums<R> {
    pub(crate) absent: Vec<bool>,
    shares: Vec<ContributionShare<R>>,
}

/// Contribution of a Gaussian to some pixels.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ContributionShare<R> {
    weight: R,
    weight_max: R,
    error_change: R,
    squared_change: R,
}

impl<R: Real> ContributionShare<R> {
    fn add(&mut self, other: &Self) {
        self.weight += other.weight;
        self.weight_max = self.weight_max.max(other.weight_max);
        self.error_change += other.error_change;
        self.squared_change += other.squared_change;
    }
}

impl<R: Real> ContributionSums<R> {
    pub(crate) fn new(absent: &[bool]) -> Self {
        Self { absent: absent.to_vec(), shares: vec![ContributionShare::default(); absent.len()] }
    }

    /// Adds the contributions of a view's splats.
    pub(crate) fn add(&mut self, splats: &[Splat<R>], shares: &[ContributionShare<R>]) {
        for (splat, share) in splats.iter().zip(shares) {
            self.shares[splat.row].add(share);
        }
    }

    pub(crate) fn read(&self) -> Vec<Contribution> {
        let read = |share: &ContributionShare<R>| Contribution {
            weight: share.weight.to_f32(),
            weight_max: share.weight_max.to_f32(),
            error_change: share.error_change.to_f32(),
            squared_change: share.squared_change.to_f32(),
        };
        self.shares.iter().map(read).collect()
    }
}

impl<R: Real> Held for ContributionSums<R> {
    fn bytes(&self) -> Bytes {
        Bytes::of::<bool>(self.absent.capacity())
            + Bytes::of::<ContributionShare<R>>(self.shares.capacity())
    }
}

/// Returns the splats with the opacities of absent Gaussians set to 0.
pub(crate) fn drawn<R: Real>(splats: &[Splat<R>], absent: &[bool]) -> Vec<Splat<R>> {
    let seen = |splat: &Splat<R>| match absent[splat.row] {
        true => Splat { opacity: R::ZERO, ..*splat },
        false => *splat,
    };
    splats.iter().map(seen).collect()
}

/// A view drawn without the absent Gaussians, and its photograph.
#[derive(Clone, Copy)]
pub(crate) struct Judged<'a, R> {
    /// [height, width, 3]
    pub(crate) image: &'a [R],
    pub(crate) background: Vec3<R>,
    pub(crate) target: &'a Image,
}

impl<R: Real> Judged<'_, R> {
    /// Returns a pixel's colours in the image and in the photograph; `None` if masked.
    fn pixel(&self, at: usize) -> Option<[Vec3<R>; 2]> {
        if self.target.mask.as_ref().is_some_and(|mask| mask[at] == 0) {
            return None;
        }
        let drawn = std::array::from_fn(|channel| self.image[at * 3 + channel]);
        let truth = |channel| R::of(f64::from(self.target.rgb[at * 3 + channel]) / 255.0);
        Some([drawn, std::array::from_fn(truth)])
    }
}

/// Returns the contribution of each splat.
pub(crate) fn shares<R: Real>(
    splats: &[Splat<R>],
    bins: &Bins,
    absent: &[bool],
    judged: Judged<'_, R>,
) -> Vec<ContributionShare<R>> {
    let visit = |area: Rect, list: &[usize], out: &mut [ContributionShare<R>]| {
        let list = list.iter().map(|&index| &splats[index]);
        judge_tile(list.zip(out), absent, area, judged);
    };
    let size = [judged.target.width, judged.target.height];
    bins.sums(splats.len(), size, visit, ContributionShare::add)
}

/// State of a pixel during front-to-back evaluation.
#[derive(Clone, Copy)]
struct ContributionWalk<R> {
    drawn: Vec3<R>,
    truth: Vec3<R>,
    behind: Vec3<R>,
    transmittance: R,
}

/// Adds the contributions in a tile's pixels to each splat in its list.
fn judge_tile<'a, R: Real>(
    list: impl Iterator<Item = (&'a Splat<R>, &'a mut ContributionShare<R>)>,
    absent: &[bool],
    area: Rect,
    judged: Judged<'_, R>,
) {
    let width = judged.target.width as usize;
    let mut walks = [None; (TILE * TILE) as usize];
    let mut open = 0;
    for y in area.y0..area.y1 {
        for x in area.x0..area.x1 {
            let pixel = judged.pixel(y as usize * width + x as usize);
            open += u32::from(pixel.is_some());
            walks[place_in_tile(x, y)] = pixel.map(|[drawn, truth]| ContributionWalk {
                drawn,
                truth,
                behind: drawn,
                transmittance: R::ONE,
            });
        }
    }
    for (splat, share) in list {
        if open == 0 {
            break;
        }
        let is_absent = absent[splat.row];
        let reach = splat.pixels.intersection(&area);
        for y in reach.y0..reach.y1 {
            for x in reach.x0..reach.x1 {
                let slot = &mut walks[place_in_tile(x, y)];
                let Some(walk) = slot else { continue };
                let Some(InPixel { alpha, .. }) = splat.in_pixel(x, y) else { continue };
                let after = walk.transmittance * (R::ONE - alpha);
                if after >= R::of(TRANSMITTANCE_MIN) {
                    share.add(&walk.share(splat.color, alpha, is_absent, judged.background));
                } else if !is_absent {
                    // A splat that takes the transmittance below its minimum finishes the pixel.
                    *slot = None;
                    open -= 1;
                }
            }
        }
    }
}

impl<R: Real> ContributionWalk<R> {
    /// Returns the contribution of a splat to this pixel. Advances past splats that are drawn.
    fn share(
        &mut self,
        color: Vec3<R>,
        alpha: R,
        is_absent: bool,
        background: Vec3<R>,
    ) -> ContributionShare<R> {
        let Self { drawn, truth, behind, transmittance } = *self;
        let layer = PixelLayer { alpha, transmittance, color, behind };
        let weight = layer.weight();
        let changed = if is_absent {
            layer.put_in(drawn)
        } else {
            self.behind = sub(behind, scale(color, weight));
            self.transmittance = transmittance * (R::ONE - alpha);
            PixelLayer { behind: self.behind, ..layer }.taken_out(drawn, background)
        };
        let PixelChange { error_change, squared_change } = pixel_change(drawn, changed, truth);
        ContributionShare { weight, weight_max: weight, error_change, squared_change }
    }
}
