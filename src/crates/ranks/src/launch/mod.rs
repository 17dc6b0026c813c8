//! Which rank this process is, by the environment that its launcher gave it.

mod error;
mod launchers;
mod place;
#[cfg(test)]
mod tests;

pub use error::LaunchError;
pub use place::{Launch, Meeting};

pub use crate::token::Token;

use launchers::{Variables, Who, open_mpi, pmi, slurm, supervisor, torchrun};

/// Reads the environment: which rank of how many, and where they meet. None: this process works
/// alone.
///
/// The first of these that is there counts:
///
/// | launcher | variables |
/// |---|---|
/// | our supervisor | `SPLAT_RANK`, `SPLAT_WORLD`, `SPLAT_COORDINATOR`, `SPLAT_TOKEN` |
/// | by hand | `SPLAT_RANK`, `SPLAT_WORLD`, `SPLAT_RENDEZVOUS` |
/// | torchrun | `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` |
/// | Open MPI | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` |
/// | SLURM's `srun` | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS`, `SLURM_STEP_NODELIST` |
/// | PMI (MPICH, Intel MPI) | `PMI_RANK`, `PMI_SIZE` |
///
/// Open MPI comes before SLURM: its daemons are tasks of SLURM, whose variables its ranks inherit.
/// `SPLAT_RENDEZVOUS=HOST:PORT` names the place for all launchers but the supervisor, `SPLAT_TOKEN`
/// (32 hexadecimal digits) the secret. The ranks of this host are counted by `SPLAT_LOCAL_WORLD`,
/// `LOCAL_WORLD_SIZE`, `OMPI_COMM_WORLD_LOCAL_SIZE`, `SLURM_STEP_TASKS_PER_NODE` (where it is the
/// same for all hosts, else `SLURM_NTASKS_PER_NODE`) or `MPI_LOCALNRANKS`, each with its launcher's
/// other variables. A rank's number among them is in `SPLAT_LOCAL_RANK`, `LOCAL_RANK`, `OMPI_COMM_WORLD_LOCAL_RANK`,
/// `SLURM_LOCALID` or `MPI_LOCALRANKID`.
///
/// An error where a variable is broken or missing beside those that belong to it.
pub fn detect(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Launch>, LaunchError> {
    let variables = Variables { env, parent: parent_id() };
    for launcher in [supervisor, torchrun, open_mpi, slurm, pmi] {
        match launcher(&variables)? {
            Who::Unknown => {}
            Who::Alone => return Ok(None),
            Who::Rank(launch) => return Ok(Some(launch)),
        }
    }
    Ok(None)
}

fn parent_id() -> u32 {
    #[cfg(unix)]
    return std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    return 0;
}
