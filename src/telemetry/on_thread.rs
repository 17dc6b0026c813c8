//! A sink on a thread of its own, so that training does not wait for what it writes.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::files::OutputError;
use crate::train::event::{Event, Sink};

/// Events that may wait for the thread. Those of an evaluation's pictures take most memory: a few pictures
/// of one view each.
const WAITING: usize = 32;

/// What the thread gets.
enum Message {
    Event(Event),
    /// To be answered when all before it is done.
    Answer(SyncSender<()>),
}

/// A sink that works on a thread. Its errors are those of earlier events.
pub(super) struct OnThread {
    /// Nothing once the thread was asked to end.
    messages: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<Mutex<Option<OutputError>>>,
}

impl OnThread {
    /// Starts the thread; errors of that name `path`.
    pub(super) fn start<S: Sink + Send + 'static>(
        path: &Path,
        sink: S,
    ) -> Result<Self, OutputError> {
        let (messages, received) = sync_channel(WAITING);
        let failed = Arc::default();
        let thread = start(sink, received, Arc::clone(&failed));
        let thread = thread.map_err(|source| OutputError::new(path, source))?;
        Ok(Self { messages: Some(messages), thread: Some(thread), failed })
    }

    /// Lets the thread write all that it has got.
    fn end(&mut self) {
        self.messages = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

fn start<S: Sink + Send + 'static>(
    mut sink: S,
    messages: Receiver<Message>,
    failed: Arc<Mutex<Option<OutputError>>>,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name("telemetry".to_owned()).spawn(move || {
        for message in messages {
            match message {
                Message::Event(event) => {
                    if let Err(error) = sink.on(&event) {
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    }
                }
                // Who asked may have gone.
                Message::Answer(to) => to.send(()).unwrap_or_default(),
            }
        }
    })
}

impl Sink for OnThread {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        if let Some(messages) = &self.messages {
            // The thread ends before this value only in a panic, which its end tells.
            messages.send(Message::Event(event.clone())).ok();
        }
        if matches!(event, Event::Finished { .. }) {
            self.end();
        }
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }

    fn wait(&mut self) {
        let (to, answer) = sync_channel(1);
        if let Some(messages) = &self.messages
            && messages.send(Message::Answer(to)).is_ok()
        {
            answer.recv().ok();
        }
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            // A second panic would end the program.
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::train::event::RunTimes;

    /// Fails at the first event, and counts all.
    struct Fragile(Arc<Mutex<u32>>);

    impl Sink for Fragile {
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
    fn every_event_comes_and_an_error_is_told_once() {
        let count = Arc::new(Mutex::new(0));
        let mut sink = OnThread::start(Path::new("a"), Fragile(Arc::clone(&count))).unwrap();
        let mut errors = 0;
        for iteration in 0..100 {
            errors += u32::from(sink.on(&Event::OpacityReset { iteration }).is_err());
        }
        sink.wait();
        assert_eq!(*count.lock().unwrap(), 100);
        let (gaussians, training_seconds, interrupted) = (1, 2.0, false);
        let times = RunTimes::default();
        let end =
            Event::Finished { iteration: 100, gaussians, training_seconds, interrupted, times };
        errors += u32::from(sink.on(&end).is_err());
        assert_eq!((*count.lock().unwrap(), errors), (101, 1));
        // Nothing is left to wait for.
        sink.wait();
    }
}
