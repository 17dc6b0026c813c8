//! Errors of driver calls and of counts that are too large.

use cudarc::driver::DriverError;

use crate::backend::DeviceError;

/// Makes a failure of the driver an error that names the call.
pub(crate) fn failed(call: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |error| DeviceError::Driver { call, reason: describe(error) }
}

fn describe(error: DriverError) -> String {
    let text = |found: Result<&std::ffi::CStr, DriverError>| {
        found.map_or_else(|_none| String::new(), |text| text.to_string_lossy().into_owned())
    };
    format!("{} ({})", text(error.error_string()), text(error.error_name()))
}

/// Kernels count in 32 bits.
pub(crate) fn count_u32(count: usize) -> Result<u32, DeviceError> {
    u32::try_from(count).ok().ok_or(DeviceError::TooManyGaussians { wanted: count })
}
