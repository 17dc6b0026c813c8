//! Signals that ask a run to stop, and one that must not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use anyhow::Context;

use super::exit::Exit;

/// What the run at work looks at; none while no run could stop with a checkpoint.
static RUNNING: Mutex<Weak<AtomicBool>> = Mutex::new(Weak::new());

/// SIGINT, SIGTERM and SIGHUP ask for the end of the run that holds the returned flag; the second ends
/// the process, as the first does where no run holds its flag any more. A SIGHUP that is ignored when the
/// program starts, as `nohup` has it, stays ignored.
pub(super) fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    static HANDLED: Once = Once::new();
    let stop = Arc::new(AtomicBool::new(false));
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&stop);
    let mut result = Ok(());
    HANDLED.call_once(|| result = handle());
    result.context("signals cannot be handled")?;
    Ok(stop)
}

#[expect(clippy::exit, reason = "who asks twice does not want to wait for anything")]
fn handle() -> Result<(), ctrlc::Error> {
    let ignores_hangup = ignore_hangup() == Hangup::Ignored;
    ctrlc::set_handler(|| {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if running.is_none_or(|stop| stop.swap(true, Ordering::Relaxed)) {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
        tracing::info!(
            "stopping after this iteration, with a checkpoint; once more stops at once, without"
        );
    })?;
    if ignores_hangup {
        // The handler is now that of SIGHUP, too.
        ignore_hangup();
    }
    Ok(())
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
