//! What was done to a frame, by its type: what needs a step before it takes a frame of that state.

use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// The state of a frame.
pub trait FrameState: sealed::Sealed + Debug + 'static {
    /// What a frame of this state keeps of its comparison with the photograph.
    type Kept<T>;

    /// That, where the frame was compared.
    fn kept<T>(kept: &Self::Kept<T>) -> Option<&T>;
}

/// A state in which a frame can be compared with its photograph.
pub trait Trainable: Fresh {}

/// A state of frames that were not compared yet.
pub trait Fresh: FrameState {
    /// What such a frame keeps of a comparison.
    fn nothing<T>() -> Self::Kept<T>;
}

/// Drawn to be shown or measured.
#[derive(Clone, Copy, Debug)]
pub enum Shown {}

/// Drawn to be trained on.
#[derive(Clone, Copy, Debug)]
pub enum Drawn {}

/// Drawn to be trained on, its colours changed as the view's camera changes them.
#[derive(Clone, Copy, Debug)]
pub enum Compensated {}

/// Compared with its photograph: it holds the gradients of its pixels.
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
