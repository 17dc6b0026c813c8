//! Samples of the GPU's state during training.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::backend::nvidia::{self, GpuSample};
use crate::train::event::GpuReport;
use crate::train::span::ImageSpan;

const INTERVAL: u32 = 50;

/// Iterations between the request of a sample, which takes some milliseconds, and its report.
const AHEAD: u32 = 10;

/// Longest wait for the last sample at the end of a run, because a driver may hang.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// A thread that owns the management library and samples the GPU on request. Training takes the samples that have
/// arrived and never waits.
pub(super) struct GpuSampler {
    requests: SyncSender<()>,
    samples: Receiver<GpuSample>,
    thread: Option<JoinHandle<()>>,
}

impl GpuSampler {
    /// Samples the GPU with this identifier.
    pub(super) fn of_gpu(uuid: &str) -> Option<Self> {
        let uuid = uuid.to_owned();
        Self::start(move |requests, samples| {
            let watched = nvidia::watch(&uuid, |measure| answer(&requests, &samples, measure));
            if let Err(reason) = watched {
                tracing::debug!("there will be no figures of the GPU: {reason}");
            }
        })
    }

    /// Runs `work` in a thread; `None` if it cannot be started.
    fn start(work: impl FnOnce(Receiver<()>, Sender<GpuSample>) + Send + 'static) -> Option<Self> {
        // One request may wait during the previous one; more would be late.
        let (requests, receiver) = sync_channel(1);
        let (answers, samples) = channel();
        let named = thread::Builder::new().name("gpu sampler".to_owned());
        let thread = named.spawn(move || work(receiver, answers));
        let thread = thread.inspect_err(|error| {
            tracing::debug!("there will be no figures of the GPU: {error}");
        });
        Some(Self { requests, samples, thread: Some(thread.ok()?) })
    }

    /// Records a finished step; returns a report when one is due.
    pub(super) fn after(&self, span: ImageSpan) -> Option<GpuReport> {
        let ahead = ImageSpan { before: span.before + AHEAD, after: span.after + AHEAD };
        if ahead.crosses(INTERVAL) {
            // If the thread is late or gone, the next report is an old one.
            self.requests.try_send(()).ok();
        }
        if !span.crosses(INTERVAL) {
            return None;
        }
        let iteration = span.after;
        let sample = self.samples.try_iter().last()?;
        (!sample.is_empty()).then_some(GpuReport { iteration, sample })
    }
}

fn answer(requests: &Receiver<()>, samples: &Sender<GpuSample>, measure: &dyn Fn() -> GpuSample) {
    while requests.recv().is_ok() && samples.send(measure()).is_ok() {}
}

impl Drop for GpuSampler {
    /// Ends the thread, or leaves it if the driver hangs.
    fn drop(&mut self) {
        let (nobody, _) = sync_channel(0);
        self.requests = nobody;
        loop {
            match self.samples.recv_timeout(MAX_WAIT) {
                Ok(_late) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return,
            }
        }
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    /// Returns a sampler of a GPU that warms by a degree per sample.
    fn warming(is_done: &Arc<AtomicBool>) -> GpuSampler {
        let is_done = Arc::clone(is_done);
        let work = move |requests: Receiver<()>, samples: Sender<GpuSample>| {
            let readings = Cell::new(40);
            answer(&requests, &samples, &|| {
                readings.set(readings.get() + 1);
                GpuSample { temperature_c: Some(readings.get()), ..GpuSample::default() }
            });
            drop(samples);
            is_done.store(true, Ordering::Relaxed);
        };
        GpuSampler::start(work).unwrap()
    }

    /// Runs iterations that take long enough for a sample.
    fn reports(sampler: &GpuSampler, iterations: std::ops::RangeInclusive<u32>) -> Vec<(u32, u32)> {
        let mut reports = Vec::new();
        for iteration in iterations {
            reports.extend(
                sampler
                    .after(ImageSpan::of(iteration))
                    .map(|report| (report.iteration, report.sample.temperature_c.unwrap())),
            );
            if (iteration + AHEAD).is_multiple_of(INTERVAL) {
                thread::sleep(Duration::from_millis(100));
            }
        }
        reports
    }

    #[test]
    fn every_fiftieth_iteration_reports_the_newest_sample() {
        let is_done = Arc::new(AtomicBool::new(false));
        let sampler = warming(&is_done);
        assert_eq!(reports(&sampler, 1..=120), [(50, 41), (100, 42)]);
        drop(sampler);
        assert!(is_done.load(Ordering::Relaxed));
    }

    #[test]
    fn empty_samples_and_an_ended_thread_are_not_reported() {
        let work = |requests: Receiver<()>, samples: Sender<GpuSample>| {
            answer(&requests, &samples, &GpuSample::default);
        };
        let sampler = GpuSampler::start(work).unwrap();
        assert_eq!(reports(&sampler, 30..=60), []);
        let sampler = GpuSampler::start(|_, _| {}).unwrap();
        assert_eq!(reports(&sampler, 30..=60), []);
    }

    #[test]
    fn hanging_driver_does_not_block_training() {
        let (release, hold) = sync_channel::<()>(0);
        let work = move |requests: Receiver<()>, _samples: Sender<GpuSample>| {
            requests.recv().ok();
            hold.recv().ok();
        };
        let sampler = GpuSampler::start(work).unwrap();
        let started = Instant::now();
        for iteration in 1..=1000 {
            assert!(sampler.after(ImageSpan::of(iteration)).is_none());
        }
        assert!(started.elapsed() < MAX_WAIT, "the training waited");
        drop(sampler);
        assert!(started.elapsed() < 3 * MAX_WAIT, "the end waited");
        drop(release);
    }

    #[test]
    fn missing_gpu_ends_the_thread() {
        let sampler = GpuSampler::of_gpu("GPU-none").unwrap();
        let started = Instant::now();
        drop(sampler);
        assert!(started.elapsed() < MAX_WAIT);
    }
}
