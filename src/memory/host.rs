//! What this process holds of the host's memory, as the kernel counts it.

use super::Bytes;

/// Resident memory of this process and the size of the host's memory.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    /// Bytes of this process that are in RAM now.
    pub resident: Bytes,
    /// RAM of the machine.
    pub total: Bytes,
}

/// Reads `/proc`; `None` where the system has no such files.
pub fn host_memory() -> Option<HostMemory> {
    Some(HostMemory {
        resident: kib_after("/proc/self/status", "VmRSS:")?,
        total: kib_after("/proc/meminfo", "MemTotal:")?,
    })
}

/// The number behind `key` in a `key:   123 kB` file.
fn kib_after(path: &str, key: &str) -> Option<Bytes> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib * 1024))
}
