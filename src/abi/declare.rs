//! Macros that declare constants and structs for both Rust and C++.

use std::marker::PhantomData;

/// A type that can be a field of a kernel's arguments.
pub trait Abi: Copy {
    /// The number 0, the null pointer, or an array or struct of these.
    const ZERO: Self;

    /// Returns the C++ declaration of a variable of this type: `float x[3]` for `x`.
    fn declaration(name: &str) -> String;
}

/// A type with a name in C++, so that pointers can point to it.
pub trait Named {
    /// Name in C++.
    const NAME: &'static str;
}

/// A number, or an array or struct of numbers.
///
/// # Safety
/// Every bit pattern is a valid value, and there is no padding.
pub unsafe trait Plain: Copy + 'static {}

/// A type of constants.
pub trait Literal: Named {
    /// Returns the value as a C++ literal.
    fn literal(&self) -> String;
}

/// A kernel's argument struct without its borrows, for the table of kernels.
pub trait Arguments: 'static {
    /// The struct with pointers that live as long as `'a`.
    type With<'a>: Copy;
}

macro_rules! numbers {
    ($($rust:ty, $name:literal, $suffix:literal, $zero:literal;)+) => {$(
        impl Named for $rust {
            const NAME: &'static str = $name;
        }

        impl Abi for $rust {
            const ZERO: Self = $zero;

            fn declaration(name: &str) -> String {
                format!("{} {name}", Self::NAME)
            }
        }

        // SAFETY: a primitive number has no padding and no invalid pattern.
        unsafe impl Plain for $rust {}

        impl Literal for $rust {
            fn literal(&self) -> String {
                // Debug, unlike Display, writes the ".0" of 1.0.
                format!("{self:?}{}", $suffix)
            }
        }
    )+};
}

numbers! {
    u8, "uint8_t", "", 0;
    i8, "int8_t", "", 0;
    u16, "uint16_t", "", 0;
    u32, "uint32_t", "u", 0;
    i32, "int32_t", "", 0;
    u64, "uint64_t", "ull", 0;
    f32, "float", "f", 0.0;
    f64, "double", "", 0.0;
}

impl<T: Abi, const N: usize> Abi for [T; N] {
    const ZERO: Self = [T::ZERO; N];

    fn declaration(name: &str) -> String {
        T::declaration(&format!("{name}[{N}]"))
    }
}

// SAFETY: an array has no padding between elements that have none.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

macro_rules! pointer {
    ($(#[$doc:meta])* $pointer:ident, $qualifier:literal) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $pointer<'a, T> {
            address: u64,
            borrow: PhantomData<&'a T>,
        }

        impl<'a, T> $pointer<'a, T> {
            /// Null pointer; the kernel must not follow it.
            pub const NULL: Self = Self::at(0);

            /// Points to device memory whose borrow the caller holds.
            pub(crate) const fn at(address: u64) -> Self {
                Self { address, borrow: PhantomData }
            }

            /// Returns the device address.
            pub const fn address(self) -> u64 {
                self.address
            }

            /// Casts to bytes, for a kernel that knows the type.
            pub const fn bytes(self) -> $pointer<'a, u8> {
                $pointer::at(self.address)
            }

            /// Casts to single precision, for words that hold such numbers.
            pub const fn floats(self) -> $pointer<'a, f32> {
                $pointer::at(self.address)
            }
        }

        impl<T> Clone for $pointer<'_, T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $pointer<'_, T> {}

        impl<T: Named> Abi for $pointer<'_, T> {
            const ZERO: Self = Self::NULL;

            fn declaration(name: &str) -> String {
                format!("{}{}* {name}", $qualifier, T::NAME)
            }
        }
    };
}

pointer! {
    /// Device memory that a kernel reads.
    In, "const "
}

pointer! {
    /// Device memory that a kernel writes, and may read. Built from a `&mut`, so that the buffer has no other
    /// pointers; copies point to the same memory.
    Out, ""
}

/// A field of a declared struct.
pub(super) struct StructField {
    pub(super) docs: &'static [&'static str],
    /// Declaration in C++.
    pub(super) declaration: String,
    pub(super) name: &'static str,
    /// Bytes from the start of the struct.
    pub(super) offset: usize,
}

/// Prints a struct in C++.
pub(super) fn print_struct(
    name: &str,
    docs: &[&str],
    size: usize,
    align: usize,
    fields: &[StructField],
) -> String {
    let mut text = format!("\n{}struct {name} {{\n", comment(docs, ""));
    for StructField { docs, declaration, .. } in fields {
        text += &format!("{}    {declaration};\n", comment(docs, "    "));
    }
    text += "};\n";
    text += &format!("static_assert(sizeof({name}) == {size}, \"{name}\");\n");
    text += &format!("static_assert(alignof({name}) == {align}, \"{name}\");\n");
    for StructField { name: field, offset, .. } in fields {
        text += &format!(
            "static_assert(offsetof({name}, {field}) == {offset}, \"{name}::{field}\");\n"
        );
    }
    text
}

/// Prints a constant in C++.
pub(super) fn print_constant<T: Literal>(name: &str, docs: &[&str], value: &T) -> String {
    format!("\n{}constexpr {} {name} = {};\n", comment(docs, ""), T::NAME, value.literal())
}

fn comment(docs: &[&str], indent: &str) -> String {
    docs.iter().map(|line| format!("{indent}//{line}\n")).collect()
}

/// Declares constants for both sides: `/// doc` and `pub const NAME: u32 = 1;`. Once per module.
macro_rules! constants {
    ($($(#[doc = $doc:literal])* pub const $name:ident: $type:ty = $value:expr;)*) => {
        $(
            $(#[doc = $doc])*
            pub const $name: $type = $value;
        )*

        /// Prints the constants in C++.
        pub(super) fn constants() -> String {
            let texts: &[String] =
                &[$($crate::abi::declare::print_constant(stringify!($name), &[$($doc),*], &$name)),*];
            texts.concat()
        }
    };
}

/// Declares structs for both sides, in order of use. Once per module.
///
/// A struct with a lifetime holds pointers and is the argument of a kernel. Without one it is plain data without
/// padding.
macro_rules! abi {
    ($(
        $(#[doc = $doc:literal])*
        pub struct $name:ident $(<$life:lifetime>)? {
            $($(#[doc = $field_doc:literal])* pub $field:ident: $type:ty),* $(,)?
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[allow(rustdoc::broken_intra_doc_links, reason = "[n] is a shape")]
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub struct $name $(<$life>)? {
                $($(#[doc = $field_doc])* pub $field: $type,)*
            }

            abi!(@kind $name [$($life)?] $($type),*);

            impl $(<$life>)? $crate::abi::Abi for $name $(<$life>)? {
                const ZERO: Self = Self { $($field: <$type as $crate::abi::Abi>::ZERO),* };

                fn declaration(name: &str) -> String {
                    format!("{} {name}", stringify!($name))
                }
            }

            impl $(<$life>)? Default for $name $(<$life>)? {
                fn default() -> Self {
                    <Self as $crate::abi::Abi>::ZERO
                }
            }

            impl $(<$life>)? $name $(<$life>)? {
                /// Prints the struct in C++.
                fn cpp() -> String {
                    $crate::abi::declare::print_struct(
                        stringify!($name),
                        &[$($doc),*],
                        size_of::<Self>(),
                        align_of::<Self>(),
                        &[$($crate::abi::declare::StructField {
                            docs: &[$($field_doc),*],
                            declaration:
                                <$type as $crate::abi::Abi>::declaration(stringify!($field)),
                            name: stringify!($field),
                            offset: std::mem::offset_of!(Self, $field),
                        }),*],
                    )
                }
            }
        )*

        /// Prints the structs in C++.
        pub(super) fn structs() -> String {
            let texts: &[String] = &[$($name::cpp()),*];
            texts.concat()
        }
    };
    (@kind $name:ident [] $($type:ty),*) => {
        impl $crate::abi::Named for $name {
            const NAME: &'static str = stringify!($name);
        }

        const _: () = {
            const fn plain<T: $crate::abi::Plain>() -> usize {
                size_of::<T>()
            }
            assert!(0 $(+ plain::<$type>())* == size_of::<$name>(), "padding");
        };

        // SAFETY: each field is plain and together they fill the struct, as asserted above.
        unsafe impl $crate::abi::Plain for $name {}
    };
    (@kind $name:ident [$life:lifetime] $($type:ty),*) => {
        impl $crate::abi::Arguments for $name<'static> {
            type With<$life> = $name<$life>;
        }
    };
}
