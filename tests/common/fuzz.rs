//! Inputs with random changes: whatever a reader is given, it returns.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs};

use splat_mesh::random::RandomSequence;

/// Panics of all threads.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Seconds of a run, and its seed.
const SECONDS: &str = "SPLAT_FUZZ_SECONDS";
const SEED: &str = "SPLAT_FUZZ_SEED";

/// Numbers at which readers break.
const NUMBERS: [u64; 9] =
    [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, i64::MAX as u64, u64::MAX];

/// Words in the place of a number of a text.
const WORDS: [&str; 11] = [
    "0",
    "-1",
    "nan",
    "inf",
    "1e999",
    "4294967296",
    "99999999999999999999",
    "null",
    "\"1\"",
    "[]",
    "\u{1f4f7}",
];

/// A run of one target.
pub struct Fuzz {
    random: RandomSequence,
    seed: u64,
    until: Instant,
    rounds: u64,
}

impl Fuzz {
    /// A run of `SPLAT_FUZZ_SECONDS` (default 60) with the seed `SPLAT_FUZZ_SEED` (default 1).
    pub fn of_environment() -> Self {
        let number = |name: &str, usual: u64| {
            env::var(name).map_or(usual, |text| text.parse().expect("a whole number"))
        };
        let seed = number(SEED, 1);
        let until = Instant::now() + Duration::from_secs(number(SECONDS, 60));
        let tell = take_hook();
        set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            tell(panic);
        }));
        Self { random: RandomSequence::of_seed(seed), seed, until, rounds: 0 }
    }

    /// True until the time is over.
    pub fn goes_on(&mut self) -> bool {
        self.rounds += 1;
        let goes_on = Instant::now() < self.until;
        if !goes_on {
            eprintln!("{} inputs of seed {} did no harm", self.rounds - 1, self.seed);
        }
        goes_on
    }

    /// A number below this one.
    pub fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.random.bits() % most.max(1) as u64).unwrap()
    }

    /// A valid input with one to four changes.
    pub fn changed(&mut self, valid: &[u8]) -> Vec<u8> {
        let mut bytes = valid.to_vec();
        for _ in 0..=self.below(4) {
            self.change(&mut bytes);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        // Most of what readers go by stands at the beginning.
        let end = if self.below(2) == 0 { bytes.len().min(256) } else { bytes.len() };
        let at = self.below(end);
        let length = 1 + self.below(16);
        let range = at..(at + length).min(bytes.len());
        match self.below(8) {
            _ if bytes.is_empty() => bytes.push(0),
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = u8::try_from(self.below(256)).unwrap(),
            2 => {
                let number = NUMBERS[self.below(NUMBERS.len())].to_le_bytes();
                let width = [2, 4, 8][self.below(3)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(range)),
            5 => {
                let again = bytes[range].to_vec();
                bytes.splice(at..at, again);
            }
            6 => {
                let [a, b] = [0, 1].map(|_| self.below(bytes.len()));
                bytes.swap(a, b);
            }
            _ => self.replace_number(bytes, at),
        }
    }

    /// Replaces the first number of a text behind a place.
    fn replace_number(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let is_digit = |byte: &u8| byte.is_ascii_digit() || b".-+e".contains(byte);
        let Some(from) = bytes[at..].iter().position(is_digit).map(|found| at + found) else {
            return;
        };
        let length = bytes[from..].iter().take_while(|byte| is_digit(byte)).count();
        bytes.splice(from..from + length, WORDS[self.below(WORDS.len())].bytes());
    }

    /// Runs a reader on an input; if any thread panics, keeps the input and names the seed.
    pub fn survives(&self, name: &str, input: &[u8], read: impl FnOnce()) {
        let before = PANICS.load(Ordering::Relaxed);
        let ended = catch_unwind(AssertUnwindSafe(read));
        if ended.is_err() || PANICS.load(Ordering::Relaxed) > before {
            let kept = env::temp_dir().join(format!("splat-fuzz-{}-{}", self.seed, self.rounds));
            fs::write(&kept, input).unwrap();
            let (seed, kept) = (self.seed, kept.display());
            panic!(
                "{name}: a panic in round {} of {SEED}={seed}; the input is {kept}",
                self.rounds
            );
        }
    }
}
