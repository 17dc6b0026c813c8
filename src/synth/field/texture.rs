//! Colours over surfaces: noise of three octaves, so that no two places look alike.

use crate::math::linalg::Vec3;
use crate::math::random::{RandomStream, RandomUse};
use crate::synth::scenery::{LinearColor, mix, smooth_step};

/// Octaves of the noise.
const OCTAVES: u64 = 3;

/// The first random stream of textures; those before place things and cameras.
const FIRST_STREAM: u64 = 16;

/// Noise in space.
#[derive(Clone, Copy, Debug)]
pub(in crate::synth) struct Texture {
    seed: u64,
    /// Size of the largest patches, world units.
    grain: f64,
}

impl Texture {
    pub(in crate::synth) const fn new(seed: u64, grain: f64) -> Self {
        Self { seed, grain }
    }

    /// Between two colours, lighter and darker by another noise.
    pub(in crate::synth) fn color(&self, colors: [LinearColor; 2], at: Vec3<f64>) -> LinearColor {
        let share = smooth_step(0.4, 0.6, self.octaves(0, at));
        let light = 0.5 + self.octaves(1, at);
        mix(colors[0], colors[1], share).map(|channel| (light * channel).min(1.0))
    }

    /// Noise about 0.5, nearly always in 0..1.
    fn octaves(&self, which: u64, at: Vec3<f64>) -> f64 {
        let mut sum = 0.5;
        let (mut weight, mut size) = (1.0, self.grain);
        for octave in 0..OCTAVES {
            let step = FIRST_STREAM + OCTAVES * which + octave;
            let stream = RandomStream::new(self.seed, step, RandomUse::Synthesise);
            sum += weight * (value(stream, at.map(|x| x / size)) - 0.5);
            weight *= 0.6;
            size *= 0.5;
        }
        sum
    }
}

/// Random values at whole places, blended smoothly between them (Perlin and Hoffert 1989).
fn value(stream: RandomStream, at: Vec3<f64>) -> f64 {
    let floor = at.map(f64::floor);
    let share: Vec3<f64> = std::array::from_fn(|i| smooth_step(0.0, 1.0, at[i] - floor[i]));
    let corner = |x: u8, y: u8, z: u8| {
        let place = [floor[0] + f64::from(x), floor[1] + f64::from(y), floor[2] + f64::from(z)];
        stream.uniform(index(place))
    };
    let along_x = |y: u8, z: u8| blend(corner(0, y, z), corner(1, y, z), share[0]);
    let along_y = |z: u8| blend(along_x(0, z), along_x(1, z), share[1]);
    blend(along_y(0), along_y(1), share[2])
}

fn blend(a: f64, b: f64, share: f64) -> f64 {
    a + (b - a) * share
}

/// A number of its own for each whole place within 2^20 of the origin.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers, of which the low bits count"
)]
fn index(place: Vec3<f64>) -> u64 {
    let [x, y, z] = place.map(|x| x as i64 as u64 & 0x1f_ffff);
    x | y << 21 | z << 42
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_smooth_and_differs_between_places() {
        let texture = Texture::new(3, 0.5);
        let colors = [[0.8, 0.2, 0.1], [0.1, 0.3, 0.7]];
        let at = |i: i32| texture.color(colors, [f64::from(i) * 1e-3 - 2.0, 0.3, -1.7]);
        let (mut least, mut most) = (1.0_f64, 0.0_f64);
        for i in 0..4000 {
            let [red, ..] = at(i);
            let step = (at(i + 1)[0] - red).abs();
            assert!(step < 0.1, "{i}: {step}");
            (least, most) = (least.min(red), most.max(red));
        }
        assert!(most > 0.6 && least < 0.15, "{least} {most}");
    }
}
