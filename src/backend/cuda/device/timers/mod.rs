//! Timers of the stages of an iteration. Without the feature `bench` they are empty.

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

    /// Timers that measure nothing.
    #[derive(Default)]
    pub struct Untimed;

    /// A stage that has begun.
    #[must_use = "every stage ends"]
    pub struct UntimedStage;

    impl Untimed {
        /// Creates timers that measure nothing.
        pub fn off() -> Self {
            Self
        }

        /// Begins a stage.
        pub fn begin(&self, _: Stage, _: &Stream) -> Result<UntimedStage, DeviceError> {
            Ok(UntimedStage)
        }

        /// Ends a stage.
        pub fn end(&self, _: &UntimedStage, _: &Stream) -> Result<(), DeviceError> {
            Ok(())
        }
    }
}
