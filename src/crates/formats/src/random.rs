//! Random numbers of a seed, the same on every machine.
//!
//! `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
//! 2014).

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct SplatRandom {
    state: u64,
}

impl SplatRandom {
    /// The stream of this seed.
    pub(crate) const fn of_seed(seed: u64) -> Self {
        Self { state: seed }
    }

    /// 64 random bits.
    pub(crate) const fn bits(&mut self) -> u64 {
        // 2^64 over the golden ratio.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = self.state;
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    #[cfg(test)]
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
