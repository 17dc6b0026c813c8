//! Figures of a GPU at work from NVIDIA's management library.

use serde::Serialize;

use crate::memory::Bytes;

/// Figures of a GPU at one moment. Absent if the library does not report them, as under WSL and on laptops.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuSample {
    /// Share of the last sampling period in which a kernel ran, per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<u32>,
    /// Share of the last sampling period in which memory was read or written, per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_load: Option<u32>,
    /// Memory that all programs use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<Bytes>,
    /// All of its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total: Option<Bytes>,
    /// Temperature of the chip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Power that the board draws, W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Limit of the power, W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Speed of the first fan, per cent. Servers' GPUs have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fan_percent: Option<u32>,
    /// Clock of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_memory_mhz: Option<u32>,
    /// Performance state: 0 is the fastest, 15 the slowest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pstate: Option<u32>,
    /// Clock of the multiprocessors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_sm_mhz: Option<u32>,
    /// Reasons why the GPU runs below its clocks; empty if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<Throttle>>,
}

/// Reason why a GPU with work runs slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// It reached its power limit.
    PowerLimit,
    /// It is too hot.
    Temperature,
    /// The power supply asks for less.
    PowerBrake,
    /// Heat, power or supply; the hardware does not report which.
    Hardware,
    /// A GPU in the same group is slowed.
    SyncBoost,
}

impl GpuSample {
    /// Returns the share of the memory in use, per cent.
    pub fn memory_percent(&self) -> Option<f64> {
        let (used, total) = (self.memory_used?, self.memory_total?);
        (total.0 > 0).then(|| 100.0 * used.gib() / total.gib())
    }

    /// Returns true if the library reported nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Opens the management library while `work` runs and passes it a function that samples the GPU with this identifier.
/// The error is the reason for people.
#[cfg(feature = "cuda")]
pub fn watch<R>(uuid: &str, work: impl FnOnce(&dyn Fn() -> GpuSample) -> R) -> Result<R, String> {
    let nvml = super::open()?;
    let device = nvml.device_by_uuid(uuid).map_err(|error| format!("{uuid}: {error}"))?;
    Ok(work(&|| sample(&device)))
}

/// Fails: this program was built without the management library.
#[cfg(not(feature = "cuda"))]
pub fn watch<R>(_uuid: &str, _work: impl FnOnce(&dyn Fn() -> GpuSample) -> R) -> Result<R, String> {
    Err(super::NO_FEATURE.to_owned())
}

#[cfg(feature = "cuda")]
fn sample(device: &nvml_wrapper::Device<'_>) -> GpuSample {
    use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
    let memory = device.memory_info().ok();
    let rates = device.utilization_rates().ok();
    // The library counts milliwatts.
    let watts = |milliwatts: u32| f64::from(milliwatts) * 1e-3;
    GpuSample {
        utilization: rates.as_ref().map(|rates| rates.gpu),
        memory_load: rates.as_ref().map(|rates| rates.memory),
        memory_used: memory.as_ref().map(|memory| Bytes(memory.used)),
        memory_total: memory.as_ref().map(|memory| Bytes(memory.total)),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
        power_w: device.power_usage().ok().map(watts),
        power_limit_w: device.enforced_power_limit().ok().map(watts),
        fan_percent: device.fan_speed(0).ok(),
        clock_memory_mhz: device.clock_info(Clock::Memory).ok(),
        pstate: device.performance_state().ok().and_then(state_number),
        clock_sm_mhz: device.clock_info(Clock::SM).ok(),
        throttle: device.current_throttle_reasons().ok().map(reasons),
    }
}

#[cfg(feature = "cuda")]
fn state_number(state: nvml_wrapper::enum_wrappers::device::PerformanceState) -> Option<u32> {
    use nvml_wrapper::enum_wrappers::device::PerformanceState;
    (state != PerformanceState::Unknown).then(|| state.as_c())
}

/// Converts the reasons. Leaves out idle GPUs and clocks set by the user, which are no faults.
#[cfg(feature = "cuda")]
fn reasons(found: nvml_wrapper::bitmasks::device::ThrottleReasons) -> Vec<Throttle> {
    use nvml_wrapper::bitmasks::device::ThrottleReasons as Reasons;
    let heat = Reasons::SW_THERMAL_SLOWDOWN.union(Reasons::HW_THERMAL_SLOWDOWN);
    [
        (Reasons::SW_POWER_CAP, Throttle::PowerLimit),
        (heat, Throttle::Temperature),
        (Reasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
        (Reasons::HW_SLOWDOWN, Throttle::Hardware),
        (Reasons::SYNC_BOOST, Throttle::SyncBoost),
    ]
    .into_iter()
    .filter_map(|(reason, word)| found.intersects(reason).then_some(word))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_memory_needs_both_figures() {
        let sample = GpuSample { memory_used: Some(Bytes(3 << 30)), ..GpuSample::default() };
        assert_eq!(sample.memory_percent(), None);
        assert!(!sample.is_empty() && GpuSample::default().is_empty());
        let sample = GpuSample { memory_total: Some(Bytes(4 << 30)), ..sample };
        assert_eq!(sample.memory_percent(), Some(75.0));
        let none = GpuSample { memory_total: Some(Bytes(0)), ..sample };
        assert_eq!(none.memory_percent(), None);
    }

    #[test]
    fn absent_figures_are_not_written() {
        let sample = GpuSample {
            temperature_c: Some(61),
            throttle: Some(vec![Throttle::PowerLimit]),
            ..GpuSample::default()
        };
        let json = serde_json::to_string(&sample).unwrap();
        assert_eq!(json, r#"{"temperature_c":61,"throttle":["power_limit"]}"#);
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn an_idle_gpu_is_not_slowed() {
        use nvml_wrapper::bitmasks::device::ThrottleReasons as Reasons;
        assert_eq!(reasons(Reasons::GPU_IDLE | Reasons::APPLICATIONS_CLOCKS_SETTING), []);
        assert_eq!(
            reasons(Reasons::SW_POWER_CAP | Reasons::HW_THERMAL_SLOWDOWN | Reasons::HW_SLOWDOWN),
            [Throttle::PowerLimit, Throttle::Temperature, Throttle::Hardware]
        );
    }
}
