//! Threads of ranks that share a host.

use splat_ranks::launch::Launch;

/// Says how many threads a process computes with.
pub(super) const THREADS: &str = "RAYON_NUM_THREADS";

/// Threads for each of so many ranks on this host.
pub(super) fn threads_each(ranks: u32) -> usize {
    let own = std::thread::available_parallelism().map_or(1, usize::from);
    // A launcher that binds each rank to processors of its own has shared them already.
    let is_bound = online_processors().is_some_and(|all| own < all);
    if is_bound { own } else { (own / ranks.max(1) as usize).max(1) }
}

/// Processors of this host.
#[cfg(unix)]
fn online_processors() -> Option<usize> {
    // SAFETY: the number is the system's own; nothing of this process is touched.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).ok()
}

#[cfg(not(unix))]
fn online_processors() -> Option<usize> {
    None
}

/// Has this process take its share of the host's threads, where its launcher says how many ranks there are on the
/// host and the user has not said how many threads each takes. Comes before anything is computed.
pub(super) fn share_threads(launch: &Launch) {
    let Some(ranks) = launch.local_world.filter(|&ranks| ranks > 1) else { return };
    if std::env::var_os(THREADS).is_some() {
        return;
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads_each(ranks));
    if let Err(error) = pool.build_global() {
        tracing::debug!("ranks do not share the threads of this host: {error}");
    }
}
