//! Places of connections: those whose client has sent the token have places of their own, and the others
//! cannot take these.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// Connections of clients with the token. A browser has six.
const AUTHORISED: usize = 64;

/// Connections of other clients. The oldest one is dropped for one more.
const STRANGERS: usize = 256;

/// All connections of a server.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<TakenPlaces>);

#[derive(Debug, Default)]
struct TakenPlaces {
    /// Number of the next connection.
    next: u64,
    /// Connections without the token, the oldest first.
    strangers: VecDeque<(u64, AbortHandle)>,
    /// Numbers of the connections with the token.
    authorised: Vec<u64>,
}

/// A connection's place, which is free again when this value is dropped.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// Starts a task that serves a new connection.
    pub(super) fn start<F>(self: &Arc<Self>, serve: impl FnOnce(Place) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut taken = self.taken();
        let number = taken.next;
        taken.next += 1;
        if taken.strangers.len() >= STRANGERS
            && let Some((_, oldest)) = taken.strangers.pop_front()
        {
            oldest.abort();
        }
        // The task cannot give its place back before it has one: that waits for the lock.
        let task = tokio::spawn(serve(Place { number, connections: Arc::clone(self) }));
        taken.strangers.push_back((number, task.abort_handle()));
    }

    fn taken(&self) -> MutexGuard<'_, TakenPlaces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Reserves the place for a client with the token. False if all reserved places are taken.
    pub(super) fn authorise(&self) -> bool {
        let taken = &mut *self.connections.taken();
        if taken.authorised.contains(&self.number) {
            return true;
        }
        let is_free = taken.authorised.len() < AUTHORISED;
        if is_free {
            taken.strangers.retain(|(number, _)| *number != self.number);
            taken.authorised.push(self.number);
        }
        is_free
    }

    /// True if the client has sent the token.
    pub(super) fn is_authorised(&self) -> bool {
        self.connections.taken().authorised.contains(&self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.connections.taken();
        taken.strangers.retain(|(number, _)| *number != self.number);
        taken.authorised.retain(|number| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn with_runtime(test: impl AsyncFnOnce(&Arc<Connections>)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(test(&Arc::default()));
    }

    /// Lets all tasks run that can.
    async fn settle() {
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }

    /// Counts the connections of a kind that are served.
    async fn hold(place: Place, count: Arc<AtomicUsize>) {
        struct Served(Arc<AtomicUsize>, #[expect(dead_code, reason = "held")] Place);
        impl Drop for Served {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
        let _served = Served(count, place);
        std::future::pending::<()>().await;
    }

    #[test]
    fn strangers_push_each_other_out_and_nobody_with_the_token() {
        with_runtime(async |connections| {
            let [friends, strangers] = [0, 1].map(|_| Arc::new(AtomicUsize::new(0)));
            for _ in 0..3 {
                let friends = Arc::clone(&friends);
                connections.start(async move |place| {
                    assert!(place.authorise() && place.is_authorised());
                    hold(place, friends).await;
                });
            }
            settle().await;
            for _ in 0..3 * STRANGERS {
                let strangers = Arc::clone(&strangers);
                connections.start(|place| hold(place, strangers));
                settle().await;
            }
            let counts = [&friends, &strangers].map(|count| count.load(Ordering::Relaxed));
            assert_eq!(counts, [3, STRANGERS]);
        });
    }

    #[test]
    fn reserved_places_end_and_come_back() {
        with_runtime(async |connections| {
            let place = |number| Place { number, connections: Arc::clone(connections) };
            let mut places: Vec<_> = (0..AUTHORISED as u64).map(place).collect();
            assert!(places.iter().all(|place| place.authorise() && place.authorise()));
            let last = place(1000);
            assert!(!last.authorise() && !last.is_authorised());
            places.pop();
            assert!(last.authorise());
        });
    }
}
