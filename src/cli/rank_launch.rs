//! Number of processes and GPUs of a run, and how this one was started.

use std::str::FromStr;

use splat_ranks::launch::{Launch, detect};

use super::exit::UsageError;
use crate::backend::{DeviceError, gpu};

/// Number of processes that train a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankCount {
    /// As many as the launcher has started.
    Auto,
    /// This number.
    Count(u32),
}

/// Most ranks: beyond, a step of a small batch is all exchange.
const MOST: u32 = 64;

/// Parses a number of ranks. `word`: the other allowed value.
fn count(text: &str, word: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| (1..=MOST).contains(count));
    count.ok_or_else(|| format!("a number from 1 to {MOST}, or {word}"))
}

impl FromStr for RankCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self::Auto) } else { count(text, "auto").map(Self::Count) }
    }
}

impl RankCount {
    /// The flag that asks for it, with a space before it; nothing for one process.
    pub(super) fn as_flag(self) -> String {
        match self {
            Self::Count(1) => String::new(),
            Self::Count(count) => format!(" --ranks {count}"),
            Self::Auto => " --ranks auto".to_owned(),
        }
    }

    /// True if more than this process may train.
    pub(super) fn may_be_several(self) -> bool {
        self != Self::Count(1)
    }
}

// Number of GPUs, and the GPU of a rank.

/// Number of GPUs that train a model, with one rank on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GpuCount {
    /// All that the driver shows.
    All,
    /// This number.
    Count(u32),
}

impl FromStr for GpuCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" { Ok(Self::All) } else { count(text, "all").map(Self::Count) }
    }
}

impl GpuCount {
    /// The ranks that this asks for: all of those that a launcher has started are one for each GPU, however many it
    /// shows to each.
    pub(super) fn ranks(self, is_launched: bool) -> RankCount {
        match self {
            Self::All if is_launched => RankCount::Auto,
            Self::All => RankCount::Count(gpu::count().max(1)),
            Self::Count(count) => RankCount::Count(count),
        }
    }

    /// The flag that asks for it, with a space before it.
    pub(super) fn as_flag(self) -> String {
        match self {
            Self::All => " --gpus all".to_owned(),
            Self::Count(count) => format!(" --gpus {count}"),
        }
    }

    /// Fails where this machine has fewer.
    pub(super) fn check(self) -> Result<(), DeviceError> {
        let (shown, flag) = (gpu::count(), self.as_flag());
        let wanted = if let Self::Count(count) = self { count } else { 1 };
        let problem = if gpu::kernels().is_none() {
            "this program was built without CUDA kernels; splat doctor says what is missing"
                .to_owned()
        } else if shown == 0 {
            "the driver shows no GPU; splat doctor says why. --device cpu trains on the processor, far slower"
                .to_owned()
        } else if wanted > shown {
            format!(
                "the driver shows {shown} of this machine's GPUs (CUDA_VISIBLE_DEVICES decides which; see splat \
                 doctor). Give --gpus all, or a smaller number"
            )
        } else {
            return Ok(());
        };
        Err(DeviceError::Unavailable(format!("{}: {problem}", flag.trim_start())))
    }
}

/// The number of a rank's GPU among those that the driver shows. A launcher may show each rank its own alone.
pub(super) fn gpu_of(launch: &Launch) -> u32 {
    gpu_among(gpu::count(), launch.local_rank, launch.rank)
}

fn gpu_among(shown: u32, local_rank: Option<u32>, rank: u32) -> u32 {
    match (shown, local_rank) {
        (0 | 1, _) => 0,
        (_, Some(local_rank)) => local_rank,
        (shown, None) => rank % shown,
    }
}

// Launcher of this process.

/// True if a launcher has started several processes, of which this is one.
pub(super) fn is_launched() -> bool {
    launched().is_ok_and(|launch| launch.is_some())
}

/// This process's place among those that a launcher has started.
pub(super) fn launched() -> Result<Option<Launch>, UsageError> {
    detect(&|name| std::env::var(name).ok()).map_err(|error| UsageError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_a_number_or_the_launchers() {
        assert_eq!("auto".parse(), Ok(RankCount::Auto));
        assert_eq!("3".parse(), Ok(RankCount::Count(3)));
        let flags = [RankCount::Count(1), RankCount::Count(3), RankCount::Auto];
        assert_eq!(flags.map(RankCount::as_flag), ["", " --ranks 3", " --ranks auto"]);
        assert!(!RankCount::Count(1).may_be_several() && RankCount::Auto.may_be_several());
        for wrong in ["0", "65", "-1", "all", ""] {
            assert!(wrong.parse::<RankCount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_count_of_gpus_is_a_number_or_all() {
        assert_eq!("all".parse(), Ok(GpuCount::All));
        assert_eq!("4".parse(), Ok(GpuCount::Count(4)));
        assert_eq!(GpuCount::Count(4).ranks(true), RankCount::Count(4));
        assert_eq!(GpuCount::All.ranks(true), RankCount::Auto);
        assert_eq!(
            [GpuCount::All, GpuCount::Count(2)].map(GpuCount::as_flag),
            [" --gpus all", " --gpus 2"]
        );
        for wrong in ["0", "65", "auto", "-1", ""] {
            assert!(wrong.parse::<GpuCount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rank_has_the_gpu_of_its_number_unless_it_is_shown_one_alone() {
        assert_eq!(gpu_among(4, Some(3), 7), 3);
        assert_eq!(gpu_among(1, Some(3), 7), 0);
        assert_eq!(gpu_among(4, None, 7), 3);
        assert_eq!(gpu_among(0, None, 7), 0);
    }
}
