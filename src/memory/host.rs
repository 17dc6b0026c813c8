//! Memory of the host: what this process holds, may hold, and may use for images.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::Bytes;

/// Where Linux shows control groups.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Resident memory of this process and the RAM that there is for it.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    /// Bytes of this process that are in RAM now.
    pub resident: Bytes,
    /// RAM of the machine, or less where a control group (a container, a job) is held to less.
    pub total: Bytes,
    /// RAM of the machine.
    pub machine: Bytes,
}

/// Reads `/proc` and the control groups; `None` where the system has no such files.
pub fn host_memory() -> Option<HostMemory> {
    let machine = kib_after("/proc/meminfo", "MemTotal:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let held_to = group_limit(&groups, Path::new(CONTROL_GROUPS)).unwrap_or(machine);
    Some(HostMemory { resident: resident_memory()?, total: machine.min(held_to), machine })
}

/// What the host has, and can give, of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostState {
    /// RAM that there is for this process.
    pub total: Bytes,
    /// What the system can give without swapping.
    pub available: Bytes,
    /// Bytes of this process in RAM, without what it shares: page-locked memory counts as shared, or not at
    /// all, and is in the books of who took it.
    pub own: Bytes,
}

/// Reads how the host's memory stands; `None` where the system has no such files.
pub fn host_state() -> Option<HostState> {
    const STATUS: &str = "/proc/self/status";
    let available = kib_after("/proc/meminfo", "MemAvailable:")?;
    let parts = kib_after(STATUS, "RssAnon:").zip(kib_after(STATUS, "RssFile:"));
    let HostMemory { resident, total, .. } = host_memory()?;
    let own = parts.map_or(resident, |(private, files)| private + files);
    Some(HostState { total, available, own })
}

/// Bytes of this process in RAM now; `None` if the system does not report them.
pub fn resident_memory() -> Option<Bytes> {
    kib_after("/proc/self/status", "VmRSS:")
}

/// Gives memory that was freed back to the system, which the allocator otherwise keeps for later.
pub fn release_freed_memory() {
    // SAFETY: glibc has this function on every version that Rust supports; it takes no pointer and locks
    // the heaps that it looks at.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// From now on gives memory of a megabyte and more back to the system as soon as it is freed. The
/// allocator otherwise keeps up to 64 MiB for later, which saves time.
pub fn keep_little_freed_memory() {
    // SAFETY: glibc has this function on every version that Rust supports; it takes numbers only, and
    // these are in the range that it documents.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20)
    };
}

/// The most that this process ever had in RAM; `None` if the system does not report it.
pub fn peak_resident_memory() -> Option<Bytes> {
    kib_after("/proc/self/status", "VmHWM:")
}

/// Bytes that decoded images may take: at most `cache`, and no more than the rest of the process
/// leaves of `limit`. `images` are the bytes of images among those that are `resident`.
pub fn images_budget(cache: Bytes, limit: Bytes, resident: Bytes, images: Bytes) -> Bytes {
    let otherwise = resident.0.saturating_sub(images.0);
    Bytes(limit.0.saturating_sub(otherwise)).min(cache)
}

/// The number after `key` in a `key:   123 kB` file.
fn kib_after(path: &str, key: &str) -> Option<Bytes> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib * 1024))
}

/// The least memory that the control groups of a process, or those above them, are held to.
///
/// `memberships` is the text of its `/proc/PID/cgroup`, `root` where the groups are shown. Inside a
/// container the path that is named need not exist there: what is above it does.
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
        // A path above the root, as `/../x`, lies outside of what is shown.
        let names = Path::new(path).components().filter(|c| matches!(c, Component::Normal(_)));
        let folder: PathBuf = root.components().chain(names).collect();
        let folders = folder.ancestors().take_while(|folder| folder.starts_with(&root));
        folders.filter_map(|folder| limit_in(&folder.join(file))).min()
    });
    limits.min()
}

/// A number of bytes; `None` if the file says `max`.
fn limit_in(file: &Path) -> Option<Bytes> {
    fs::read_to_string(file).ok()?.trim().parse().ok().map(Bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Control groups with these files.
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
    fn the_tightest_group_on_the_way_to_the_root_counts() {
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
    fn a_container_that_names_a_path_outside_is_held_to_what_it_is_shown() {
        let root = groups(&[("memory.max", "7000")]);
        for path in ["/docker/0123", "/../sibling", "/"] {
            assert_eq!(group_limit(&format!("0::{path}"), root.path()), Some(Bytes(7000)));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_holds_a_part_of_what_there_is() {
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
        fn images_take_what_is_left_and_no_more(
            cache in 0_u64..1 << 40,
            limit in 0_u64..1 << 40,
            otherwise in 0_u64..1 << 40,
            images in 0_u64..1 << 40,
        ) {
            let resident = Bytes(otherwise + images);
            let budget = images_budget(Bytes(cache), Bytes(limit), resident, Bytes(images));
            prop_assert!(budget.0 <= cache);
            // The limit is kept, unless what is no image passes it already.
            prop_assert!(budget.0 + otherwise <= limit || budget.0 == 0);
            // Nothing is held back: one of both bounds is reached.
            prop_assert!(budget.0 == cache || budget.0 == limit.saturating_sub(otherwise));
            // What is within both bounds stays.
            if images <= cache && resident.0 <= limit {
                prop_assert!(budget.0 >= images);
            }
        }

        #[test]
        fn less_room_never_means_more_images(
            (cache, limit) in (0_u64..1 << 40, 0_u64..1 << 40),
            (resident, images) in (0_u64..1 << 40, 0_u64..1 << 40),
            less in 0_u64..1 << 40,
        ) {
            let budget = |cache: u64, limit: u64, resident: u64| {
                images_budget(Bytes(cache), Bytes(limit), Bytes(resident), Bytes(images))
            };
            let now = budget(cache, limit, resident);
            prop_assert!(budget(cache.saturating_sub(less), limit, resident) <= now);
            prop_assert!(budget(cache, limit.saturating_sub(less), resident) <= now);
            prop_assert!(budget(cache, limit, resident + less) <= now);
        }
    }
}
