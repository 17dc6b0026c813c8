//! Where the stages of an iteration begin and end on the stream.
//!
//! With the feature `bench` they can be timed. Without it these calls are empty.

#[cfg(feature = "bench")]
mod events;

#[cfg(feature = "bench")]
pub use self::events::{Begun, Timers};
#[cfg(not(feature = "bench"))]
pub use self::never::{Begun, Timers};
pub use crate::backend::Stage;

#[cfg(not(feature = "bench"))]
mod never {
    use crate::backend::cuda::device::stream::Stream;
    use crate::backend::{DeviceError, Stage};

    /// Times nothing.
    #[derive(Default)]
    pub struct Timers;

    /// A stage that has begun.
    #[must_use = "every stage ends"]
    pub struct Begun;

    impl Timers {
        /// Times nothing.
        pub fn off() -> Self {
            Self
        }

        /// A stage begins.
        pub fn begin(&self, _: Stage, _: &Stream) -> Result<Begun, DeviceError> {
            Ok(Begun)
        }

        /// A stage ends.
        pub fn end(&self, _: &Begun, _: &Stream) -> Result<(), DeviceError> {
            Ok(())
        }
    }
}
