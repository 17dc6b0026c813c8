//! Which device runs.

use crate::backend::DeviceError;
use crate::backend::cpu::Cpu;
use crate::backend::nvidia;
use crate::config::Device;

/// Opens the device that was asked for.
///
/// Nobody trains on the processor by accident: on a machine with an NVIDIA GPU it has to be named.
pub(super) fn open(device: Device) -> Result<Cpu<f32>, DeviceError> {
    match device {
        Device::Cpu => Ok(Cpu::new()),
        Device::Cuda => Err(DeviceError::Unavailable(
            "--device cuda: this program has no CUDA kernels. Use --device cpu".to_owned(),
        )),
        Device::Auto if nvidia::is_present() => Err(DeviceError::Unavailable(
            "this machine has an NVIDIA GPU, but this program has no CUDA kernels and would run on \
             the processor, far slower. If that is what you want, say --device cpu"
                .to_owned(),
        )),
        Device::Auto => Ok(Cpu::new()),
    }
}
