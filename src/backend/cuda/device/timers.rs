//! Timers of the stages of an iteration. Without the feature `bench` they do nothing.

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

    /// Timers that measure nothing.
    #[derive(Default)]
    pub struct Timers;

    /// A stage that has begun.
    #[must_use = "every stage ends"]
    pub struct Begun;

    impl Timers {
        /// Creates timers that measure nothing.
        pub fn off() -> Self {
            Self
        }

        /// Begins a stage.
        pub fn begin(&self, _: Stage, _: &Stream) -> Result<Begun, DeviceError> {
            Ok(Begun)
        }

        /// Ends a stage.
        pub fn end(&self, _: &Begun, _: &Stream) -> Result<(), DeviceError> {
            Ok(())
        }
    }
}
