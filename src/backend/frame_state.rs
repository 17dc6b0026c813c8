//! The states of a frame as types, so that each operation accepts only frames that are ready for it.

use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// The state of a frame.
pub trait FrameState: sealed::Sealed + Debug + 'static {
    /// Result of the comparison with the photograph that a frame of this state stores.
    type Kept<T>;

    /// Returns the result if the frame was compared.
    fn kept<T>(kept: &Self::Kept<T>) -> Option<&T>;
}

/// A state in which a frame can be compared with its photograph.
pub trait Trainable: Fresh {}

/// A state of frames that were not compared yet.
pub trait Fresh: FrameState {
    /// Returns the empty result.
    fn nothing<T>() -> Self::Kept<T>;
}

/// Drawn to be shown or measured.
#[derive(Clone, Copy, Debug)]
pub enum Shown {}

/// Drawn to be trained on.
#[derive(Clone, Copy, Debug)]
pub enum Drawn {}

/// Drawn to be trained on, with the colour changes of the view's camera applied.
#[derive(Clone, Copy, Debug)]
pub enum Compensated {}

/// Compared with its photograph. Holds the gradients of its pixels.
#[derive(Clone, Copy, Debug)]
pub struct Scored<S>(std::marker::PhantomData<S>);

impl sealed::Sealed for Shown {}
impl sealed::Sealed for Drawn {}
impl sealed::Sealed for Compensated {}
impl<S: Trainable> sealed::Sealed for Scored<S> {}

impl FrameState for Shown {
    type Kept<T> = ();

    fn kept<T>(_kept: &()) -> Option<&T> {
        None
    }
}

impl FrameState for Drawn {
    type Kept<T> = ();

    fn kept<T>(_kept: &()) -> Option<&T> {
        None
    }
}

impl FrameState for Compensated {
    type Kept<T> = ();

    fn kept<T>(_kept: &()) -> Option<&T> {
        None
    }
}

impl<S: Trainable> FrameState for Scored<S> {
    type Kept<T> = T;

    fn kept<T>(kept: &T) -> Option<&T> {
        Some(kept)
    }
}

impl Fresh for Shown {
    fn nothing<T>() {}
}

impl Fresh for Drawn {
    fn nothing<T>() {}
}

impl Fresh for Compensated {
    fn nothing<T>() {}
}

impl Trainable for Drawn {}
impl Trainable for Compensated {}
