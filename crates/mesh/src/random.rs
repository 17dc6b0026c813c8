//! Random numbers as a function of a key and an index.
//!
//! The mixing function is `SplitMix64`'s finaliser (Steele, Lea and Flood, "Fast splittable
//! pseudorandom number generators", OOPSLA 2014).

/// One stream of random numbers, addressed by index.
#[derive(Clone, Copy, Debug)]
pub struct RandomStream {
    key: u64,
}

impl RandomStream {
    /// The stream of this key.
    pub const fn of_key(key: u64) -> Self {
        Self { key: mix(key) }
    }

    /// 64 random bits.
    pub const fn bits(self, index: u64) -> u64 {
        mix(self.key ^ mix(index))
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    pub fn uniform(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
