//! How the packed layout squeezes a Gaussian into four words of 32 bits, relative to the ranges of
//! its chunk of 256 (`PlayCanvas`, `compressed.ply`).

use crate::opacity::{logit_of_byte, sigmoid};
use crate::quaternion::{SmallestThree, UnitQuat, normalised};
use crate::splats::SH_C0;
use splat_mesh::narrow::{round_u32, to_f32};

/// Gaussians of a chunk.
pub(super) const CHUNK_ROWS: usize = 256;

/// Columns of a chunk in their order.
pub(super) const RANGE_NAMES: [&str; 18] = [
    "min_x",
    "min_y",
    "min_z",
    "max_x",
    "max_y",
    "max_z",
    "min_scale_x",
    "min_scale_y",
    "min_scale_z",
    "max_scale_x",
    "max_scale_y",
    "max_scale_z",
    "min_r",
    "min_g",
    "min_b",
    "max_r",
    "max_g",
    "max_b",
];

/// Columns of a Gaussian in their order.
pub(super) const WORD_NAMES: [&str; 4] =
    ["packed_position", "packed_rotation", "packed_scale", "packed_color"];

/// Logarithms of scales beyond this are cut, as other writers do.
pub(super) const MOST_LOG_SCALE: f32 = 20.0;

/// The range of three values in a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range3 {
    pub(super) low: [f32; 3],
    pub(super) high: [f32; 3],
}

impl Range3 {
    pub(super) fn of(values: impl Iterator<Item = [f32; 3]>) -> Self {
        let empty = Self { low: [f32::INFINITY; 3], high: [f32::NEG_INFINITY; 3] };
        values.fold(empty, |range, value| Self {
            low: std::array::from_fn(|i| range.low[i].min(value[i])),
            high: std::array::from_fn(|i| range.high[i].max(value[i])),
        })
    }

    /// Three values in words of 11, 10 and 11 bits, from the top.
    fn pack(&self, value: [f32; 3]) -> u32 {
        let [x, y, z] = [0, 1, 2].map(|i| self.share(i, value[i]));
        step(x, 11) << 21 | step(y, 10) << 11 | step(z, 11)
    }

    fn unpack(&self, word: u32) -> [f32; 3] {
        let shares = [share(word >> 21, 11), share(word >> 11, 10), share(word, 11)];
        std::array::from_fn(|i| self.value(i, shares[i]))
    }

    fn share(&self, i: usize, value: f32) -> f64 {
        let (low, high) = (f64::from(self.low[i]), f64::from(self.high[i]));
        if high > low { (f64::from(value) - low) / (high - low) } else { 0.0 }
    }

    fn value(&self, i: usize, share: f64) -> f32 {
        to_f32(f64::from(self.low[i]) * (1.0 - share) + f64::from(self.high[i]) * share)
    }
}

/// A share of 0 to 1 in so many bits.
fn step(share: f64, bits: u32) -> u32 {
    round_u32(share.clamp(0.0, 1.0) * f64::from((1_u32 << bits) - 1))
}

/// The share of 0 to 1 in the lowest bits of a word.
fn share(word: u32, bits: u32) -> f64 {
    let most = (1_u32 << bits) - 1;
    f64::from(word & most) / f64::from(most)
}

/// The ranges of a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PackedRanges {
    pub(super) means: Range3,
    pub(super) log_scales: Range3,
    pub(super) colors: Range3,
}

/// What four words hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PackedSplat {
    pub(super) mean: [f32; 3],
    pub(super) log_scale: [f32; 3],
    pub(super) rotation: UnitQuat,
    pub(super) sh_dc: [f32; 3],
    pub(super) opacity_logit: f32,
}

/// Scales as they are stored.
pub(super) fn cut_scale(log_scale: [f32; 3]) -> [f32; 3] {
    log_scale.map(|scale| scale.clamp(-MOST_LOG_SCALE, MOST_LOG_SCALE))
}

/// The colour, 0 to 1 and beyond, of coefficients of degree 0.
pub(super) fn color(sh_dc: [f32; 3]) -> [f32; 3] {
    sh_dc.map(|c| to_f32(0.5 + SH_C0 * f64::from(c)))
}

impl PackedRanges {
    pub(super) fn pack(&self, splat: &PackedSplat) -> [u32; 4] {
        let color = color(splat.sh_dc);
        let [r, g, b] = [0, 1, 2].map(|i| step(self.colors.share(i, color[i]), 8));
        let opacity = step(sigmoid(splat.opacity_logit), 8);
        [
            self.means.pack(splat.mean),
            pack_rotation(splat.rotation),
            self.log_scales.pack(cut_scale(splat.log_scale)),
            r << 24 | g << 16 | b << 8 | opacity,
        ]
    }

    pub(super) fn unpack(&self, words: [u32; 4]) -> PackedSplat {
        let [position, rotation, scale, shade] = words;
        let color = [24, 16, 8].map(|shift| share(shade >> shift, 8));
        let sh_dc = std::array::from_fn(|i| {
            to_f32((f64::from(self.colors.value(i, color[i])) - 0.5) / SH_C0)
        });
        PackedSplat {
            mean: self.means.unpack(position),
            log_scale: self.log_scales.unpack(scale),
            rotation: unpack_rotation(rotation),
            sh_dc,
            opacity_logit: logit_of_byte(shade.to_le_bytes()[0]),
        }
    }
}

/// Two bits tell the largest of w, x, y, z; the others take ten bits each.
fn pack_rotation(rotation: UnitQuat) -> u32 {
    let SmallestThree { largest, others } = SmallestThree::of(rotation);
    let words = others.map(|part| step(part * std::f64::consts::FRAC_1_SQRT_2 + 0.5, 10));
    let index = [0, 1, 2, 3][largest];
    words.iter().fold(index, |word, part| word << 10 | part)
}

fn unpack_rotation(word: u32) -> UnitQuat {
    let others =
        [20, 10, 0].map(|shift| (share(word >> shift, 10) - 0.5) * std::f64::consts::SQRT_2);
    let quat = SmallestThree { largest: (word >> 30) as usize, others }.quat();
    normalised(quat, 0.0).unwrap_or([1.0, 0.0, 0.0, 0.0])
}

/// The byte of a coefficient above degree 0: steps of 1/32 between ±4, rounded down.
pub(super) fn pack_harmonic(coefficient: f32) -> u8 {
    let step = ((f64::from(coefficient) / 8.0 + 0.5) * 256.0).floor();
    splat_mesh::narrow::round_u8(step)
}

/// The middle of what a byte stands for; its ends are ±4.
pub(super) fn unpack_harmonic(byte: u8) -> f32 {
    let share = match byte {
        0 => 0.0,
        255 => 1.0,
        _ => (f64::from(byte) + 0.5) / 256.0,
    };
    to_f32((share - 0.5) * 8.0)
}
