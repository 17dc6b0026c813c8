//! Where the stages of an iteration begin and end on the stream.
//!
//! With the feature `bench` they can be timed. Without it these calls are empty.

#[cfg(feature = "bench")]
mod events;

#[cfg(feature = "bench")]
pub use self::events::{Begun, Timers};
#[cfg(not(feature = "bench"))]
pub use self::never::{Untimed as Timers, UntimedStage as Begun};
pub use crate::backend::Stage;

#[cfg(not(feature = "bench"))]
mod never {
    use crate::backend::cuda::device::stream::Stream;
    use crate::backend::{DeviceError, Stage};

    /// Times nothing.
    #[derive(Default)]
    pub struct Untimed;

    /// A stage that has begun.
    #[must_use = "every stage ends"]
    pub struct UntimedStage;

    impl Untimed {
        /// Times nothing.
        pub fn off() -> Self {
            Self
        }

        /// A stage begins.
        pub fn begin(&self, _: Stage, _: &Stream) -> Result<UntimedStage, DeviceError> {
            Ok(UntimedStage)
        }

        /// A stage ends.
        pub fn end(&self, _: &UntimedStage, _: &Stream) -> Result<(), DeviceError> {
            Ok(())
        }
    }
}
