//! What a GPU is doing at the moment, as NVIDIA's management library tells.

use serde::Serialize;

use crate::memory::Bytes;

/// One look at a GPU. What the library does not tell there (under WSL, on laptops) is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuSample {
    /// Share of the last moments in which a kernel ran, per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<u32>,
    /// Share of the last moments in which memory was read or written, per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_load: Option<u32>,
    /// Memory that is in use, by everybody together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<Bytes>,
    /// All of its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total: Option<Bytes>,
    /// Temperature of the chip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Power that the board draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Power that it may draw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Speed of its first fan, per cent; servers cool it with their own.
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
    /// Why it runs slower than it could; empty where nothing slows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<Throttle>>,
}

/// What slows a GPU that has work to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// It draws as much power as it may.
    PowerLimit,
    /// It is too hot.
    Temperature,
    /// The power supply asks for less.
    PowerBrake,
    /// Heat, power or supply, which the hardware does not tell apart.
    Hardware,
    /// A GPU in the same group is slowed.
    SyncBoost,
}

impl GpuSample {
    /// Share of the memory that is in use, per cent.
    pub fn memory_percent(&self) -> Option<f64> {
        let (used, total) = (self.memory_used?, self.memory_total?);
        (total.0 > 0).then(|| 100.0 * used.gib() / total.gib())
    }

    /// Whether the library told nothing at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Opens the management library for as long as `work` runs, which takes samples of the GPU with
/// this identifier. An error says why there are none.
#[cfg(feature = "cuda")]
pub fn watch<R>(uuid: &str, work: impl FnOnce(&dyn Fn() -> GpuSample) -> R) -> Result<R, String> {
    let nvml = super::open()?;
    let device = nvml.device_by_uuid(uuid).map_err(|error| format!("{uuid}: {error}"))?;
    Ok(work(&|| sample(&device)))
}

/// This program was built without the feature that asks the management library.
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

/// The number of a performance state that is known.
#[cfg(feature = "cuda")]
fn state_number(state: nvml_wrapper::enum_wrappers::device::PerformanceState) -> Option<u32> {
    use nvml_wrapper::enum_wrappers::device::PerformanceState;
    (state != PerformanceState::Unknown).then(|| state.as_c())
}

/// The reasons that work against the program: an idle GPU and a clock that the user set do not.
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
    fn what_is_not_told_is_not_written() {
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
