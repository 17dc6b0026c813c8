//! The process that starts the ranks, waits for them and says how the run ended.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use splat_ranks::supervise::{Supervised, Verdict};

use super::super::folder::default_path;
use super::super::output::shell_word;
use super::super::signals::stop_on_signals;
use super::super::train_args::TrainArgs;
use super::errors::{DeadRank, EndedRank};
use super::threads::{THREADS, threads_each};

/// How long the other ranks have to end when one is gone.
const GRACE: Duration = Duration::from_secs(5);

/// Runs this program's command line in so many ranks.
pub(in crate::cli) fn supervise(world: u32, args: &TrainArgs) -> anyhow::Result<()> {
    let stop = stop_on_signals()?;
    let command = resume_command(args);
    let program = std::env::current_exe().context("this program's own file is not known")?;
    let ranks = Supervised {
        program,
        args: std::env::args_os().skip(1).collect(),
        world,
        grace: GRACE,
        env: threads_of_rank(world),
    };
    match splat_ranks::supervise::supervise(&ranks, &stop)? {
        Verdict::Done => Ok(()),
        Verdict::Ended { code } => Err(EndedRank(code).into()),
        Verdict::Died(departure) => Err(DeadRank { departure, command }.into()),
    }
}

/// Ranks of one host share its threads, unless the user has said how many each takes.
fn threads_of_rank(world: u32) -> Vec<(OsString, OsString)> {
    if std::env::var_os(THREADS).is_some() {
        return Vec::new();
    }
    vec![(THREADS.into(), threads_each(world).to_string().into())]
}

/// The command that continues the run, which is about to make its folder.
pub(super) fn resume_command(args: &TrainArgs) -> String {
    let named = args.options.output.model_path.clone();
    let folder = named.unwrap_or_else(|| match args.demo {
        true => Path::new("output").join("demo"),
        // Files may name another.
        false if args.config.is_some() || args.start_checkpoint.is_some() => "MODEL".into(),
        false => default_path(&args.options, args.resume.is_some()),
    });
    format!("splat train --resume -m {}{}", shell_word(&folder), args.ranks_flag())
}
