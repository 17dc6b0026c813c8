//! Random numbers as a function of a key and an index.
//!
//! The mixing function is `SplitMix64`'s finaliser (Steele, Lea and Flood, "Fast splittable
//! pseudorandom number generators", OOPSLA 2014).

/// 2^64 over the golden ratio.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

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
        fraction(self.bits(index))
    }
}

/// The upper 53 bits as a number in [0, 1).
fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Uniform numbers in [0, 1), one after another (`SplitMix64`).
#[cfg(test)]
pub(crate) fn uniforms(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        let bits = mix(state);
        state = state.wrapping_add(INCREMENT);
        fraction(bits)
    }
}

/// Spreads what differs in a few bits over all 64.
pub(crate) const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(INCREMENT);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
