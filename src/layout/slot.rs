//! One buffer: what it is called, what it is for, how long it is, and where it comes from.

use std::marker::PhantomData;

use super::library::Library;
use crate::abi::Plain;

/// How long the sizes that a buffer's length follows from stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as the program runs.
    Process,
    /// As long as the model has the same rows.
    Model,
    /// A stage of a run, such as an evaluation.
    Stage,
    /// A round of density control.
    Round,
    /// A drawn view.
    View,
    /// A band of a view's rows of tiles, or all of them.
    Band,
    /// One call.
    Call,
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The driver's own memory, and code.
    Context,
    /// What kernels report.
    Reports,
    /// What the blocks of an iteration lie in.
    Arena,
    /// What is trained.
    Parameters,
    /// Moments of the gradients.
    Moments,
    /// What density control decides by.
    Statistics,
    /// Photographs.
    Photographs,
    /// Rows between host and device, and from one storage to the other.
    Transfer,
    /// Splats of a view, and their gradients.
    Projected,
    /// Lists of the splats of each tile.
    Lists,
    /// Pixels, and their gradients.
    Pixels,
    /// Surface terms.
    Surface,
    /// A network that compares images.
    Lpips,
    /// A round of density control.
    Round,
    /// Rows in the order of their places.
    Order,
    /// Nearest neighbours.
    Search,
    /// Scratch of the CUB library.
    Library,
    /// Measurements and tests of the GPU.
    Diagnosis,
}

/// An index space: one length, in numbers of the sizes that it follows from.
pub trait Count: Copy {
    /// What the length follows from.
    type Sizes;

    /// How long these stay the same.
    const LIFETIME: Lifetime;

    /// The length for these sizes.
    fn of(self, sizes: &Self::Sizes) -> u64;
}

/// Declares counts whose length only the caller knows.
macro_rules! given {
    ($($(#[$doc:meta])* $name:ident: $lifetime:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Count for $name {
            type Sizes = u64;

            const LIFETIME: Lifetime = Lifetime::$lifetime;

            fn of(self, len: &u64) -> u64 {
                *len
            }
        }
    )*};
}

given! {
    /// A length that stays as long as the program runs.
    ProcessLen: Process;
    /// A length that stays as long as the model.
    ModelLen: Model;
    /// A length that stays for a stage of a run.
    StageLen: Stage;
    /// A length of one call.
    CallLen: Call;
}

/// A buffer: so many elements for each index of an index space.
pub struct Slot<T, C> {
    /// What the ledger calls it.
    pub label: &'static str,
    /// What it is for.
    pub purpose: Purpose,
    pub(super) count: C,
    pub(super) width: u32,
    pub(super) element: PhantomData<fn() -> T>,
}

impl<T: Plain> Slot<T, CallLen> {
    /// A buffer in no table: a test's, or one that shares its label with a buffer in one.
    pub const fn unlisted(label: &'static str) -> Self {
        let (purpose, element) = (Purpose::Diagnosis, PhantomData);
        Self { label, purpose, count: CallLen, width: 1, element }
    }
}

impl<T: Plain, C: Count> Slot<T, C> {
    /// How many elements it has for these sizes.
    pub fn len(&self, sizes: &C::Sizes) -> u64 {
        self.count.of(sizes).saturating_mul(self.width.into())
    }

    /// How many bytes.
    pub fn bytes(&self, sizes: &C::Sizes) -> u64 {
        self.len(sizes).saturating_mul(size_of::<T>() as u64)
    }
}

/// What `splat profile` says of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotInfo {
    /// What the ledger calls it.
    pub label: &'static str,
    /// What lies there, in words.
    pub words: &'static str,
    /// What it is for.
    pub purpose: Purpose,
    /// How long its sizes stay the same.
    pub lifetime: Lifetime,
    /// Bytes of an element.
    pub element: usize,
    /// The type of an element.
    pub type_name: &'static str,
    /// Elements for each index.
    pub width: u32,
}

/// What buffers come from: a GPU's heap, or a replay that only counts.
pub trait Source {
    /// A buffer; it is given back when it is dropped.
    type Block<T: Plain>: Taken;

    /// Why there is none.
    type Error;

    /// What the CUB library takes of scratch.
    fn cub_scratch(&self) -> &Library;

    /// The buffer of a slot for these sizes.
    fn take<T: Plain, C: Count>(
        &self,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<Self::Block<T>, Self::Error>;

    /// The same where it is wanted.
    fn take_if<T: Plain, C: Count>(
        &self,
        is_wanted: bool,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<Option<Self::Block<T>>, Self::Error> {
        is_wanted.then(|| self.take(slot, sizes)).transpose()
    }

    /// Two buffers of a slot, one after the other.
    fn take_two<T: Plain, C: Count>(
        &self,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<[Self::Block<T>; 2], Self::Error> {
        Ok([self.take(slot, sizes)?, self.take(slot, sizes)?])
    }
}

/// A buffer that was taken.
pub trait Taken {
    /// How many bytes it has.
    fn bytes(&self) -> u64;
}

impl<B: Taken> Taken for Option<B> {
    fn bytes(&self) -> u64 {
        self.as_ref().map_or(0, Taken::bytes)
    }
}

/// Declares slots and `ALL`, their table. For each count:
/// `[pub] NAME: element = "label", Purpose, index space, elements an index, "what lies there";`.
macro_rules! slots {
    ($($count:ty {$(
        $vis:vis $name:ident: $element:ty = $label:literal, $purpose:ident, $indices:expr,
            $width:expr, $words:literal;
    )*})*) => {
        $($(
            #[doc = concat!("\"", $label, "\": ", $words, ".")]
            $vis const $name: $crate::layout::slot::Slot<$element, $count> =
                $crate::layout::slot::Slot {
                    label: $label,
                    purpose: $crate::layout::slot::Purpose::$purpose,
                    count: $indices,
                    width: $width,
                    element: std::marker::PhantomData,
                };
        )*)*

        /// The slots of this file.
        pub(super) const ALL: &[$crate::layout::slot::SlotInfo] = &[$($(
            $crate::layout::slot::SlotInfo {
                label: $label,
                words: $words,
                purpose: $crate::layout::slot::Purpose::$purpose,
                lifetime: <$count as $crate::layout::slot::Count>::LIFETIME,
                element: size_of::<$element>(),
                type_name: stringify!($element),
                width: $width,
            },
        )*)*];
    };
}
