//! Signals that ask a run to stop, and one that must not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use super::exit::Exit;

/// SIGINT, SIGTERM and SIGHUP ask for the end of the run; the second ends the process. A SIGHUP that
/// is ignored when the program starts, as `nohup` has it, stays ignored.
#[expect(clippy::exit, reason = "who asks twice does not want to wait for anything")]
pub(super) fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let ignores_hangup = ignore_hangup() == Hangup::Ignored;
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
        tracing::info!(
            "stopping after this iteration, with a checkpoint; once more stops at once, without"
        );
    })
    .context("signals cannot be handled")?;
    if ignores_hangup {
        // The handler is now that of SIGHUP, too.
        ignore_hangup();
    }
    Ok(stop)
}

/// Has a file that exceeds the process's limit (`ulimit -f`) be a failed write, which is reported and
/// costs no checkpoint: SIGXFSZ would end the process without a word.
#[cfg(unix)]
pub(super) fn ignore_file_size_signal() {
    // SAFETY: both numbers are the system's own, and no function is passed that could be called.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

#[cfg(not(unix))]
pub(super) fn ignore_file_size_signal() {}

/// What a SIGHUP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hangup {
    /// Nothing.
    Ignored,
    /// It ends the process, or calls a function.
    Noticed,
}

/// Has SIGHUP do nothing from now on; returns what it did before.
#[cfg(unix)]
fn ignore_hangup() -> Hangup {
    // SAFETY: both numbers are the system's own, and no function is passed that could be called.
    let before = unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    if before == libc::SIG_IGN { Hangup::Ignored } else { Hangup::Noticed }
}

#[cfg(not(unix))]
fn ignore_hangup() -> Hangup {
    Hangup::Noticed
}
