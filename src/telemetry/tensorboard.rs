//! TensorBoard's events file.
//!
//! The records and messages are those of `tensorboard-rs`; its own writer works on a thread that
//! panics where the disk is full, so the file is ours.

mod histogram;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use image::ExtendedColorType;
use image::ImageEncoder as _;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use protobuf::Message as _;
use rayon::prelude::*;
use tensorboard_proto::event::{Event as Record, SessionLog, SessionLog_SessionStatus};
use tensorboard_proto::summary::{Summary, Summary_Image, Summary_Value};
use tensorboard_rs::record_writer::RecordWriter;
use tensorboard_rs::summary::scalar;

use self::histogram::Histogram;
use super::cadence::{Cadence, Recorded};
use super::time::unix_seconds;
use super::whole_records::WholeRecords;
use crate::files::OutputError;
use crate::math::Real;
use crate::memory::{Bytes, Rung, RungChange};
use crate::train::event::{
    Distributions, Evaluation, Event, GpuReport, MemoryReport, Phase, PhasePeak, PhasePeaks,
    Picture, Pictures, Saved, Sink, Split, SurfaceReport, TermValues,
};

/// Tag of the number of rungs that are given up.
const RUNG: &str = "memory/rung";

/// Bytes of records that may wait before they are written.
const ROOM: usize = 1 << 16;

/// The sink that writes TensorBoard's events file.
pub struct TensorBoard<W: Write> {
    path: PathBuf,
    records: WholeRecords<W>,
    cadence: Cadence,
    /// Image tags of the photographs that are in the file.
    photographs: HashSet<String>,
    /// The rungs that are given up at present.
    given_up: Vec<Rung>,
}

impl TensorBoard<File> {
    /// Starts a new events file in the model folder; TensorBoard merges all that lie there.
    pub fn create(model_path: &Path) -> Result<Self, OutputError> {
        let host = gethostname::gethostname();
        // As a whole number: the files of a folder are merged in the order of their names.
        let name = format!(
            "events.out.tfevents.{:010.0}.{}",
            unix_seconds().floor(),
            host.to_string_lossy()
        );
        let mut path = model_path.join(&name);
        // Two runs within a second share a name.
        for again in 1..100 {
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    path = model_path.join(format!("{name}.{again}"));
                }
                Err(source) => return Err(OutputError::new(&path, source)),
                Ok(file) => return Self::to_writer(&path, file),
            }
        }
        Err(OutputError::new(&path, ErrorKind::AlreadyExists.into()))
    }
}

impl<W: Write> TensorBoard<W> {
    /// Writes to `writer`; `path` is what errors name.
    pub fn to_writer(path: &Path, writer: W) -> Result<Self, OutputError> {
        let mut this = Self {
            path: path.to_owned(),
            records: WholeRecords::new(writer, ROOM),
            cadence: Cadence::default(),
            photographs: HashSet::new(),
            given_up: Vec::new(),
        };
        let mut version = Record::new();
        version.set_file_version("brain.Event:2".to_owned());
        this.write(version)
            .and_then(|()| this.records.flush())
            .map_err(|source| OutputError::new(path, source))?;
        Ok(this)
    }

    fn take(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Started { iteration, .. } => self.start(*iteration),
            Event::Step(step) => match self.cadence.take(step) {
                Some(recorded) => self.step(&recorded),
                None => Ok(()),
            },
            Event::Memory(report) => {
                self.memory(report)?;
                self.records.flush()
            }
            Event::Distributions(distributions) => {
                self.distributions(distributions)?;
                self.records.flush()
            }
            Event::Pictures(pictures) => self.pictures(pictures),
            Event::Evaluated(evaluation) => {
                self.evaluation(evaluation)?;
                self.records.flush()
            }
            // A run that resumes from the checkpoint finds all that was recorded before it.
            Event::Saving { what: Saved::Checkpoint, .. } => self.records.flush(),
            Event::Finished { iteration, peaks, .. } => {
                self.peaks(*iteration, peaks)?;
                if let Some(recorded) = self.cadence.rest() {
                    self.step(&recorded)?;
                }
                self.records.flush()
            }
            Event::Gpu(report) => self.gpu(report),
            Event::Rung { iteration, change, .. } => self.rung(*iteration, change),
            Event::ViewSize { iteration, divisor } => {
                self.scalars(*iteration, &[("train/view_divisor", f64::from(*divisor))])
            }
            Event::Surface(report) => self.surface(report),
            Event::Round(_)
            | Event::OpacityReset { .. }
            | Event::Ended { .. }
            | Event::CoarseStarted { .. }
            | Event::Pruned { .. }
            | Event::PrunedToTarget(_)
            | Event::Neighbours { .. }
            | Event::Buffers(_)
            | Event::Control { .. }
            | Event::TimelapsePicture { .. }
            | Event::Saving { .. }
            | Event::Saved { .. }
            | Event::Warning { .. } => Ok(()),
        }
    }

    /// Makes TensorBoard drop what a killed run recorded after the checkpoint.
    fn start(&mut self, iteration: u32) -> io::Result<()> {
        let mut session = SessionLog::new();
        session.set_status(SessionLog_SessionStatus::START);
        let mut record = Record::new();
        record.set_session_log(session);
        // What is at this step and later goes; the iteration resumed from stays.
        record.set_step(if iteration == 0 { 0 } else { i64::from(iteration) + 1 });
        self.write(record)
    }

    fn step(&mut self, recorded: &Recorded) -> io::Result<()> {
        let Recorded { step, mean_ms } = recorded;
        let mut values = tagged("train", &step.values);
        values.push(("train/total".to_owned(), step.total));
        values.push(("scene/total_points".to_owned(), step.gaussians as f64));
        values.push(("speed/ms_per_iter".to_owned(), *mean_ms));
        if *mean_ms > 0.0 {
            values.push(("speed/it_per_s".to_owned(), 1000.0 / mean_ms));
        }
        self.scalars(step.iteration, &values)
    }

    fn memory(&mut self, report: &MemoryReport) -> io::Result<()> {
        let tensors = &report.tensors;
        let mut values = vec![
            ("tensors/parameters_mb", tensors.parameters.mib()),
            ("tensors/optimizer_mb", tensors.optimizer.mib()),
            ("tensors/gradients_mb", tensors.gradients.mib()),
            ("tensors/activations_mb", tensors.activations.mib()),
            ("tensors/images_mb", tensors.images.mib()),
            ("tensors/knn_mb", tensors.knn.mib()),
        ];
        if let Some(vram) = report.vram {
            values.push(("memory/vram_allocated_gb", vram.allocated.gib()));
            values.push(("memory/vram_reserved_gb", vram.reserved.gib()));
            values.extend(vram.creep.map(|creep| ("memory/vram_creep_gb", creep.gib())));
            values.push(("tensors/large_count", vram.large_count as f64));
            values.push(("tensors/fragmentation_percent", vram.fragmentation_percent()));
            values.push((RUNG, self.given_up.len() as f64));
        }
        values.extend(report.offloaded.map(|bytes| ("memory/offloaded_gb", bytes.gib())));
        values.extend(report.host_resident.map(Bytes::gib).map(|gib| ("memory/host_rss_gb", gib)));
        self.scalars(report.iteration, &values)?;
        self.peaks(report.iteration, &report.peaks)
    }

    /// Of the device's memory where it has its own, otherwise of the host's.
    fn peaks(&mut self, iteration: u32, peaks: &PhasePeaks) -> io::Result<()> {
        let tagged = |(phase, peak): (Phase, PhasePeak)| {
            Some((format!("memory/peak_{}_gb", phase.key()), peak.of_device()?.gib()))
        };
        let values: Vec<_> = peaks.iter().filter_map(tagged).collect();
        if values.is_empty() { Ok(()) } else { self.scalars(iteration, &values) }
    }

    fn gpu(&mut self, report: &GpuReport) -> io::Result<()> {
        let sample = &report.sample;
        let values = [
            ("gpu/utilization", sample.utilization.map(f64::from)),
            ("gpu/memory_percent", sample.memory_percent()),
            ("gpu/temperature_c", sample.temperature_c.map(f64::from)),
            ("gpu/memory_load", sample.memory_load.map(f64::from)),
            ("gpu/power_w", sample.power_w),
            ("gpu/power_limit_w", sample.power_limit_w),
            ("gpu/fan_percent", sample.fan_percent.map(f64::from)),
            ("gpu/clock_memory_mhz", sample.clock_memory_mhz.map(f64::from)),
            ("gpu/pstate", sample.pstate.map(f64::from)),
            ("gpu/clock_sm_mhz", sample.clock_sm_mhz.map(f64::from)),
            // How many things slow it; `run.jsonl` names them.
            ("gpu/throttle", sample.throttle.as_ref().map(|reasons| reasons.len() as f64)),
        ];
        self.write_known_scalars(report.iteration, &values)
    }

    fn surface(&mut self, report: &SurfaceReport) -> io::Result<()> {
        let mut values = tagged("sugar", &report.values);
        let known = [
            ("sugar/share_near_surface", report.share_near_surface),
            ("sugar/mean_thickness", report.mean_thickness),
        ];
        let known = known.into_iter().filter_map(|(tag, value)| Some((tag.to_owned(), value?)));
        values.extend(known);
        if values.is_empty() { Ok(()) } else { self.scalars(report.iteration, &values) }
    }

    fn rung(&mut self, iteration: u32, change: &RungChange) -> io::Result<()> {
        self.given_up.retain(|&rung| rung != change.rung);
        if change.given_up {
            self.given_up.push(change.rung);
        }
        self.scalars(iteration, &[(RUNG, self.given_up.len() as f64)])
    }

    fn distributions(&mut self, distributions: &Distributions) -> io::Result<()> {
        let iteration = distributions.iteration;
        self.scalars(iteration, &[("scene/opacity_mean", distributions.opacity_mean)])?;
        let histograms = [
            ("scene/scale_histogram", &distributions.scale),
            ("scene/opacity_histogram", &distributions.opacity),
            ("scene/xyz_magnitude_histogram", &distributions.xyz_magnitude),
            ("scene/rotation_magnitude_histogram", &distributions.rotation_magnitude),
        ];
        for (tag, samples) in histograms {
            if let Some(histogram) = Histogram::of(samples) {
                self.summary(iteration, histogram.summary(tag))?;
            }
        }
        Ok(())
    }

    fn evaluation(&mut self, evaluation: &Evaluation) -> io::Result<()> {
        let folder = folder(evaluation.split);
        let mean = &evaluation.mean;
        let mut values = vec![("psnr", mean.psnr), ("ssim", mean.ssim), ("l1", mean.l1)];
        values.extend(mean.lpips.map(|lpips| ("lpips", lpips)));
        values
            .extend(mean.corrected.iter().flat_map(|c| [("cc_psnr", c.psnr), ("cc_ssim", c.ssim)]));
        values.extend(mean.reference.map(|it| ("ref_ssim", it.ssim)));
        values.extend(mean.reference.and_then(|it| Some(("ref_lpips", it.lpips?))));
        let values: Vec<(String, f64)> =
            values.into_iter().map(|(name, value)| (format!("{folder}/{name}"), value)).collect();
        self.scalars(evaluation.iteration, &values)
    }

    fn pictures(&mut self, pictures: &Pictures) -> io::Result<()> {
        let folder = format!("{}/{}", folder(pictures.split), pictures.name);
        let is_new = !self.photographs.contains(&folder);
        let named = [
            ("render", Some(&pictures.render)),
            ("error", Some(&pictures.error)),
            ("density", Some(&pictures.density)),
            ("depth", pictures.depth.as_ref()),
            ("normals", pictures.normals.as_ref()),
            ("ground_truth", Some(&pictures.ground_truth).filter(|_| is_new)),
        ];
        let encoded: io::Result<Vec<_>> = named
            .into_par_iter()
            .filter_map(|(name, picture)| Some((name, picture?)))
            .map(|(name, picture)| Ok((name, summary_image(picture)?)))
            .collect();
        for (name, image) in encoded? {
            let mut value = Summary_Value::new();
            value.set_tag(format!("{folder}/{name}"));
            value.set_image(image);
            let mut summary = Summary::new();
            summary.mut_value().push(value);
            self.summary(pictures.iteration, summary)?;
        }
        if is_new {
            self.photographs.insert(folder);
        }
        Ok(())
    }

    /// Of these what is known.
    fn write_known_scalars(
        &mut self,
        iteration: u32,
        values: &[(&str, Option<f64>)],
    ) -> io::Result<()> {
        let present = values.iter().filter_map(|&(tag, value)| Some((tag, value?)));
        let present: Vec<_> = present.collect();
        if present.is_empty() { Ok(()) } else { self.scalars(iteration, &present) }
    }

    fn scalars<T: AsRef<str>>(&mut self, iteration: u32, values: &[(T, f64)]) -> io::Result<()> {
        let mut summary = Summary::new();
        for (tag, value) in values {
            summary.mut_value().extend(scalar(tag.as_ref(), value.to_f32()).take_value());
        }
        self.summary(iteration, summary)
    }

    fn summary(&mut self, iteration: u32, summary: Summary) -> io::Result<()> {
        let mut record = Record::new();
        record.set_step(i64::from(iteration));
        record.set_summary(summary);
        self.write(record)
    }

    fn write(&mut self, mut record: Record) -> io::Result<()> {
        record.set_wall_time(unix_seconds());
        let mut bytes = Vec::new();
        RecordWriter::new(&mut bytes).write(&record.write_to_bytes()?)?;
        self.records.put(&bytes)
    }
}

impl<W: Write> Sink for TensorBoard<W> {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        self.take(event).map_err(|source| OutputError::new(&self.path, source))
    }
}

/// Values of terms with their tags.
fn tagged(folder: &str, values: &TermValues) -> Vec<(String, f64)> {
    values.0.iter().map(|(name, value)| (format!("{folder}/{name}"), *value)).collect()
}

/// First part of the tags of an evaluated split; `train/` is the training itself.
fn folder(split: Split) -> &'static str {
    match split {
        Split::Test => "test",
        Split::Train | Split::EvalTrain => "eval_train",
    }
}

fn summary_image(picture: &Picture) -> io::Result<Summary_Image> {
    let mut image = Summary_Image::new();
    image.set_width(i32::try_from(picture.width).unwrap_or(i32::MAX));
    image.set_height(i32::try_from(picture.height).unwrap_or(i32::MAX));
    image.set_colorspace(3);
    image.set_encoded_image_string(png(picture)?);
    Ok(image)
}

/// The picture as PNG.
fn png(picture: &Picture) -> io::Result<Vec<u8>> {
    let Picture { width, height, rgb } = picture;
    // The encoder takes a wrong length for a bug of the caller and panics.
    if rgb.len() as u64 != 3 * u64::from(*width) * u64::from(*height) {
        let message = format!("a picture of {width}x{height} px has {} bytes", rgb.len());
        return Err(io::Error::new(ErrorKind::InvalidInput, message));
    }
    let mut png = Vec::new();
    PngEncoder::new_with_quality(&mut png, CompressionType::Fast, FilterType::Adaptive)
        .write_image(rgb, *width, *height, ExtendedColorType::Rgb8)
        .map_err(io::Error::other)?;
    Ok(png)
}
