//! Description of a buffer: label, purpose, length and source.

use std::marker::PhantomData;

use super::library::Library;
use crate::abi::Plain;

/// Period during which the sizes that determine a buffer's length are constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Run of the program.
    Process,
    /// Number of rows of the model.
    Model,
    /// A stage of a run, such as an evaluation.
    Stage,
    /// Densification step.
    Densify,
    /// A drawn view.
    View,
    /// Band of a view's tile rows, or all of them.
    Band,
    /// One call.
    Call,
}

/// Purpose of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The driver's own memory, and code.
    Context,
    /// Values that kernels report.
    Reports,
    /// Blocks of an iteration.
    Arena,
    /// Learned parameters.
    Parameters,
    /// Moments of the gradients.
    Moments,
    /// Input of density control.
    Statistics,
    /// Photographs.
    Photographs,
    /// Copies of rows between host and device, and between encodings.
    Transfer,
    /// Splats of a view, and their gradients.
    Projected,
    /// Lists of the splats of each tile.
    Lists,
    /// Pixels, and their gradients.
    Pixels,
    /// Surface terms.
    Surface,
    /// Network that compares images.
    Lpips,
    /// Densification step.
    Densify,
    /// Reordering of rows.
    Order,
    /// Nearest neighbours.
    Search,
    /// Scratch of the CUB library.
    Library,
    /// Measurements and tests of the GPU.
    Diagnosis,
}

/// An index space: one length, as a function of sizes.
pub trait Count: Copy {
    /// Sizes that determine the length.
    type Sizes;

    /// Period during which the sizes are constant.
    const LIFETIME: Lifetime;

    /// Returns the length for these sizes.
    fn of(self, sizes: &Self::Sizes) -> u64;
}

/// Declares index spaces whose length only the caller knows.
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
    /// Length that is constant while the program runs.
    ProcessLen: Process;
    /// Length that is constant for a model.
    ModelLen: Model;
    /// Length that is constant for a stage of a run.
    StageLen: Stage;
    /// Length of one call.
    CallLen: Call;
}

/// A buffer: `width` elements for each index of an index space.
pub struct Slot<T, C> {
    /// Label in the ledger.
    pub label: &'static str,
    /// Purpose of the buffer.
    pub purpose: Purpose,
    pub(super) count: C,
    pub(super) width: u32,
    pub(super) element: PhantomData<fn() -> T>,
}

impl<T: Plain> Slot<T, CallLen> {
    /// Creates a slot outside the tables: for tests, or with a label that a listed slot has.
    pub const fn unlisted(label: &'static str) -> Self {
        let (purpose, element) = (Purpose::Diagnosis, PhantomData);
        Self { label, purpose, count: CallLen, width: 1, element }
    }
}

impl<T: Plain, C: Count> Slot<T, C> {
    /// Returns the number of elements for these sizes.
    pub fn len(&self, sizes: &C::Sizes) -> u64 {
        self.count.of(sizes).saturating_mul(self.width.into())
    }

    /// Returns the bytes for these sizes.
    pub fn bytes(&self, sizes: &C::Sizes) -> u64 {
        self.len(sizes).saturating_mul(size_of::<T>() as u64)
    }
}

/// Description of a buffer in `splat profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotInfo {
    /// Label in the ledger.
    pub label: &'static str,
    /// Content, in words.
    pub words: &'static str,
    /// Purpose of the buffer.
    pub purpose: Purpose,
    /// Period during which its sizes are constant.
    pub lifetime: Lifetime,
    /// Bytes of an element.
    pub element: usize,
    /// The type of an element.
    pub type_name: &'static str,
    /// Elements for each index.
    pub width: u32,
}

/// Source of buffers: a GPU's heap, or a replay that only counts.
pub trait Source {
    /// A buffer, freed when it is dropped.
    type Block<T: Plain>: Taken;

    /// Error of an allocation.
    type Error;

    /// Returns the scratch sizes of the CUB library.
    fn cub_scratch(&self) -> &Library;

    /// Allocates the buffer of a slot for these sizes.
    fn take<T: Plain, C: Count>(
        &self,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<Self::Block<T>, Self::Error>;

    /// Allocates the buffer of a slot if it is wanted.
    fn take_if<T: Plain, C: Count>(
        &self,
        is_wanted: bool,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<Option<Self::Block<T>>, Self::Error> {
        is_wanted.then(|| self.take(slot, sizes)).transpose()
    }

    /// Allocates two consecutive buffers of a slot.
    fn take_two<T: Plain, C: Count>(
        &self,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<[Self::Block<T>; 2], Self::Error> {
        Ok([self.take(slot, sizes)?, self.take(slot, sizes)?])
    }
}

/// An allocated buffer.
pub trait Taken {
    /// Returns the size in bytes.
    fn bytes(&self) -> u64;
}

impl<B: Taken> Taken for Option<B> {
    fn bytes(&self) -> u64 {
        self.as_ref().map_or(0, Taken::bytes)
    }
}

impl<B: Taken> Taken for [B; 2] {
    fn bytes(&self) -> u64 {
        self.iter().map(Taken::bytes).sum()
    }
}

/// Declares slots and `ALL`, their table. For each index space: `[pub] NAME: element = "label", Purpose, index,
/// elements per index, "content";`.
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

/// Declares groups of buffers: their structs, with `reserve`, which allocates the buffers in their order, and `bytes`.
/// For each buffer: `name: element = SLOT;`. Two consecutive buffers of a slot end with `, two`. A buffer that only
/// some requests need ends with `, if condition`.
macro_rules! buffers {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident($sizes:ident: $size_type:ty $(, $request:ident: $request_type:ty)?) {$(
            $(#[$field_doc:meta])*
            $field:ident: $element:ty = $slot:ident $(, $form:ident $($wanted:expr)?)?;
        )*}
    )*) => {$(
        $(#[$doc])*
        pub struct $name<A: $crate::layout::slot::Source> {$(
            $(#[$field_doc])*
            pub $field: buffers!(@type A, $element $(, $form)?),
        )*}

        impl<A: $crate::layout::slot::Source> $name<A> {
            /// Reserves the buffers.
            pub fn reserve(
                source: &A,
                $sizes: &$size_type,
                $($request: &$request_type)?
            ) -> Result<Self, A::Error> {
                Ok(Self {$(
                    $field: buffers!(@take source, $slot, $sizes $(, $form $($wanted)?)?),
                )*})
            }

            /// Returns the bytes of all buffers.
            pub fn bytes(&self) -> u64 {
                0 $(+ $crate::layout::slot::Taken::bytes(&self.$field))*
            }
        }
    )*};
    (@type $source:ident, $element:ty) => { $source::Block<$element> };
    (@type $source:ident, $element:ty, two) => { [$source::Block<$element>; 2] };
    (@type $source:ident, $element:ty, if) => { Option<$source::Block<$element>> };
    (@take $source:ident, $slot:ident, $sizes:ident) => { $source.take(&$slot, $sizes)? };
    (@take $source:ident, $slot:ident, $sizes:ident, two) => { $source.take_two(&$slot, $sizes)? };
    (@take $source:ident, $slot:ident, $sizes:ident, if $wanted:expr) => {
        $source.take_if($wanted, &$slot, $sizes)?
    };
}
