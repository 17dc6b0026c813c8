//! The order in which images will be fetched.

use std::collections::{BTreeMap, BTreeSet};

/// Images in the order of their turns; one may come up several times.
#[derive(Debug, Default)]
pub(super) struct PrefetchQueue {
    image_from_turn: BTreeMap<u64, usize>,
    turns_from_image: BTreeMap<usize, BTreeSet<u64>>,
}

impl PrefetchQueue {
    /// A queue of these images, one after the other.
    pub(super) fn new(order: impl Iterator<Item = usize>) -> Self {
        let mut queue = Self::default();
        for (turn, image) in (0..).zip(order) {
            queue.image_from_turn.insert(turn, image);
            queue.turns_from_image.entry(image).or_default().insert(turn);
        }
        queue
    }

    /// The first turn of the image that is still to come.
    pub(super) fn turn_of(&self, image: usize) -> Option<u64> {
        self.turns_from_image.get(&image)?.first().copied()
    }

    /// Removes the image's first turn: it has been used.
    pub(super) fn pop(&mut self, image: usize) {
        let Some(turns) = self.turns_from_image.get_mut(&image) else { return };
        if let Some(turn) = turns.pop_first() {
            self.image_from_turn.remove(&turn);
        }
        if turns.is_empty() {
            self.turns_from_image.remove(&image);
        }
    }

    /// Removes all of the image's turns.
    pub(super) fn remove(&mut self, image: usize) {
        for turn in self.turns_from_image.remove(&image).unwrap_or_default() {
            self.image_from_turn.remove(&turn);
        }
    }

    /// The first turn that is not before `turn`, and its image.
    pub(super) fn next_from(&self, turn: u64) -> Option<(u64, usize)> {
        self.image_from_turn.range(turn..).next().map(|(&turn, &image)| (turn, image))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_come_up_in_the_scheduled_order_and_number() {
        let mut queue = PrefetchQueue::new([5, 2, 5, 9].into_iter());
        assert_eq!(queue.next_from(0), Some((0, 5)));
        assert_eq!(queue.next_from(3), Some((3, 9)));
        queue.pop(5);
        queue.pop(7);
        assert_eq!((queue.next_from(0), queue.turn_of(5)), (Some((1, 2)), Some(2)));
        queue.pop(5);
        assert_eq!((queue.turn_of(5), queue.next_from(2)), (None, Some((3, 9))));
    }

    #[test]
    fn a_removed_image_does_not_come_up_again() {
        let mut queue = PrefetchQueue::new([5, 2, 5].into_iter());
        queue.remove(5);
        queue.remove(7);
        assert_eq!((queue.turn_of(5), queue.next_from(0)), (None, Some((1, 2))));
    }
}
