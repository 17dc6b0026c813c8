//! Scratch sizes of CUB's sorts and sums, and the buffer that holds the result of a sort.
//!
//! CUB's tile sizes depend on the architecture and the release. When the kernels are built,
//! `kernels/scratch_sizes.cpp` queries CUB for every architecture and prints the table. A build without nvcc uses the
//! table in this folder, which came from the same program. An opened GPU is queried at a few sizes; its answers
//! replace a table that differs.

/// Table in this folder, for all architectures of a release.
const CHECKED_IN: &[Library] = include!("library/table.rs");

/// Table of the compiler that built the kernels, for the architectures of the build.
#[cfg(kernels)]
const BUILT: &[Library] = include!(concat!(env!("OUT_DIR"), "/scratch_sizes.rs"));
#[cfg(not(kernels))]
const BUILT: &[Library] = &[];

/// Architecture of a plan without a GPU.
const PLANNED: u32 = 90;

/// Numbers of values at which a GPU is queried.
pub const SAMPLE_SIZES: [u64; 8] =
    [1, 1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26];

/// Bytes at each of [`SAMPLE_SIZES`].
pub type Answers = [u64; SAMPLE_SIZES.len()];

/// Step function up to `until` values: `base + rise * ceil(n / step)` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stairs {
    until: u64,
    base: u64,
    step: u64,
    rise: u64,
    /// True if the result of a sort is in its second buffer.
    in_second: bool,
}

impl Stairs {
    fn at(&self, n: u64) -> u64 {
        self.base + self.rise * n.div_ceil(self.step)
    }
}

const fn stairs(until: u64, base: u64, step: u64, rise: u64, in_second: bool) -> Stairs {
    Stairs { until, base, step, rise, in_second }
}

/// Returns the step function for `n` values. Beyond the last one, the last one applies.
fn stairs_of(all: &'static [Stairs], n: u64) -> Option<&'static Stairs> {
    all.iter().find(|stairs| n <= stairs.until).or(all.last())
}

/// Scratch as a function of the number of values.
#[derive(Clone, Copy, Debug)]
pub struct Curve {
    stairs: &'static [Stairs],
    answers: Option<Answers>,
}

impl Curve {
    /// Returns the bytes of scratch for `n` values; 0 for no values.
    pub fn bytes(&self, n: u64) -> u64 {
        match &self.answers {
            _ if n == 0 => 0,
            Some(answers) => between(answers, n),
            None => stairs_of(self.stairs, n).map_or(0, |stairs| stairs.at(n)),
        }
    }
}

/// Scratch of a sort of keys with a value of 32 bits each.
#[derive(Clone, Copy, Debug)]
pub struct Sort {
    /// Step functions by the largest number of key bits.
    by_bits: &'static [(u32, &'static [Stairs])],
    answers: Option<Answers>,
}

impl Sort {
    /// Returns the bytes of scratch for `n` pairs with `bits` significant bits in the keys; 0 for no pairs.
    pub fn bytes(&self, n: u64, bits: u32) -> u64 {
        match &self.answers {
            _ if n == 0 => 0,
            // The answers are for all bits; fewer bits need no more.
            Some(answers) => between(answers, n),
            None => self.stairs(n, bits).map_or(0, |stairs| stairs.at(n)),
        }
    }

    /// Returns true if the result is in the second buffer.
    pub fn ends_in_second(&self, n: u64, bits: u32) -> bool {
        n > 0 && self.stairs(n, bits).is_some_and(|stairs| stairs.in_second)
    }

    fn stairs(&self, n: u64, bits: u32) -> Option<&'static Stairs> {
        let row = self.by_bits.iter().find(|(most, _)| bits <= *most).or(self.by_bits.last())?;
        stairs_of(row.1, n)
    }
}

/// Interpolates a GPU's answers linearly.
fn between(answers: &Answers, n: u64) -> u64 {
    let last = SAMPLE_SIZES.len() - 1;
    let right = SAMPLE_SIZES.iter().position(|&requested| n <= requested).unwrap_or(last);
    if SAMPLE_SIZES[right] == n {
        return answers[right];
    }
    let left = right.saturating_sub(1);
    let (run, rise) =
        (SAMPLE_SIZES[right] - SAMPLE_SIZES[left], answers[right].saturating_sub(answers[left]));
    let product = u128::from(n.saturating_sub(SAMPLE_SIZES[left])) * u128::from(rise);
    let more = product.div_ceil(u128::from(run.max(1)));
    answers[left].saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
}

/// A call of CUB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CubCall {
    /// Sort by all of 16 bits.
    Sort16,
    /// Sort by all of 32 bits.
    Sort32,
    /// Sum of values of 32 bits.
    Sum32,
    /// Sum of values of 64 bits.
    Sum64,
}

/// Scratch of a GPU that differs from the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The call.
    pub call: CubCall,
    /// Number of values.
    pub n: u64,
    /// Bytes of the table.
    pub expected: u64,
    /// Bytes that CUB needs.
    pub found: u64,
}

/// Scratch of CUB's calls on GPUs of one architecture.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    arch: u32,
    /// Sorts of keys of 16 bits.
    pub sort16: Sort,
    /// Sorts of keys of 32 bits.
    pub sort32: Sort,
    /// Sums of values of 32 bits.
    pub sum32: Curve,
    /// Sums of values of 64 bits.
    pub sum64: Curve,
}

/// Creates a row of the table: architecture, sorts of 16-bit and 32-bit keys, sums of 32 and 64 bits.
const fn library(
    arch: u32,
    [sort16, sort32]: [&'static [(u32, &'static [Stairs])]; 2],
    [sum32, sum64]: [&'static [Stairs]; 2],
) -> Library {
    Library {
        arch,
        sort16: Sort { by_bits: sort16, answers: None },
        sort32: Sort { by_bits: sort32, answers: None },
        sum32: Curve { stairs: sum32, answers: None },
        sum64: Curve { stairs: sum64, answers: None },
    }
}

impl Default for Library {
    fn default() -> Self {
        Self::of(PLANNED)
    }
}

impl Library {
    /// Returns the sizes for GPUs of this architecture (10 major + minor), else for the nearest lower one.
    pub fn of(arch: u32) -> Self {
        let exact = |table: &[Self]| table.iter().find(|row| row.arch == arch).copied();
        let below = || CHECKED_IN.iter().rev().find(|row| row.arch < arch).copied();
        exact(BUILT).or_else(|| exact(CHECKED_IN)).or_else(below).unwrap_or(CHECKED_IN[0])
    }

    /// Returns the bytes of scratch of a call for `n` values.
    fn bytes(&self, call: CubCall, n: u64) -> u64 {
        match call {
            CubCall::Sort16 => self.sort16.bytes(n, u16::BITS),
            CubCall::Sort32 => self.sort32.bytes(n, u32::BITS),
            CubCall::Sum32 => self.sum32.bytes(n),
            CubCall::Sum64 => self.sum64.bytes(n),
        }
    }

    /// Adopts the answers of `ask` for each call that differs from the table. Returns the largest excess over the
    /// table.
    pub fn correct<E>(
        &mut self,
        mut ask: impl FnMut(CubCall, u64) -> Result<u64, E>,
    ) -> Result<Option<Difference>, E> {
        let mut largest: Option<Difference> = None;
        for call in [CubCall::Sort16, CubCall::Sort32, CubCall::Sum32, CubCall::Sum64] {
            let mut answers = Answers::default();
            let mut differs = false;
            for (answer, n) in answers.iter_mut().zip(SAMPLE_SIZES) {
                let (expected, found) = (self.bytes(call, n), ask(call, n)?);
                *answer = found;
                differs |= found != expected;
                let more = |difference: &Difference| difference.found - difference.expected;
                let this = Difference { call, n, expected, found };
                if found > expected && largest.as_ref().is_none_or(|most| more(most) < more(&this))
                {
                    largest = Some(this);
                }
            }
            if differs {
                let place = match call {
                    CubCall::Sort16 => &mut self.sort16.answers,
                    CubCall::Sort32 => &mut self.sort32.answers,
                    CubCall::Sum32 => &mut self.sum32.answers,
                    CubCall::Sum64 => &mut self.sum64.answers,
                };
                *place = Some(answers);
            }
        }
        Ok(largest)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_sort_keeps_a_count_of_each_digit_for_every_tile() {
        let library = Library::of(90);
        assert_eq!(library.sort32.bytes(4864, 32), 1);
        // Digits of 4 passes, counters of 1 tile, global counters, and the alignment of the first part.
        assert_eq!(library.sort32.bytes(4865, 32), 4096 + 1024 + 256 + 255);
        assert_eq!(library.sort16.bytes(7_500_000, 13), 2048 + 862 * 1024 + 256 + 255);
        // Inputs above 268 million are split into portions with separate digits.
        let portions = library.sort32.bytes(300_000_000, 32);
        assert_eq!(portions, 2 * 4096 + 30_393 * 1024 + 256 + 255);
    }

    #[test]
    fn a_sum_keeps_a_word_for_every_tile() {
        let library = Library::of(90);
        // 1000 tiles and 32 before the first, each part aligned, and the total once more.
        assert_eq!(library.sum32.bytes(3072 * 1000), (1032 * 8 + 192) + 256 + 255);
        assert_eq!(library.sum64.bytes(2688 * 1000), (1032 * 16 + 128) + 256 + 255);
        assert_eq!(library.sum32.bytes(0), 0);
    }

    #[test]
    fn each_pass_of_a_sort_changes_buffers() {
        let sort = Library::of(90).sort32;
        for (n, bits, second) in [
            (0, 32, false),
            (100, 32, true),
            (10_000, 32, false),
            (10_000, 13, false),
            (10_000, 17, true),
        ] {
            assert_eq!(sort.ends_in_second(n, bits), second, "{n} by {bits} bits");
        }
    }

    #[test]
    fn every_architecture_has_a_row() {
        assert!(CHECKED_IN.is_sorted_by(|a, b| a.arch < b.arch));
        for arch in [75, 80, 86, 89, 90, 100, 120] {
            assert_eq!(Library::of(arch).arch, arch);
        }
        assert_eq!(Library::of(87).arch, 86);
        assert_eq!(Library::of(70).arch, 75);
        for row in CHECKED_IN.iter().chain(BUILT) {
            let tables = [row.sum32.stairs, row.sum64.stairs].into_iter();
            let sorts = row.sort16.by_bits.iter().chain(row.sort32.by_bits);
            for stairs in tables.chain(sorts.map(|(_, stairs)| *stairs)) {
                assert!(stairs.is_sorted_by(|a, b| a.until < b.until), "{stairs:?}");
                assert_eq!(stairs.last().map(|last| last.until), Some(u32::MAX.into()));
            }
        }
    }

    #[test]
    fn the_answers_of_a_gpu_replace_a_table_that_differs() {
        let table = Library::of(90);
        let mut same = table;
        let agree = |call, n| Ok::<_, Infallible>(table.bytes(call, n));
        assert_eq!(same.correct(agree), Ok(None));
        assert!(same.sort32.answers.is_none());

        let mut other = table;
        let more = |call, n| {
            let bytes = table.bytes(call, n);
            Ok::<_, Infallible>(if call == CubCall::Sum64 { bytes + n / 8 } else { bytes })
        };
        let n = 1 << 26;
        let expected = table.sum64.bytes(n);
        let difference = Difference { call: CubCall::Sum64, n, expected, found: expected + n / 8 };
        assert_eq!(other.correct(more), Ok(Some(difference)));
        assert_eq!(other.sum32.bytes(12_345), table.sum32.bytes(12_345));
        for n in [1 << 20, 3 << 19, 5 << 21, 1 << 27] {
            let (found, expected) = (other.sum64.bytes(n), table.sum64.bytes(n) + n / 8);
            assert!(found.abs_diff(expected) < 1024, "{found} for {expected}, {n} values");
        }
    }
}
