//! Errors of driver calls and of counts that are too large.

use cudarc::driver::{DriverError, sys};

use crate::backend::DeviceError;

/// Makes a failure of the driver an error that names the call. A full GPU is no fault of the driver.
pub(crate) fn failed(call: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |error| match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::DriverOutOfMemory { call },
        _ => DeviceError::Driver { call, reason: describe(error) },
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gpu_is_told_from_a_call_that_failed() {
        let error = failed("cuCtxCreate")(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(matches!(error, DeviceError::DriverOutOfMemory { call: "cuCtxCreate" }), "{error}");
        assert!(error.is_short_beside_others());
    }
}
