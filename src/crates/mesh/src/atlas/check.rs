//! Whether an atlas is one: no texel claimed twice, no face turned over, all on the picture.

use super::places::Atlas;
use super::raster::{doubled_area_px, for_each_texel};

/// Area in square texels to which a face may be turned over by rounding.
const ROUNDING_PX2: f64 = 1e-3;

/// What is found of an atlas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AtlasCheck {
    /// Texels of the picture.
    pub texels: u64,
    /// Texels whose centre lies in a face.
    pub claimed: u64,
    /// How often a texel lies in a further face.
    pub claimed_twice: u64,
    /// Faces that run the other way round.
    pub flipped: usize,
    /// Faces with a corner that is no place on the picture.
    pub outside: usize,
}

impl AtlasCheck {
    /// Checks an atlas.
    pub fn of(atlas: &Atlas) -> Self {
        let (width, height) = (u64::from(atlas.width), u64::from(atlas.height));
        let mut check = Self { texels: width * height, ..Self::default() };
        let words = usize::try_from((width * height).div_ceil(64)).unwrap_or(0);
        let mut claims = vec![0_u64; words];
        for &face in &atlas.faces {
            let corners = atlas.corners_px(face);
            let is_place = |&place: &u32| (place as usize) < atlas.places_px.len();
            let is_inside = |[x, y]: &[f64; 2]| {
                (0.0..=width as f64).contains(x) && (0.0..=height as f64).contains(y)
            };
            if !(face.iter().all(is_place) && corners.iter().all(is_inside)) {
                check.outside += 1;
                continue;
            }
            check.flipped += usize::from(doubled_area_px(corners) < -2.0 * ROUNDING_PX2);
            for_each_texel(corners, [atlas.width, atlas.height], |x, y| {
                let at = u64::from(y) * width + u64::from(x);
                let word = usize::try_from(at / 64).ok().and_then(|word| claims.get_mut(word));
                if let Some(word) = word {
                    let bit = 1 << (at % 64);
                    check.claimed += u64::from(*word & bit == 0);
                    check.claimed_twice += u64::from(*word & bit != 0);
                    *word |= bit;
                }
            });
        }
        check
    }

    /// Whether it can be baked on.
    pub fn is_sound(&self) -> bool {
        self.claimed_twice == 0 && self.flipped == 0 && self.outside == 0
    }

    /// Share of the picture that faces claim.
    pub fn claimed_share(&self) -> f64 {
        self.claimed as f64 / self.texels.max(1) as f64
    }
}
