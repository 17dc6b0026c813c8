//! Which views an evaluation measured, in few words: figures of other views cannot be compared.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::train::event::ViewMetrics;

/// The views that an evaluation measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredViews {
    /// How many.
    pub count: u64,
    /// Width and height of the largest, px.
    pub largest_px: [u32; 2],
    /// Equal for the same names and sizes alone: FNV-1a of both, in hexadecimal digits.
    pub digest: String,
}

impl MeasuredViews {
    /// Of these views.
    pub fn of(views: &[ViewMetrics]) -> Self {
        let pixels = |px: &[u32; 2]| u64::from(px[0]) * u64::from(px[1]);
        let largest_px = views.iter().map(|view| view.px).max_by_key(pixels).unwrap_or_default();
        // Neither a name nor a number holds a line feed.
        let line = |view: &ViewMetrics| format!("{}\n{}\n{}\n", view.name, view.px[0], view.px[1]);
        let text: String = views.iter().map(line).collect();
        Self { count: views.len() as u64, largest_px, digest: format!("{:016x}", fnv_1a(&text)) }
    }
}

impl fmt::Display for MeasuredViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, largest_px: [width, height], .. } = self;
        let views = if *count == 1 { "view" } else { "views" };
        write!(f, "{count} {views} of up to {width}x{height} px")
    }
}

/// The 64-bit hash of Fowler, Noll and Vo, which is the same in every version of the program.
fn fnv_1a(text: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    text.bytes().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::event::Metrics;

    fn views(names: &[&str], px: [u32; 2]) -> MeasuredViews {
        let view = |(position, name): (usize, &&str)| ViewMetrics {
            position,
            name: (*name).to_owned(),
            px,
            metrics: Metrics::default(),
        };
        MeasuredViews::of(&names.iter().enumerate().map(view).collect::<Vec<_>>())
    }

    #[test]
    fn names_and_sizes_make_the_difference() {
        let found = views(&["a.png", "b.png"], [8, 6]);
        assert_eq!(found, views(&["a.png", "b.png"], [8, 6]));
        assert_ne!(found, views(&["a.png", "c.png"], [8, 6]));
        assert_ne!(found, views(&["a.png", "b.png"], [6, 8]));
        assert_eq!(found.to_string(), "2 views of up to 8x6 px");
        assert_eq!(fnv_1a("a"), 0xaf63_dc4c_8601_ec8c, "as published");
    }
}
