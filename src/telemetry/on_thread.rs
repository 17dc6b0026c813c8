//! A sink on its own thread, so that training does not wait for writes.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::files::OutputError;
use crate::memory::plan::PICTURED_VIEWS;
use crate::train::event::{Completes, Completion, Event, Sink};

enum Message {
    Event(Box<Event>),
    /// Completed when everything before it is written.
    Written(Completes),
}

#[derive(Debug, Default)]
struct ThreadReport {
    /// Number of pictured views that are not written yet.
    pictured: AtomicUsize,
    failed: Mutex<Option<OutputError>>,
}

/// A sink on a thread. Its errors are those of earlier events.
pub(super) struct OnThread {
    /// `None` after the thread was asked to end.
    messages: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    report: Arc<ThreadReport>,
}

impl OnThread {
    /// Starts the thread; if it cannot be started, the error names `path`.
    pub(super) fn start<S: Sink + Send + 'static>(
        path: &Path,
        mut sink: S,
    ) -> Result<Self, OutputError> {
        let (messages, received) = channel();
        let report = Arc::<ThreadReport>::default();
        let shared = Arc::clone(&report);
        let work = move || {
            for message in received {
                let event: Box<Event> = match message {
                    Message::Event(event) => event,
                    Message::Written(completes) => {
                        drop(completes);
                        continue;
                    }
                };
                if let Err(error) = sink.on(&event) {
                    *shared.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
                if is_large(&event) {
                    shared.pictured.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        let thread = Builder::new().name("telemetry".to_owned()).spawn(work);
        let thread = thread.map_err(|source| OutputError::new(path, source))?;
        Ok(Self { messages: Some(messages), thread: Some(thread), report })
    }

    fn send(&mut self, message: Message) {
        if let Some(messages) = &self.messages {
            // Fails only if the thread has panicked, which shows when it is joined.
            messages.send(message).ok();
        }
    }

    /// Waits until the thread has written everything.
    fn end(&mut self) {
        self.messages = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

fn is_large(event: &Event) -> bool {
    matches!(event, Event::Pictures(_) | Event::TimelapsePicture { .. })
}

impl Sink for OnThread {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        if is_large(event) {
            // At most the pictures of one evaluation are queued, because they are large.
            if self.report.pictured.load(Ordering::Relaxed) >= PICTURED_VIEWS {
                self.written().iter().for_each(Completion::wait);
            }
            self.report.pictured.fetch_add(1, Ordering::Relaxed);
        }
        self.send(Message::Event(Box::new(event.clone())));
        if matches!(event, Event::Finished { .. }) {
            self.end();
        }
        let failed = self.report.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }

    fn written(&mut self) -> Vec<Completion> {
        let (completes, written) = Completion::new();
        self.send(Message::Written(completes));
        vec![written]
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            // A second panic would abort the program.
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::train::event::{PhasePeaks, RunTimes};

    /// A sink that counts events and fails at the first.
    struct FailingOnce(Arc<Mutex<u32>>);

    impl Sink for FailingOnce {
        fn on(&mut self, _event: &Event) -> Result<(), OutputError> {
            let mut count = self.0.lock().unwrap();
            *count += 1;
            if *count == 1 {
                return Err(OutputError::new(Path::new("a"), ErrorKind::StorageFull.into()));
            }
            Ok(())
        }
    }

    #[test]
    fn every_event_is_written_and_an_error_reported_once() {
        let count = Arc::new(Mutex::new(0));
        let mut sink = OnThread::start(Path::new("a"), FailingOnce(Arc::clone(&count))).unwrap();
        let mut errors = 0;
        for iteration in 0..100 {
            errors += u32::from(sink.on(&Event::OpacityReset { iteration }).is_err());
        }
        sink.written().iter().for_each(Completion::wait);
        assert_eq!(*count.lock().unwrap(), 100);
        let end = Event::Finished {
            iteration: 100,
            gaussians: 1,
            training_seconds: 2.0,
            interrupted: false,
            peaks: PhasePeaks::default(),
            times: RunTimes::default(),
        };
        errors += u32::from(sink.on(&end).is_err());
        assert_eq!((*count.lock().unwrap(), errors), (101, 1));
        // Nothing is left to wait for.
        sink.written().iter().for_each(Completion::wait);
    }
}
