//! The processes of the ranks.

use std::process::{Child, Command, ExitStatus, Stdio};

use crate::departure::Cause;
use crate::token::Token;

use super::error::SuperviseError;
use super::lines::Lines;
use super::supervised::Supervised;

/// A rank's process that has not ended.
struct Running {
    rank: u32,
    process: Child,
}

/// A rank's process that has ended.
#[derive(Clone, Debug)]
pub(super) struct Exit {
    pub(super) rank: u32,
    pub(super) pid: u32,
    pub(super) cause: Cause,
}

/// The ranks' processes. Dropped, it kills those that run and waits for them.
pub(super) struct Children(Vec<Running>);

impl Children {
    /// Starts all ranks; the coordinator listens at this address. Also the lines of ranks 1 and up.
    ///
    /// They die with the thread that called this.
    pub(super) fn start(
        ranks: &Supervised,
        coordinator: &str,
        token: &Token,
    ) -> Result<(Self, Vec<Lines>), SuperviseError> {
        let mut children = Self(Vec::new());
        let mut lines = Vec::new();
        for rank in 0..ranks.world {
            let mut command = Command::new(&ranks.program);
            command
                .args(&ranks.args)
                .envs(ranks.env.iter().map(|(name, value)| (name, value)))
                .env("SPLAT_RANK", rank.to_string())
                .env("SPLAT_WORLD", ranks.world.to_string())
                .env("SPLAT_LOCAL_WORLD", ranks.world.to_string())
                .env("SPLAT_COORDINATOR", coordinator)
                .env("SPLAT_TOKEN", token.to_hex());
            if rank > 0 {
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            }
            die_with_parent(&mut command);
            let mut process = command.spawn().map_err(|source| SuperviseError::Start {
                program: ranks.program.clone(),
                rank,
                source,
            })?;
            let errors = process.stderr.take();
            // From here on it is killed if anything fails.
            children.0.push(Running { rank, process });
            if let Some(errors) = errors {
                let of_rank = Lines::of(rank, errors);
                let what = "starting a thread";
                lines.push(of_rank.map_err(|source| SuperviseError::System { what, source })?);
            }
        }
        Ok((children, lines))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The processes that have ended since the last call, by rank.
    pub(super) fn reap(&mut self) -> Vec<Exit> {
        let mut ended = Vec::new();
        self.0.retain_mut(|running| {
            // An error says that it is no child of ours any more: nothing more will be known of it.
            let cause = match running.process.try_wait() {
                Ok(None) => return true,
                Ok(Some(status)) => cause_of(status),
                Err(_) => Cause::Closed,
            };
            ended.push(Exit { rank: running.rank, pid: running.process.id(), cause });
            false
        });
        ended
    }

    pub(super) fn kill(&mut self, rank: u32) {
        for running in self.0.iter_mut().filter(|running| running.rank == rank) {
            // It fails where it has ended by itself.
            drop(running.process.kill());
        }
    }

    pub(super) fn kill_all(&mut self) {
        for running in &mut self.0 {
            drop(running.process.kill());
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill_all();
        for running in &mut self.0 {
            drop(running.process.wait());
        }
    }
}

fn cause_of(status: ExitStatus) -> Cause {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Cause::Killed { signal };
    }
    status.code().map_or(Cause::Closed, |code| Cause::Exited { code })
}

/// The child ignores Ctrl-C, which a terminal sends to all processes: the supervisor tells it to
/// stop. On Linux it is killed when the thread that starts it ends.
#[cfg(unix)]
fn die_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt;

    #[cfg(target_os = "linux")]
    let parent = std::process::id();
    let prepare = move || {
        #[cfg(target_os = "linux")]
        die_with(parent)?;
        // SAFETY: a system call without memory; the handler is one of the system's own.
        let found = unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        if found == libc::SIG_ERR { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec it makes system calls only, and takes neither memory nor locks.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(target_os = "linux")]
fn die_with(parent: u32) -> std::io::Result<()> {
    // SAFETY: a system call without memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // The parent may have ended before the call above.
    if std::os::unix::process::parent_id() != parent {
        return Err(std::io::ErrorKind::NotConnected.into());
    }
    Ok(())
}

#[cfg(not(unix))]
fn die_with_parent(_: &mut Command) {}
