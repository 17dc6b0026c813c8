//! Random numbers as a function of `(seed, step, use, index)`.
//!
//! There is no generator whose state has to be saved: a resumed run draws what the unbroken run would have drawn, and
//! any element of a stream can be computed alone, on any device. The mixing function is `SplitMix64`'s finaliser
//! (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).

/// Purpose of a stream of random numbers; two purposes never share numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomUse {
    /// Order of the training views within an epoch.
    ViewOrder = 1,
    /// Positions and colours of randomly initialised Gaussians.
    Initialise = 2,
    /// Offsets of the children of a split Gaussian.
    Split = 3,
    /// Background colour of an iteration.
    Background = 4,
    /// Choice of the Gaussians that enter a histogram.
    Sample = 5,
    /// Placement of things in a synthetic scene.
    Synthesise = 6,
    /// Rotations of the Gaussians that training starts from.
    Orient = 8,
    /// Offsets of the copies in a model that is made denser.
    Jitter = 7,
    /// Rounding of the compact state after a step of Adam.
    RoundStep = 9,
    /// Rounding of colours that catch up.
    RoundCatchUp = 10,
    /// Motion of Gaussians that are nearly transparent.
    Noise = 11,
    /// Choice of the Gaussians that dead ones move to.
    Relocate = 12,
    /// Choice of the Gaussians that get copies.
    Multiply = 13,
    /// Choice of the Gaussians that the surface terms sample.
    SurfaceSample = 14,
    /// Offsets of the surface terms' samples within their Gaussians.
    SurfaceNormal = 15,
    /// Pixels whose rays are followed to a level set.
    SurfacePixel = 16,
    /// Choice of the points that are kept of those found on the level set.
    SurfacePoint = 17,
    /// Choice of the other view that an iteration's view is compared with, and of the pixels.
    OtherView = 18,
    /// Choice of the triangles that are split.
    SplitTriangles = 19,
    /// Cameras of the views that an ensemble draws.
    PseudoView = 20,
}

/// One stream of random numbers, addressed by index.
#[derive(Clone, Copy, Debug)]
pub struct RandomStream {
    key: u64,
}

impl RandomStream {
    /// Returns the stream for this use at `step` of the run with this seed.
    pub const fn new(seed: u64, step: u64, drawn_for: RandomUse) -> Self {
        Self { key: mix(mix(mix(seed) ^ step) ^ drawn_for as u64) }
    }

    /// Returns the stream of a seed alone.
    pub const fn of_seed(seed: u64) -> Self {
        Self { key: mix(seed) }
    }

    /// Returns the stream of another stream's key.
    pub const fn of_key(key: u64) -> Self {
        Self { key }
    }

    /// Returns the key, for devices that draw numbers themselves.
    pub const fn key(self) -> u64 {
        self.key
    }

    /// Returns 64 random bits.
    #[inline]
    pub const fn bits(self, index: u64) -> u64 {
        mix(self.key ^ mix(index))
    }

    /// Returns a number uniform in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn uniform(self, index: u64) -> f64 {
        fraction(self.bits(index))
    }

    /// Returns a standard normal number by Box and Muller's transform of numbers `2 index` and `2 index + 1`.
    pub fn normal(self, index: u64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform(2 * index)).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform(2 * index + 1)).cos()
    }

    /// Returns an integer in `0..bound`; `bound` must not be zero. The bias is below `bound / 2^64`.
    pub fn below(self, index: u64, bound: usize) -> usize {
        let scaled = (u128::from(self.bits(index)) * bound as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }

    /// Returns a random order of `0..count` (Fisher and Yates).
    pub fn permutation(self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last as u64, last + 1));
        }
        order
    }
}

/// Random numbers of a seed, one after another (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct RandomSequence {
    state: u64,
}

impl RandomSequence {
    /// Starts the sequence of a seed.
    pub const fn of_seed(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 random bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        let bits = mix(self.state);
        self.state = self.state.wrapping_add(INCREMENT);
        bits
    }

    /// Returns the next number, uniform in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        fraction(self.bits())
    }
}

/// 2^64 over the golden ratio.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the upper 53 bits as a number in [0, 1).
fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Mixes a word by `SplitMix64`, a bijection whose output bits each depend on every input bit.
#[inline]
pub const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(INCREMENT);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_on_seed_step_and_use() {
        let first = RandomStream::new(0, 1, RandomUse::Split).bits(0);
        assert_eq!(first, RandomStream::new(0, 1, RandomUse::Split).bits(0));
        assert_ne!(first, RandomStream::new(1, 1, RandomUse::Split).bits(0));
        assert_ne!(first, RandomStream::new(0, 2, RandomUse::Split).bits(0));
        assert_ne!(first, RandomStream::new(0, 1, RandomUse::Background).bits(0));
        assert_ne!(first, RandomStream::new(0, 1, RandomUse::Split).bits(1));
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let stream = RandomStream::new(7, 0, RandomUse::Split);
        let n = 100_000;
        let draws: Vec<f64> = (0..n).map(|i| stream.normal(i)).collect();
        let mean = draws.iter().sum::<f64>() / n as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        // Four standard errors: 4/sqrt(n) for the mean, 4·sqrt(2/n) for the variance.
        assert!(mean.abs() < 0.013, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.018, "variance {variance}");
    }

    #[test]
    fn a_permutation_holds_every_index_once_and_differs_between_epochs() {
        let order = RandomStream::new(3, 1, RandomUse::ViewOrder).permutation(101);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..101).collect::<Vec<_>>());
        assert_ne!(order, RandomStream::new(3, 2, RandomUse::ViewOrder).permutation(101));
    }
}
