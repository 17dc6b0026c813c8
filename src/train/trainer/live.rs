//! Requests and pictures of the live page, and the timelapse.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Trainer;
use super::saving::has_room;
use crate::backend::{RenderRequest, RenderSettings, TrainDevice};
use crate::model::Gaussians;
use crate::train::checkpoint::Occasion;
use crate::train::event::{ControlAction, Event, Phase};
use crate::train::live::{MOST_SPLATS, most_visible, packing_bytes};
use crate::train::pictures::render_picture;
use crate::train::save::drawn_rows;
use crate::train::{TrainError, schedule};

/// Interval at which a paused run checks whether to resume.
const NAP: Duration = Duration::from_millis(100);

impl<B: TrainDevice> Trainer<'_, B> {
    /// Carries out requests of the page between two iterations. Returns from a pause after the
    /// page's request or a signal.
    pub(super) fn serve_page(&mut self) -> Result<(), TrainError> {
        if self.answer_page()? != Some(ControlAction::Pause) {
            return Ok(());
        }
        self.live.is_paused = true;
        let waited = self.wait_for_page();
        self.live.is_paused = false;
        waited
    }

    fn wait_for_page(&mut self) -> Result<(), TrainError> {
        while !self.setup.stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            sleep(NAP);
            self.times.paused_seconds += began.elapsed().as_secs_f64();
            // Earlier files may be complete now.
            self.settle_written()?;
            if self.answer_page()? == Some(ControlAction::Resume) {
                break;
            }
        }
        Ok(())
    }

    /// Carries out the page's request, unless it is a pause, and returns it.
    fn answer_page(&mut self) -> Result<Option<ControlAction>, TrainError> {
        let Some(news) = self.live.poll(self.iteration) else { return Ok(None) };
        for problem in news.problems {
            self.warn(problem)?;
        }
        let action = news.request.as_ref().map(|request| request.action);
        if let Some(request) = news.request {
            self.settle_step()?;
            let (iteration, action, id) = (self.iteration, request.action, request.id);
            self.sink.on(&Event::Control { iteration, action, id })?;
        }
        match action {
            Some(ControlAction::Checkpoint) => {
                self.end_phase(self.phase());
                self.write_checkpoint_between(Occasion::Requested)?;
            }
            Some(ControlAction::Stop) => self.setup.stop.store(true, Ordering::Relaxed),
            Some(ControlAction::Pause | ControlAction::Resume) | None => {}
        }
        if news.needs_splats {
            self.show_splats()?;
        }
        Ok(action)
    }

    /// Starts a thread that writes the most visible Gaussians, if the host has memory for a copy.
    fn show_splats(&mut self) -> Result<(), TrainError> {
        let config = self.setup.config;
        let count = self.device.len(&self.model);
        let copy = packing_bytes(count.min(MOST_SPLATS), config.optimize.sh_degree);
        if count == 0 || !has_room(config, copy) {
            return self.show_none(count, Instant::now());
        }
        self.settle_step()?;
        self.end_phase(self.phase());
        let began = Instant::now();
        let (device, model) = (&mut *self.device, &mut self.model);
        let picked = most_visible(count, MOST_SPLATS, |rows| {
            drawn_rows::<Gaussians, _>(device, model, rows)
        });
        let picked = match picked {
            Err(error) if error.is_out_of_memory() => return self.show_none(count, began),
            picked => picked?,
        };
        let mode = self.point_cloud_style().mode;
        self.live.show(self.iteration, picked, mode, copy, began);
        self.times.saving_seconds += began.elapsed().as_secs_f64();
        self.end_phase(Phase::Saving);
        Ok(())
    }

    fn show_none(&mut self, count: usize, began: Instant) -> Result<(), TrainError> {
        if count > 0 && self.live.give_up(began) {
            self.warn(
                "the page does not show the Gaussians while the run trains: there is no memory for a copy \
                 of them. Raise --host-limit, or look at the saved PLY",
            )?;
        }
        Ok(())
    }

    // Timelapse pictures.

    /// Renders a picture of the present model, if the run keeps a timelapse.
    pub(super) fn keep_picture(&mut self) -> Result<(), TrainError> {
        let Some(timelapse) = &self.timelapse else { return Ok(()) };
        let config = self.setup.config;
        let settings = RenderSettings {
            sh_degree: schedule::sh_degree(&config.optimize, self.iteration.max(1)),
            background: config.scene.background_color().0,
            near: self.feed.views.near(),
            footprint: self.shown_footprint(),
            ..RenderSettings::DEFAULT
        };
        let drawn =
            self.device.render(&self.model, &timelapse.view, &settings, RenderRequest::IMAGE);
        let picture = match drawn.and_then(|frame| self.device.image(&frame)) {
            Ok(rendered) => render_picture(&rendered),
            // A missing picture must not end the run.
            Err(error) if error.is_out_of_memory() => {
                tracing::debug!("a picture of --timelapse is left out: {error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        Ok(self.sink.on(&Event::TimelapsePicture { iteration: self.iteration, picture })?)
    }
}
