//! How much memory is taken while something is done.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what the thread that asks has taken. Readers take all their memory on the thread that calls
/// them.
struct CountingAllocator;

thread_local! {
    static TAKEN: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // At the end of a thread there is nothing left to count in.
    let _ended = TAKEN.try_with(|taken| {
        taken.set(taken.get() + bytes);
        PEAK.try_with(|peak| peak.set(peak.get().max(taken.get())))
    });
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: all calls go to the system's allocator with the same arguments; counting takes no memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The most bytes that were taken at a time while `work` ran on this thread, and what it gave.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = TAKEN.get();
    PEAK.set(before);
    let made = work();
    (usize::try_from(PEAK.get() - before).unwrap_or(0), made)
}

#[test]
fn the_peak_is_what_was_held_at_once() {
    let (peak, _) = peak_of(|| {
        drop(vec![1_u8; 5000]);
        vec![1_u8; 3000].len()
    });
    assert!((5000..5200).contains(&peak), "{peak}");
}
