//! With which flags a run that memory was too short for takes less.

use crate::backend::DeviceError;
use crate::config::{Config, Offload};
use crate::memory::Rung;
use crate::train::TrainError;

/// Flags for the command that continues a training.
pub(super) fn less_memory(stopped: &TrainError, config: &Config) -> String {
    let Config { memory, scene, .. } = config;
    if !matches!(stopped, TrainError::OutOfMemory { .. }) {
        return String::new();
    }
    let may_give_up = |rung| memory.give_up.contains(&rung);
    let may_be_compact = memory.storage_on_gpu().is_compact() || may_give_up(Rung::Compact);
    let may_be_offloaded = memory.offload == Offload::Sh || may_give_up(Rung::Offload);
    if let Some(less) = less_host_memory(stopped) {
        return less.to_owned();
    }
    match scene.resolution {
        _ if !may_be_compact => "--optimize-memory".to_owned(),
        _ if !may_be_offloaded => "--offload sh".to_owned(),
        divisor @ (1 | 2 | 4) => format!("-r {}", 2 * divisor),
        -1 => "-r 4".to_owned(),
        // Nothing is left but more memory.
        _ => "--vram-limit SIZE, more than now, or when other programs have ended".to_owned(),
    }
}

/// The same for any command, where it is the host's memory that was too short.
pub(super) fn less_host_memory(stopped: &TrainError) -> Option<&'static str> {
    let TrainError::OutOfMemory { source, .. } = stopped else { return None };
    match **source {
        DeviceError::HostRefused(_) => Some("--host-limit SIZE, more than now, or --offload none"),
        DeviceError::OutOfHostMemory { demand: Some(_), .. } => {
            Some("--offload none, or when other programs have ended")
        }
        DeviceError::OutOfHostMemory { demand: None, .. } => Some("when other programs have ended"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::Compactness;
    use crate::memory::{Bytes, HostAllowance, HostDemand, HostState, Ledger, Limit};

    fn stopped(error: DeviceError) -> TrainError {
        TrainError::OutOfMemory { source: Box::new(error), checkpoint: PathBuf::from("a") }
    }

    #[test]
    fn each_remedy_is_one_that_the_run_has_not_taken() {
        let refusal = || Ledger::new(Bytes(1)).check("sh", Bytes(2)).unwrap_err();
        let of_gpu = stopped(refusal().into());
        let mut config = Config::default();
        let less = |config: &Config| less_memory(&of_gpu, config);
        assert_eq!(less(&config), "--optimize-memory");
        config.memory.optimize_memory = Compactness::All;
        assert_eq!(less(&config), "--offload sh");
        config.memory.optimize_memory = Compactness::Auto;
        config.scene.resolution = 4;
        assert_eq!(less(&config), "--offload sh");
        config.memory.optimize_memory = Compactness::Off;
        config.memory.offload = Offload::Sh;
        assert_eq!(less(&config), "-r 8");
        config.scene.resolution = 8;
        assert!(less(&config).starts_with("--vram-limit SIZE"));
        let state = HostState { total: Bytes(9), available: Bytes(9), own: Bytes(9) };
        let allowance = HostAllowance::new(Limit::Percent(60.0), 1);
        let of_host =
            allowance.check(state, Bytes(0), "sh", Bytes(1), HostDemand::Model).unwrap_err();
        let less = less_memory(&stopped(of_host.into()), &config);
        assert!(less.contains("--host-limit") && less.contains("--offload none"), "{less}");
        let (label, wanted) = ("sh", Bytes(2));
        let of_driver = |demand| stopped(DeviceError::OutOfHostMemory { label, wanted, demand });
        let less = less_host_memory(&of_driver(Some(HostDemand::Growth))).unwrap();
        assert!(less.starts_with("--offload none"), "{less}");
        assert_eq!(less_host_memory(&of_driver(None)), Some("when other programs have ended"));
        assert_eq!(less_host_memory(&of_gpu), None);
    }
}
