//! Memory of the host: resident bytes of this process, limits, and the budget for images.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::Bytes;

/// Mount point of the control groups on Linux.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Resident memory of this process and its RAM limit.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    /// Bytes of this process that are in RAM.
    pub resident: Bytes,
    /// RAM of the machine, or the limit of the control group (a container, a job) if that is lower.
    pub total: Bytes,
    /// RAM of the machine.
    pub machine: Bytes,
}

/// Reads `/proc` and the control groups. `None` if the system has no such files.
pub fn host_memory() -> Option<HostMemory> {
    let machine = kib_after("/proc/meminfo", "MemTotal:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let held_to = group_limit(&groups, Path::new(CONTROL_GROUPS)).unwrap_or(machine);
    Some(HostMemory { resident: resident_memory()?, total: machine.min(held_to), machine })
}

/// RAM of the host that is total, available and in use by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostState {
    /// RAM of the machine, or the limit of the control group.
    pub total: Bytes,
    /// Bytes that the system can give without swapping.
    pub available: Bytes,
    /// Bytes of this process in RAM without shared memory. Page-locked memory is not counted: ledgers record it.
    pub own: Bytes,
}

/// Reads the state of the host's memory. `None` if the system has no such files.
pub fn host_state() -> Option<HostState> {
    const STATUS: &str = "/proc/self/status";
    let available = kib_after("/proc/meminfo", "MemAvailable:")?;
    let parts = kib_after(STATUS, "RssAnon:").zip(kib_after(STATUS, "RssFile:"));
    let HostMemory { resident, total, .. } = host_memory()?;
    let own = parts.map_or(resident, |(private, files)| private + files);
    Some(HostState { total, available, own })
}

/// Returns the bytes of this process in RAM; `None` if the system does not report them.
pub fn resident_memory() -> Option<Bytes> {
    kib_after("/proc/self/status", "VmRSS:")
}

/// Returns freed memory, which the allocator keeps for later, to the system.
pub fn release_freed_memory() {
    // SAFETY: glibc has this function on every version that Rust supports; it takes no pointer and locks its heaps.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Makes the allocator return blocks of 1 MiB and more to the system as soon as they are freed. By default it keeps
/// up to 64 MiB, which saves time.
pub fn keep_little_freed_memory() {
    // SAFETY: glibc has this function on every version that Rust supports; it takes numbers only, and both are in the
    // documented range.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20)
    };
}

/// Returns the peak of this process's bytes in RAM; `None` if the system does not report it.
pub fn peak_resident_memory() -> Option<Bytes> {
    kib_after("/proc/self/status", "VmHWM:")
}

/// Returns the bytes that decoded images may take: at most `cache`, and at most what the rest of the process leaves
/// of `limit`. `images` is the number of `resident` bytes that are images.
pub fn images_budget(cache: Bytes, limit: Bytes, resident: Bytes, images: Bytes) -> Bytes {
    let otherwise = resident.0.saturating_sub(images.0);
    Bytes(limit.0.saturating_sub(otherwise)).min(cache)
}

/// Returns the number after `key` in a file with lines `key:   123 kB`.
fn kib_after(path: &str, key: &str) -> Option<Bytes> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib * 1024))
}

/// Returns the lowest memory limit of a process's control groups and their ancestors.
///
/// `memberships` is the text of `/proc/PID/cgroup`, `root` the mount point of the groups. The named path may be
/// missing inside a container; its ancestors exist.
fn group_limit(memberships: &str, root: &Path) -> Option<Bytes> {
    let limits = memberships.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, file) = if number == "0" && controllers.is_empty() {
            (root.to_owned(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            return None;
        };
        // Parent components (`/../x`) lead outside the mounted groups and are dropped.
        let names = Path::new(path).components().filter(|c| matches!(c, Component::Normal(_)));
        let folder: PathBuf = root.components().chain(names).collect();
        let folders = folder.ancestors().take_while(|folder| folder.starts_with(&root));
        // A file that says `max` sets no limit.
        let limit = |folder: &Path| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
        folders.filter_map(limit).map(Bytes).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Creates control groups with these files.
    fn groups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        root
    }

    #[test]
    fn the_lowest_limit_of_a_group_and_its_ancestors_counts() {
        let files = [
            ("memory.max", "max"),
            ("a/memory.max", "4096"),
            ("a/b/memory.max", "8192"),
            ("a/b/c/memory.max", "max"),
            ("other/memory.max", "1"),
        ];
        let root = groups(&files);
        assert_eq!(group_limit("0::/a/b/c\n", root.path()), Some(Bytes(4096)));
        assert_eq!(group_limit("0::/\n", root.path()), None);
        assert_eq!(group_limit("", root.path()), None);
        assert_eq!(group_limit("garbage\n0::\n", root.path()), None);
    }

    #[test]
    fn both_versions_of_control_groups_are_read() {
        let root = groups(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712"),
            ("memory/job/memory.limit_in_bytes", "5000"),
            ("cpu/job/memory.limit_in_bytes", "1"),
        ]);
        let memberships = "12:cpu,cpuacct:/job\n4:hugetlb,memory:/job\n0::/job\n";
        assert_eq!(group_limit(memberships, root.path()), Some(Bytes(5000)));
        let elsewhere = "4:memory:/docker/0123\n";
        assert_eq!(group_limit(elsewhere, root.path()), Some(Bytes(9_223_372_036_854_771_712)));
    }

    #[test]
    fn a_container_with_an_outside_path_gets_the_limit_of_the_root() {
        let root = groups(&[("memory.max", "7000")]);
        for path in ["/docker/0123", "/../sibling", "/"] {
            assert_eq!(group_limit(&format!("0::{path}"), root.path()), Some(Bytes(7000)));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_uses_less_than_the_available_memory() {
        let host = host_memory().unwrap();
        assert!(host.resident > Bytes(0) && host.resident < host.total, "{host:?}");
        assert!(host.total <= kib_after("/proc/meminfo", "MemTotal:").unwrap());
        let HostState { total, available, own } = host_state().unwrap();
        assert_eq!(total, host.total);
        assert!(own > Bytes(0) && own <= peak_resident_memory().unwrap());
        assert!(available > Bytes(0) && available <= host.machine);
    }

    proptest! {
        #[test]
        fn images_take_the_rest_of_the_limit(
            cache in 0_u64..1 << 40,
            limit in 0_u64..1 << 40,
            resident in 0_u64..1 << 41,
            images in 0_u64..1 << 40,
            less in 0_u64..1 << 40,
        ) {
            let otherwise = resident.saturating_sub(images);
            let budget = |cache: u64, limit: u64, resident: u64| {
                images_budget(Bytes(cache), Bytes(limit), Bytes(resident), Bytes(images)).0
            };
            let now = budget(cache, limit, resident);
            prop_assert!(now <= cache);
            // The budget respects the limit, unless memory that is no image exceeds the limit alone.
            prop_assert!(now + otherwise <= limit || now == 0);
            // The budget reaches one of both bounds.
            prop_assert!(now == cache || now == limit.saturating_sub(otherwise));
            // Images that are within both bounds may stay.
            if images <= cache && otherwise + images <= limit {
                prop_assert!(now >= images);
            }
            // Less memory never means more images.
            prop_assert!(budget(cache.saturating_sub(less), limit, resident) <= now);
            prop_assert!(budget(cache, limit.saturating_sub(less), resident) <= now);
            prop_assert!(budget(cache, limit, resident + less) <= now);
        }
    }
}
