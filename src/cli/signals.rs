//! Signals that ask a run to stop, and one that must not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use anyhow::Context;

use super::exit::Exit;
use crate::telemetry::release_notices;

/// What the run at work looks at; none while no run could stop with a checkpoint.
static RUNNING: Mutex<Weak<AtomicBool>> = Mutex::new(Weak::new());

/// True if a signal has asked the run at work to stop.
static SIGNALLED: AtomicBool = AtomicBool::new(false);

/// A folder that goes when a signal ends the process.
static LITTER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Number of attempts to remove the folder, into which another thread may write.
const REMOVALS: usize = 20;

/// Installs the handler once.
static HANDLED: Once = Once::new();

/// Registers a folder that is removed when SIGINT, SIGTERM or SIGHUP end the process.
pub(super) fn remove_on_signals(folder: &Path) {
    *LITTER.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder.to_owned());
    HANDLED.call_once(|| {
        if let Err(error) = handle() {
            tracing::warn!("signals cannot be handled: {error}");
        }
    });
}

fn remove_litter() {
    let litter = LITTER.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(folder) = litter else { return };
    for _ in 0..REMOVALS {
        if fs::remove_dir_all(&folder).is_ok() || !folder.exists() {
            break;
        }
    }
}

/// SIGINT, SIGTERM and SIGHUP ask for the end of the run that holds the returned flag; the second ends
/// the process, as the first does where no run holds its flag any more. Who asks for the flag while it is held
/// gets the same. A SIGHUP that is ignored when the program starts, as `nohup` has it, stays ignored.
pub(super) fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = flag();
    let mut result = Ok(());
    HANDLED.call_once(|| result = handle());
    result.context("signals cannot be handled")?;
    Ok(stop)
}

/// The flag of the run at work, or that of a new one.
fn flag() -> Arc<AtomicBool> {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.upgrade().unwrap_or_else(|| {
        let stop = Arc::default();
        *running = Arc::downgrade(&stop);
        SIGNALLED.store(false, Ordering::Relaxed);
        stop
    })
}

#[expect(clippy::exit, reason = "who asks twice does not want to wait for anything")]
fn handle() -> Result<(), ctrlc::Error> {
    let ignores_hangup = ignore_hangup() == Hangup::Ignored;
    ctrlc::set_handler(|| {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        // Another process of the run may have asked before: that is not the user's second signal.
        let is_second = SIGNALLED.swap(true, Ordering::Relaxed);
        let was_set = running.map(|stop| stop.swap(true, Ordering::Relaxed));
        if is_second || was_set.is_none() {
            remove_litter();
            release_notices();
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
        tell_of_stop();
    })?;
    if ignores_hangup {
        // The handler is now that of SIGHUP, too.
        ignore_hangup();
    }
    Ok(())
}

fn tell_of_stop() {
    tracing::info!(
        "stopping after this iteration, with a checkpoint; once more stops at once, without"
    );
}

/// Asks the run at work to stop, as a signal does.
pub(super) fn ask_to_stop() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    if running.is_some_and(|stop| !stop.swap(true, Ordering::Relaxed)) {
        tell_of_stop();
    }
}

/// Has SIGINT do nothing in this process from now on: another one of the same terminal passes it on. Called after
/// [`stop_on_signals`], which handles all signals.
#[cfg(unix)]
pub(super) fn leave_interrupts_to_others() {
    // SAFETY: both numbers are the system's own, and no function is passed that could be called.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}

#[cfg(not(unix))]
pub(super) fn leave_interrupts_to_others() {}

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
