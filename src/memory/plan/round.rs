//! Scratch of a round of density control and of putting Gaussians in order.

use super::library::{self, Key};
use super::model::ModelSize;
use super::stack::Stack;
use crate::abi::{DIGITS, DensityCounts, SmoothView};
use crate::math::morton::KEY_BITS;

/// Words that rows are moved through.
const MOVED_WORDS: u64 = 1 << 23;

const WORD: u64 = 4;

/// A weight of a draw.
const WEIGHT: u64 = 8;

/// A look at the candidates.
pub(super) fn survey(stack: &mut Stack, model: &ModelSize) {
    let counts = stack.take("density counts", size_of::<DensityCounts>() as u64);
    // Where absolute gradients are gathered, their quantile is looked for.
    if model.optional.absolute_norm_sums {
        stack.pass("density digits", u64::from(DIGITS) * WORD);
    }
    stack.give_back(counts);
}

/// One round in which `wanted` Gaussians would be born and `births` of them may.
pub(super) fn densify(stack: &mut Stack, model: &ModelSize, (wanted, births): (u64, u64)) {
    survey(stack, model);
    let rows = model.with(model.gaussians + births);
    let words = model.words();
    let chunk = (rows.table(words) / WORD).min(MOVED_WORDS) + model.with(1).table(words) / WORD;
    let blocks = [
        stack.take("density counts", size_of::<DensityCounts>() as u64),
        stack.take("density flags", rows.gaussians * WORD),
        stack.take("density ranks", rows.gaussians * WORD),
        stack.take("density rows", chunk * WORD),
    ];
    if births > 0 && births < wanted {
        stack.pass("sort", library::sum(rows.gaussians).0);
        let lists = ["density keys", "density keys", "candidates", "candidates"]
            .map(|label| stack.take(label, wanted * WORD));
        stack.pass("sort", library::sort(wanted, Key::Bits32, u32::BITS).0);
        for list in lists {
            stack.give_back(list);
        }
    }
    stack.pass("sort", library::sum(rows.gaussians).0);
    for block in blocks {
        stack.give_back(block);
    }
}

/// The 3D filter of so many views.
pub(super) fn smooth(stack: &mut Stack, model: &ModelSize, views: u64) {
    if !model.optional.filter_3d {
        return;
    }
    let on_device = stack.take("views to smooth for", views * size_of::<SmoothView>() as u64);
    stack.pass("farthest depth", WORD);
    stack.give_back(on_device);
}

/// One round in which the dead move to the living, and then so many are born.
pub(super) fn relocate(stack: &mut Stack, model: &ModelSize, births: u64) {
    draw(stack, model, model.gaussians);
    if births > 0 {
        draw(stack, model, births);
    }
}

/// A draw of so many copies; of as many as there are Gaussians where it is for the dead, who are
/// counted first.
fn draw(stack: &mut Stack, model: &ModelSize, copies: u64) {
    let n = model.gaussians;
    let counts = stack.take("density copies", n * WORD);
    let weights = stack.take("density weights", n * WEIGHT);
    let sources = stack.take("density sources", copies * WORD);
    stack.pass("sort", library::wide_sum(n).0);
    if copies == n {
        stack.pass("sort", library::sum(n).0);
    }
    for block in [counts, weights, sources] {
        stack.give_back(block);
    }
}

/// All Gaussians in the order of their places.
pub(super) fn reorder(stack: &mut Stack, model: &ModelSize) {
    let n = model.gaussians;
    if n == 0 {
        return;
    }
    let [first, second] = [(); 2].map(|()| stack.take("reordered rows", n * WORD));
    let keys = [(); 2].map(|()| stack.take("morton keys", n * WORD));
    stack.pass("sort", library::sort(n, Key::Bits32, KEY_BITS).0);
    for key in keys {
        stack.give_back(key);
    }
    let (gone, kept) = if library::ends_in_second(n, Key::Bits32, KEY_BITS) {
        (first, second)
    } else {
        (second, first)
    };
    stack.give_back(gone);
    let at_once = (MOVED_WORDS / n).clamp(1, model.widest());
    stack.pass("moved columns", n * at_once * WORD);
    stack.give_back(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Bytes;
    use crate::memory::plan::{OptionalColumns, Storage};

    fn model(gaussians: u64) -> ModelSize {
        let (storage, optional) = (Storage::Full, OptionalColumns::NONE);
        ModelSize { gaussians, sh_degree: 3, storage, optional }
    }

    fn peak(stack: &Stack, label: &str) -> u64 {
        stack.peaks().iter().find(|row| row.label == label).map_or(0, |row| row.bytes.0)
    }

    #[test]
    fn a_round_takes_eight_bytes_a_gaussian_and_a_chunk_of_rows() {
        let mut stack = Stack::default();
        densify(&mut stack, &model(1_000_000), (5000, 5000));
        assert_eq!(peak(&stack, "density flags") + peak(&stack, "density ranks"), 8 * 1_005_000);
        assert_eq!(peak(&stack, "density rows"), (1 << 25) + 32 * 177 * 4);
        assert_eq!(peak(&stack, "candidates"), 0, "all are born");
        let all = stack.reach();
        densify(&mut stack, &model(1_000_000), (5000, 4999));
        assert_eq!(peak(&stack, "candidates"), 2 * 4 * 5000);
        assert!(stack.reach() > all);
    }

    #[test]
    fn moving_the_dead_takes_no_more_than_putting_all_in_order() {
        for gaussians in [1, 1000, 1_000_000, 100_000_000] {
            let (mut round, mut order) = (Stack::default(), Stack::default());
            relocate(&mut round, &model(gaussians), gaussians / 20);
            reorder(&mut order, &model(gaussians + gaussians / 20));
            // Parts of the library's scratch begin at round addresses.
            assert!(round.reach().0 <= order.reach().0 + 2048, "{gaussians}");
        }
        let mut stack = Stack::default();
        relocate(&mut stack, &model(1_000_000), 50_000);
        assert_eq!(peak(&stack, "density weights"), 8_000_000);
        assert_eq!(peak(&stack, "density sources"), 4_000_000);
    }

    #[test]
    fn order_takes_a_column_at_least_and_no_more_than_a_table() {
        for (gaussians, moved) in
            [(100, 100 * 48 * 4), (1 << 20, 1 << 25), (3 << 20, 6 << 22), (20 << 20, 20 << 22)]
        {
            let mut stack = Stack::default();
            reorder(&mut stack, &model(gaussians));
            assert_eq!(peak(&stack, "moved columns"), moved, "{gaussians}");
        }
        let mut stack = Stack::default();
        reorder(&mut stack, &model(0));
        assert_eq!(stack.reach(), Bytes(0));
    }
}
