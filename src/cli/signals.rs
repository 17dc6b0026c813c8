//! Signals that stop a run or must not end the process.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use anyhow::Context;

use super::exit::Exit;
use crate::telemetry::release_notices;

/// Stop flag of the current run. Empty if no run can stop with a checkpoint.
static RUNNING: Mutex<Weak<AtomicBool>> = Mutex::new(Weak::new());

/// True if a signal has already asked the current run to stop.
static SIGNALLED: AtomicBool = AtomicBool::new(false);

/// Temporary folder that is removed if a signal ends the process.
static TEMP_FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Number of attempts to remove the folder, because another thread may still write into it.
const REMOVALS: usize = 20;

/// Guard that installs the handler once.
static HANDLED: Once = Once::new();

/// Registers a folder to remove if SIGINT, SIGTERM or SIGHUP ends the process.
pub(super) fn remove_on_signals(folder: &Path) {
    *TEMP_FOLDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder.to_owned());
    HANDLED.call_once(|| {
        if let Err(error) = handle() {
            tracing::warn!("signals cannot be handled: {error}");
        }
    });
}

fn remove_temp_folder() {
    let folder_to_remove = TEMP_FOLDER.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(folder) = folder_to_remove else { return };
    for _ in 0..REMOVALS {
        if fs::remove_dir_all(&folder).is_ok() || !folder.exists() {
            break;
        }
    }
}

/// Returns the stop flag that SIGINT, SIGTERM and SIGHUP set. A second signal, or a signal without a living flag,
/// ends the process. All callers share one flag while it lives. An ignored SIGHUP, as with `nohup`, stays ignored.
pub(super) fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = stop_flag();
    let mut result = Ok(());
    HANDLED.call_once(|| result = handle());
    result.context("signals cannot be handled")?;
    Ok(stop)
}

/// Returns the living flag, or a new one.
fn stop_flag() -> Arc<AtomicBool> {
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
    let ignores_hangup = ignore_hangup();
    ctrlc::set_handler(|| {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        // If another process of the run asked first, this is the user's first signal.
        let is_second = SIGNALLED.swap(true, Ordering::Relaxed);
        let was_set = running.map(|stop| stop.swap(true, Ordering::Relaxed));
        if is_second || was_set.is_none() {
            remove_temp_folder();
            release_notices();
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
        log_stop();
    })?;
    if ignores_hangup {
        // The new handler also covers SIGHUP.
        ignore_hangup();
    }
    Ok(())
}

fn log_stop() {
    tracing::info!(
        is_headline = true,
        "stopping after this iteration; once more stops at once, without a checkpoint"
    );
}

/// Asks the current run to stop, as a signal does.
pub(super) fn request_stop() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    if running.is_some_and(|stop| !stop.swap(true, Ordering::Relaxed)) {
        log_stop();
    }
}

/// Ignores SIGINT from now on, because another process of the terminal passes it on. Call it after
/// [`stop_on_signals`], which handles all signals.
#[cfg(unix)]
pub(super) fn leave_interrupts_to_others() {
    // SAFETY: both numbers come from the system, and no callback is passed.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}

#[cfg(not(unix))]
pub(super) fn leave_interrupts_to_others() {}

/// Turns an exceeded file size limit (`ulimit -f`) into a failed write, because SIGXFSZ would end the process without
/// a checkpoint.
#[cfg(unix)]
pub(super) fn ignore_file_size_signal() {
    // SAFETY: both numbers come from the system, and no callback is passed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

#[cfg(not(unix))]
pub(super) fn ignore_file_size_signal() {}

/// Ignores SIGHUP from now on. Returns true if it was ignored before.
#[cfg(unix)]
fn ignore_hangup() -> bool {
    // SAFETY: both numbers come from the system, and no callback is passed.
    let before = unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    before == libc::SIG_IGN
}

#[cfg(not(unix))]
fn ignore_hangup() -> bool {
    false
}
