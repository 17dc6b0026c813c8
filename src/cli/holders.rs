//! Who holds a GPU's memory, in words.

#[cfg(any(kernels, test))]
use crate::backend::nvidia::Gpu;
use crate::backend::nvidia::User;

/// Programs that are listed, those that hold most.
pub(super) const LISTED: usize = 2;

/// `process 17 (/usr/bin/game), 3.00 GiB`
pub(super) fn in_words(user: &User) -> String {
    let memory = user.memory.map(|held| format!(", {:.2} GiB", held.gib()));
    format!(
        "process {} ({}){}",
        user.pid,
        user.name.as_deref().unwrap_or("name unknown"),
        memory.unwrap_or_default()
    )
}

/// Says that a GPU's memory is short, and which other processes hold it. `uuid` names the GPU. If it is
/// unknown, only the one GPU of the machine can be meant.
#[cfg(any(kernels, test))]
pub(super) fn short_of_memory(gpus: &[Gpu], uuid: Option<&str>) -> String {
    let is_meant = |gpu: &&Gpu| match (uuid, gpu.uuid.as_deref()) {
        (Some(uuid), Some(found)) => uuid == found,
        (_, None) | (None, _) => gpus.len() == 1,
    };
    let own = std::process::id();
    let users: Vec<&User> = gpus
        .iter()
        .filter(is_meant)
        .filter_map(|gpu| gpu.users.as_deref())
        .flatten()
        .filter(|user| user.pid != own)
        .collect();
    if users.is_empty() {
        return "the NVIDIA GPU has too little free memory, and the driver does not name the \
                programs that hold it (nvidia-smi on the machine itself may)"
            .to_owned();
    }
    let mut listed: Vec<String> = users.iter().take(LISTED).map(|&user| in_words(user)).collect();
    if users.len() > LISTED {
        listed.push(format!("{} more processes", users.len() - LISTED));
    }
    format!(
        "the NVIDIA GPU has too little free memory; other programs use it: {}",
        listed.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Bytes;

    fn gpu(uuid: &str, users: Vec<User>) -> Gpu {
        Gpu {
            name: "a GPU".to_owned(),
            uuid: Some(uuid.to_owned()),
            memory: Bytes(140 << 30),
            free: Bytes(5 << 30),
            arch: Some(90),
            driver: "580.1".to_owned(),
            driver_cuda: None,
            users: Some(users),
        }
    }

    fn user(pid: u32, gib: u64) -> User {
        User { pid, name: Some("python".to_owned()), memory: Some(Bytes(gib << 30)) }
    }

    #[test]
    fn who_holds_how_much_is_named_of_the_gpu_in_use() {
        let own = user(std::process::id(), 4);
        let gpus =
            [gpu("GPU-0", vec![user(17, 134), own, user(18, 1)]), gpu("GPU-1", vec![user(19, 2)])];
        assert_eq!(
            short_of_memory(&gpus, Some("GPU-0")),
            "the NVIDIA GPU has too little free memory; other programs use it: process 17 (python), \
             134.00 GiB; process 18 (python), 1.00 GiB"
        );
        assert!(short_of_memory(&gpus[1..], None).contains("process 19"));
        assert!(short_of_memory(&gpus, None).contains("does not name"));
        assert!(short_of_memory(&gpus, Some("GPU-2")).contains("does not name"));
        assert!(short_of_memory(&[], None).contains("does not name"));
    }

    #[test]
    fn a_long_list_is_cut() {
        let gpus = [gpu("GPU-0", (0..11).map(|pid| user(pid, 1)).collect())];
        let text = short_of_memory(&gpus, None);
        assert!(text.contains("process 1 ") && !text.contains("process 2 "), "{text}");
        assert!(text.ends_with("; 9 more processes"), "{text}");
    }
}
