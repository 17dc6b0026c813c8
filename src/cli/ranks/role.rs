//! Which of a run's processes this one is.

use splat_ranks::launch::Launch;

use super::super::exit::UsageError;
use super::super::train_args::TrainArgs;
use super::count::RankCount;
use super::launched::launched;

/// What a process does in a run.
#[derive(Debug)]
pub(in crate::cli) enum RankRole {
    /// All of it.
    Alone,
    /// It starts the ranks, so many.
    Supervisor(u32),
    /// It is one of the ranks.
    Rank(Launch),
}

impl RankRole {
    /// What this process is to do, by what was asked for and by the environment.
    pub(in crate::cli) fn of(args: &TrainArgs) -> anyhow::Result<Self> {
        let role = Self::among(args.ranks(), &args.ranks_flag())?;
        if args.clean && !matches!(role, Self::Alone) {
            return Err(UsageError(
                "--clean: the processes of --ranks and --gpus do not clean a model. Leave it out; splat clean -m \
                 MODEL cleans the model afterwards"
                    .to_owned(),
            )
            .into());
        }
        if let (Some(gpus), Self::Supervisor(_) | Self::Alone) = (args.gpus, &role) {
            gpus.check()?;
        }
        if args.ranks().may_be_several() && matches!(role, Self::Alone) {
            tracing::info!(
                "--ranks auto: no launcher has started several processes, so that this one trains alone"
            );
        }
        Ok(role)
    }

    /// `flag` is what was typed.
    fn among(count: RankCount, flag: &str) -> Result<Self, UsageError> {
        // Who asks for one process has it, whatever has started it; who asks for one GPU may not know of the others.
        if !count.may_be_several() && flag.is_empty() {
            return Ok(Self::Alone);
        }
        match (count, launched()?) {
            (RankCount::Auto | RankCount::Count(1), None) => Ok(Self::Alone),
            (RankCount::Count(world), None) => Ok(Self::Supervisor(world)),
            (RankCount::Count(world), Some(launch)) if launch.world != world => {
                Err(UsageError(format!(
                    "{}: the launcher has started {} processes. Give --ranks auto, or start {world}",
                    flag.trim_start(),
                    launch.world
                )))
            }
            (_, Some(launch)) => Ok(Self::Rank(launch)),
        }
    }
}

/// Whether what this process has to say of the command line, rank 0 says: it starts the ranks, or obeys another.
pub(in crate::cli) fn leaves_words_to_rank_0(args: &TrainArgs) -> bool {
    match RankRole::among(args.ranks(), &args.ranks_flag()) {
        Ok(RankRole::Supervisor(_)) => true,
        Ok(RankRole::Rank(launch)) => launch.rank > 0,
        Ok(RankRole::Alone) | Err(_) => false,
    }
}
