//! Work that another thread does, and those who wait for its end.

use std::sync::{Arc, OnceLock};

/// The end of some work, for which any number of threads may wait.
#[derive(Clone, Debug)]
pub struct Completion(Arc<OnceLock<()>>);

/// Held by who does the work: it is over when this value goes, also in a panic.
#[derive(Debug)]
pub struct Completes(Arc<OnceLock<()>>);

impl Completion {
    /// Of work that is still to be done.
    pub fn new() -> (Completes, Self) {
        let over = Arc::<OnceLock<()>>::default();
        (Completes(Arc::clone(&over)), Self(over))
    }

    /// Returns when the work is over.
    pub fn wait(&self) {
        self.0.wait();
    }
}

impl Drop for Completes {
    fn drop(&mut self) {
        // Nobody else sets it.
        self.0.set(()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_go_on_when_the_work_is_over_or_panics() {
        let (done, over) = Completion::new();
        let (panics, given_up) = Completion::new();
        let waits = [over.clone(), over, given_up]
            .map(|completion| std::thread::spawn(move || completion.wait()));
        drop(done);
        std::thread::spawn(move || {
            let _held = panics;
            std::panic::resume_unwind(Box::new(()));
        })
        .join()
        .unwrap_err();
        for wait in waits {
            wait.join().unwrap();
        }
    }
}
