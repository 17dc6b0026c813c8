//! Tests of the printed C++.

use super::{In, Literal, Out, header};

constants! {
    /// One of each type.
    pub const COUNT: u32 = 7;
    pub const LARGE: u64 = 1 << 40;
    pub const LOWEST: i32 = -3;
    pub const EXACT: f64 = 0.1;
    pub const WHOLE: f32 = 2.0;
    pub const TINY: f32 = 1e-10;
}

abi! {
    /// Plain data.
    /// In two lines.
    pub struct Inner {
        pub a: [f32; 3],
        pub b: u16,
        pub c: [u8; 2],
    }

    /// A kernel's.
    pub struct ExampleArgs<'a> {
        /// [n, 3]
        pub from: In<'a, f32>,
        pub to: Out<'a, Inner>,
        pub n: u64,
        pub inner: Inner,
        pub scale: f64,
        pub grid: [[u32; 3]; 2],
        pub odd: i32,
    }
}

#[test]
fn structs_print_with_types_sizes_and_offsets() {
    let expected = r#"
// Plain data.
// In two lines.
struct Inner {
    float a[3];
    uint16_t b;
    uint8_t c[2];
};
static_assert(sizeof(Inner) == 16, "Inner");
static_assert(alignof(Inner) == 4, "Inner");
static_assert(offsetof(Inner, a) == 0, "Inner::a");
static_assert(offsetof(Inner, b) == 12, "Inner::b");
static_assert(offsetof(Inner, c) == 14, "Inner::c");

// A kernel's.
struct ExampleArgs {
    // [n, 3]
    const float* from;
    Inner* to;
    uint64_t n;
    Inner inner;
    double scale;
    uint32_t grid[2][3];
    int32_t odd;
};
static_assert(sizeof(ExampleArgs) == 80, "ExampleArgs");
static_assert(alignof(ExampleArgs) == 8, "ExampleArgs");
static_assert(offsetof(ExampleArgs, from) == 0, "ExampleArgs::from");
static_assert(offsetof(ExampleArgs, to) == 8, "ExampleArgs::to");
static_assert(offsetof(ExampleArgs, n) == 16, "ExampleArgs::n");
static_assert(offsetof(ExampleArgs, inner) == 24, "ExampleArgs::inner");
static_assert(offsetof(ExampleArgs, scale) == 40, "ExampleArgs::scale");
static_assert(offsetof(ExampleArgs, grid) == 48, "ExampleArgs::grid");
static_assert(offsetof(ExampleArgs, odd) == 72, "ExampleArgs::odd");
"#;
    assert_eq!(structs(), expected);
}

#[test]
fn constants_print_as_their_type() {
    let expected = "
// One of each type.
constexpr uint32_t COUNT = 7u;

constexpr uint64_t LARGE = 1099511627776ull;

constexpr int32_t LOWEST = -3;

constexpr double EXACT = 0.1;

constexpr float WHOLE = 2.0f;

constexpr float TINY = 1e-10f;
";
    assert_eq!(constants(), expected);
    assert_eq!(f32::MAX.literal(), "3.4028235e38f");
}

#[test]
fn fields_lie_at_the_printed_offsets() {
    let args = ExampleArgs {
        from: In::at(0x1111_2222_3333),
        to: Out::at(0x4444_5555_6666),
        n: 0x7777_8888_9999,
        inner: Inner { a: [1.5, 2.5, 3.5], b: 1021, c: [7, 11] },
        scale: 4.5,
        grid: [[1, 2, 3], [4, 5, 6]],
        odd: -13,
    };
    let base = std::ptr::from_ref(&args).cast::<u8>();
    let read = |offset: usize, length: usize| -> Vec<u8> {
        (offset..offset + length)
            .map(|at| {
                let place = base.wrapping_add(at);
                // SAFETY: the ranges below lie within the 76 bytes of `args` that are not padding.
                unsafe { place.read() }
            })
            .collect()
    };
    assert_eq!(read(0, 8), 0x1111_2222_3333_u64.to_ne_bytes());
    assert_eq!(read(8, 8), 0x4444_5555_6666_u64.to_ne_bytes());
    assert_eq!(read(16, 8), 0x7777_8888_9999_u64.to_ne_bytes());
    assert_eq!(read(28, 4), 2.5_f32.to_ne_bytes());
    assert_eq!(read(36, 4), [1021_u16.to_ne_bytes(), [7, 11]].concat());
    assert_eq!(read(40, 8), 4.5_f64.to_ne_bytes());
    assert_eq!(read(60, 4), 4_u32.to_ne_bytes());
    assert_eq!(read(72, 4), (-13_i32).to_ne_bytes());
}

#[test]
fn header_contains_the_declarations() {
    let header = header();
    for text in [
        "#pragma once",
        "constexpr uint32_t TILE = 16u;",
        "    float rotation[9];",
        "static_assert(sizeof(ViewCamera) == 136, \"ViewCamera\");",
        "static_assert(offsetof(ViewCamera, guard) == 76, \"ViewCamera::guard\");",
    ] {
        assert!(header.contains(text), "{text} is not in\n{header}");
    }
}
