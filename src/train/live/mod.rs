//! Live page of a run. In `MODEL/live/`, `splat view` signals that it is watched and leaves requests, and the run
//! writes its current Gaussians.
//!
//! The page does not change what is trained. An unwatched run checks the folder once a second.

mod folder;
mod splats;

use std::num::NonZeroUsize;
use std::path::Path;
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::{Duration, Instant, SystemTime};

use self::folder::{ControlFault, take_request};
use self::splats::{LiveSplatsError, write_splats};
use crate::config::{OutputOptions, PrimitiveName};
use crate::export::RenderMode;
use crate::memory::Bytes;
use crate::model::Gaussians;

pub use self::folder::{ControlRequest, LiveFolder};

pub(super) use self::splats::{MOST_SPLATS, most_visible, packing_bytes};

// The run's side: requests and splats.

/// Minimum interval between two checks of the folder during training.
const TRAINING: Duration = Duration::from_secs(1);

/// Interval during a pause.
const PAUSED: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct PageNews {
    pub(super) request: Option<ControlRequest>,
    /// True if the page is watched and its next splats are due.
    pub(super) needs_splats: bool,
    /// Warnings for the user.
    pub(super) problems: Vec<String>,
}

/// Splats that a thread is writing.
#[derive(Debug)]
struct LiveWriting {
    began: Instant,
    /// Time for which the run waited.
    reading: Duration,
    copy: Bytes,
    thread: JoinHandle<(Result<(), LiveSplatsError>, Duration)>,
}

/// Run's side of the page. Dropping it removes the folder.
#[derive(Debug)]
pub(super) struct LivePage {
    folder: LiveFolder,
    /// True if requests are carried out.
    accepts_requests: bool,
    /// Intervals of the splats. `None` if none are shown.
    pace: Option<LivePace>,
    looked: Option<Instant>,
    /// True if the run is paused.
    pub(super) is_paused: bool,
    writing: Option<LiveWriting>,
    /// Iteration of the last splats.
    shown: Option<u32>,
    /// True if the user was warned that splats cannot be shown.
    has_complained: bool,
}

impl LivePage {
    /// Opens the page of a run that holds its folder's lock. Removes the files of a killed run.
    pub(super) fn new(
        model_path: &Path,
        options: &OutputOptions,
        primitive: PrimitiveName,
    ) -> Self {
        let folder = LiveFolder::of(model_path);
        folder.remove();
        let shows = primitive != PrimitiveName::Triangles;
        Self {
            folder,
            accepts_requests: options.live_control,
            pace: LivePace::every(options.live_every).filter(|_| shows),
            looked: None,
            is_paused: false,
            writing: None,
            shown: None,
            has_complained: false,
        }
    }

    /// Checks for news after an iteration. Usually returns `None` after reading the clock.
    pub(super) fn poll(&mut self, iteration: u32) -> Option<PageNews> {
        if !self.accepts_requests && self.pace.is_none() {
            return None;
        }
        let now = Instant::now();
        self.poll_at(iteration, now, SystemTime::now)
    }

    fn poll_at(
        &mut self,
        iteration: u32,
        now: Instant,
        time: impl FnOnce() -> SystemTime,
    ) -> Option<PageNews> {
        let interval = if self.is_paused { PAUSED } else { TRAINING };
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < interval) {
            return None;
        }
        self.looked = Some(now);
        let mut news = PageNews::default();
        self.settle(&mut news);
        if !self.folder.is_there() {
            return Some(news);
        }
        if self.accepts_requests {
            match take_request(&self.folder) {
                Ok(request) => news.request = request,
                Err(fault) => {
                    self.accepts_requests = !matches!(fault, ControlFault::Stays { .. });
                    news.problems.push(fault.to_string());
                }
            }
        }
        let is_due = self.pace.as_ref().is_some_and(|pace| pace.is_due(now));
        news.needs_splats = is_due
            && self.writing.is_none()
            && self.shown != Some(iteration)
            && self.folder.is_watched(time());
        Some(news)
    }

    /// Starts a thread that writes splats. The run has waited since `began`.
    pub(super) fn show(
        &mut self,
        iteration: u32,
        gaussians: Gaussians,
        mode: RenderMode,
        copy: Bytes,
        began: Instant,
    ) {
        let folder = self.folder.clone();
        let write = move || {
            let started = Instant::now();
            let written = write_splats(&folder.splats(iteration), gaussians, mode);
            if written.is_ok() {
                folder.remove_splats_but(Some(iteration));
            }
            (written, started.elapsed())
        };
        self.shown = Some(iteration);
        let reading = began.elapsed();
        match Builder::new().name("live".to_owned()).spawn(write) {
            Ok(thread) => self.writing = Some(LiveWriting { began, reading, copy, thread }),
            // No thread is available now. Try again later.
            Err(_) => self.wait_after(began, reading),
        }
    }

    /// Records a failed attempt that began at `began`. Returns true if the user is not yet warned.
    pub(super) fn give_up(&mut self, began: Instant) -> bool {
        self.wait_after(began, began.elapsed());
        !std::mem::replace(&mut self.has_complained, true)
    }

    /// Returns the memory of Gaussians that a thread holds.
    pub(super) fn held(&self) -> Bytes {
        self.writing.as_ref().map_or(Bytes(0), |writing| writing.copy)
    }

    /// Processes splats that are written.
    fn settle(&mut self, news: &mut PageNews) {
        let Some(writing) = self.writing.take_if(|writing| writing.thread.is_finished()) else {
            return;
        };
        let LiveWriting { began, reading, thread, .. } = writing;
        let Ok((written, packing)) = thread.join() else {
            // A failure of the page must not end the run.
            self.pace = None;
            news.problems.push(
                "the page shows no more Gaussians: packing them failed, by a defect of this program. \
                 Please report it"
                    .to_owned(),
            );
            return;
        };
        // The thread used one of the processors that the run shares.
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let packing = packing / u32::try_from(processors).unwrap_or(u32::MAX);
        self.wait_after(began, reading + packing);
        if let Err(error) = written
            && !std::mem::replace(&mut self.has_complained, true)
        {
            news.problems.push(format!("the page does not show the Gaussians: {error}"));
        }
    }

    fn wait_after(&mut self, began: Instant, cost: Duration) {
        if let Some(pace) = &mut self.pace {
            pace.wait_after(began, cost);
        }
    }
}

impl Drop for LivePage {
    fn drop(&mut self) {
        if let Some(writing) = self.writing.take() {
            // Ignore errors, because the run is over.
            writing.thread.join().ok();
        }
        self.folder.remove();
    }
}

// Intervals of the splats.

/// Ratio of the interval to the cost of showing splats: 2 % of a run's time.
const COST_RATIO: u32 = 50;

/// Schedule of the splats.
#[derive(Debug)]
struct LivePace {
    /// Minimum interval.
    every: Duration,
    next: Option<Instant>,
}

impl LivePace {
    /// Shows splats every `seconds`. `None` if the number means never.
    fn every(seconds: f64) -> Option<Self> {
        let every = Duration::try_from_secs_f64(seconds).ok().filter(|every| !every.is_zero())?;
        Some(Self { every, next: None })
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// Schedules the next splats after some that began at `began` and took `cost` of the run's time.
    fn wait_after(&mut self, began: Instant, cost: Duration) {
        self.next = began.checked_add(self.every.max(cost.saturating_mul(COST_RATIO)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::train::event::ControlAction;

    struct Place {
        model: tempfile::TempDir,
        start: Instant,
    }

    impl Place {
        fn new() -> (Self, LivePage) {
            let place = Self { model: tempfile::tempdir().unwrap(), start: Instant::now() };
            let page = place.page(&OutputOptions::default(), PrimitiveName::Gaussians);
            (place, page)
        }

        fn page(&self, options: &OutputOptions, primitive: PrimitiveName) -> LivePage {
            LivePage::new(self.model.path(), options, primitive)
        }

        fn write(&self, name: &str, text: &str) {
            fs::create_dir_all(self.model.path().join("live")).unwrap();
            fs::write(self.model.path().join("live").join(name), text).unwrap();
        }

        /// Checks the folder `seconds` after the start.
        fn poll(&self, page: &mut LivePage, iteration: u32, seconds: f64) -> Option<PageNews> {
            let now = self.start + Duration::from_secs_f64(seconds);
            page.poll_at(iteration, now, SystemTime::now)
        }
    }

    const PAUSE: &str = r#"{"id": "1", "action": "pause"}"#;

    #[test]
    fn the_folder_is_checked_once_a_second_and_more_often_in_a_pause() {
        let (place, mut page) = Place::new();
        let polls = |page: &mut LivePage, seconds: f64| place.poll(page, 1, seconds).is_some();
        assert!(polls(&mut page, 0.0) && !polls(&mut page, 0.99) && polls(&mut page, 1.0));
        page.is_paused = true;
        assert!(!polls(&mut page, 1.09) && polls(&mut page, 1.11) && polls(&mut page, 1.22));
        page.is_paused = false;
        assert!(!polls(&mut page, 1.5) && polls(&mut page, 2.3));
    }

    #[test]
    fn a_request_is_returned_once() {
        let (place, mut page) = Place::new();
        place.write("control_1.json", PAUSE);
        let news = place.poll(&mut page, 1, 0.0).unwrap();
        assert_eq!(news.request.unwrap().action, ControlAction::Pause);
        assert!(place.poll(&mut page, 1, 1.0).unwrap().request.is_none());
        place.write("control_1.json", "{");
        let news = place.poll(&mut page, 1, 2.0).unwrap();
        assert!(news.request.is_none() && news.problems[0].contains("control_1.json"));
    }

    #[test]
    fn splats_are_wanted_if_watched_and_due() {
        let (place, mut page) = Place::new();
        let needs_splats = |page: &mut LivePage, iteration: u32, seconds: f64| {
            place.poll(page, iteration, seconds).unwrap().needs_splats
        };
        assert!(!needs_splats(&mut page, 1, 0.0));
        place.write("watch", "");
        assert!(needs_splats(&mut page, 1, 1.0));
        let began = place.start + Duration::from_secs(1);
        page.show(1, Gaussians::zeros(0, 3), RenderMode::Dilated, Bytes(7), began);
        assert_eq!(page.held(), Bytes(7));
        // No new splats while earlier ones are being written.
        while page.writing.as_ref().is_some_and(|writing| !writing.thread.is_finished()) {
            std::thread::yield_now();
        }
        assert!(!needs_splats(&mut page, 2, 4.0));
        assert_eq!(page.held(), Bytes(0));
        let live = place.model.path().join("live");
        assert!(!needs_splats(&mut page, 1, 3600.0), "nothing has changed since");
        assert!(needs_splats(&mut page, 2, 3601.0));
        page.show(2, Gaussians::zeros(0, 3), RenderMode::Dilated, Bytes(7), began);
        drop(page);
        assert!(!live.exists());
    }

    #[test]
    fn new_splats_replace_the_earlier_file() {
        let (place, mut page) = Place::new();
        place.write("splats_1.spz", "old");
        let mode = RenderMode::Dilated;
        page.show(2, Gaussians::zeros(0, 3), mode, Bytes(7), place.start);
        page.writing.take().unwrap().thread.join().unwrap().0.unwrap();
        let live = place.model.path().join("live");
        assert!(live.join("splats_2.spz").exists() && !live.join("splats_1.spz").exists());
    }

    #[test]
    fn disabled_features_do_nothing() {
        let (place, _) = Place::new();
        let options = OutputOptions { live_control: false, ..OutputOptions::default() };
        let mut page = place.page(&options, PrimitiveName::Gaussians);
        place.write("control_1.json", PAUSE);
        place.write("watch", "");
        let news = place.poll(&mut page, 1, 0.0).unwrap();
        assert!(news.request.is_none() && news.needs_splats);
        assert!(place.model.path().join("live/control_1.json").exists());
        let options = OutputOptions { live_every: 0.0, ..options };
        assert!(place.page(&options, PrimitiveName::Gaussians).poll(1).is_none());
        let mut page = place.page(&OutputOptions::default(), PrimitiveName::Triangles);
        place.write("watch", "");
        assert!(!place.poll(&mut page, 1, 0.0).unwrap().needs_splats);
    }

    #[test]
    fn a_failure_is_reported_once_and_files_of_a_killed_run_are_removed_at_the_start() {
        let (place, mut page) = Place::new();
        assert!(page.give_up(Instant::now()) && !page.give_up(Instant::now()));
        drop(page);
        place.write("control_1.json", PAUSE);
        place.write("splats_7.spz", "old");
        let _page = place.page(&OutputOptions::default(), PrimitiveName::Gaussians);
        assert!(!place.model.path().join("live").exists());
    }

    #[test]
    fn expensive_splats_come_less_often() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut pace = LivePace::every(5.0).unwrap();
        assert!(pace.is_due(start));
        pace.wait_after(start, Duration::from_millis(20));
        assert!(!pace.is_due(at(4.9)) && pace.is_due(at(5.0)));
        // 2 s are 2 % of 100 s.
        pace.wait_after(at(5.0), Duration::from_secs(2));
        assert!(!pace.is_due(at(104.9)) && pace.is_due(at(105.0)));
        assert!(LivePace::every(0.0).is_none());
    }
}
