//! TensorBoard's events file. Records and messages come from `tensorboard-rs`, but not the writer, whose thread
//! panics if the disk is full.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder as _};
use protobuf::Message as _;
use rayon::prelude::*;
use tensorboard_proto::event::{Event as Record, SessionLog, SessionLog_SessionStatus};
use tensorboard_proto::summary::{Summary, Summary_Image, Summary_Value};
use tensorboard_rs::record_writer::RecordWriter;
use tensorboard_rs::summary::{histogram_raw, scalar};

use super::jsonl::{BUFFER_BYTES, Cadence, Recorded, WholeRecords};
use super::logging::unix_seconds;
use super::tables::named;
use crate::files::{OutputError, create_folder, write_png};
use crate::math::Real;
use crate::memory::{Bytes, Fallback, FallbackChange};
use crate::train::event::{
    Distributions, Evaluation, Event, GpuReport, MemoryReport, Phase, PhasePeak, PhasePeaks,
    Picture, Pictures, Saved, Sink, Split, SurfaceReport, TermValues,
};

const FALLBACK: &str = "memory/rung";

/// The sink that writes TensorBoard's events file.
pub struct TensorBoard<W: Write> {
    path: PathBuf,
    records: WholeRecords<W>,
    cadence: Cadence,
    /// Image tags of the photographs in the file.
    photographs: HashSet<String>,
    /// Fallbacks that are applied now.
    given_up: Vec<Fallback>,
}

impl TensorBoard<File> {
    /// Starts a new events file in the model folder. TensorBoard merges all files there.
    pub fn create(model_path: &Path) -> Result<Self, OutputError> {
        let host = gethostname::gethostname();
        // A whole number, because files are merged in the order of their names.
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
    /// Writes to `writer`; errors name `path`.
    pub fn to_writer(path: &Path, writer: W) -> Result<Self, OutputError> {
        let mut this = Self {
            path: path.to_owned(),
            records: WholeRecords::new(writer, BUFFER_BYTES),
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
            // A run that resumes from the checkpoint finds all earlier records.
            Event::Saving { what: Saved::Checkpoint, .. } => self.records.flush(),
            Event::Finished { iteration, peaks, .. } => {
                self.peaks(*iteration, peaks)?;
                if let Some(recorded) = self.cadence.rest() {
                    self.step(&recorded)?;
                }
                self.records.flush()
            }
            Event::Gpu(report) => self.gpu(report),
            Event::Fallback { iteration, change, .. } => self.fallback(*iteration, change),
            Event::ViewSize { iteration, divisor } => {
                self.scalars(*iteration, [("train/view_divisor", f64::from(*divisor))])
            }
            Event::Surface(report) => self.surface(report),
            _ => Ok(()),
        }
    }

    /// Makes TensorBoard drop the records of a killed run after the checkpoint.
    fn start(&mut self, iteration: u32) -> io::Result<()> {
        let mut session = SessionLog::new();
        session.set_status(SessionLog_SessionStatus::START);
        let mut record = Record::new();
        record.set_session_log(session);
        // Records from this step on are dropped; the iteration resumed from stays.
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
        self.scalars(step.iteration, values)
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
            values.push((FALLBACK, self.given_up.len() as f64));
        }
        values.extend(report.offloaded.map(|bytes| ("memory/offloaded_gb", bytes.gib())));
        values.extend(report.host_resident.map(Bytes::gib).map(|gib| ("memory/host_rss_gb", gib)));
        self.scalars(report.iteration, values)?;
        self.peaks(report.iteration, &report.peaks)
    }

    /// Records the peaks of the device's memory if it has its own, otherwise of the host's.
    fn peaks(&mut self, iteration: u32, peaks: &PhasePeaks) -> io::Result<()> {
        let tagged = |(phase, peak): (Phase, PhasePeak)| {
            Some((format!("memory/peak_{}_gb", phase.key()), peak.of_device()?.gib()))
        };
        self.scalars(iteration, peaks.iter().filter_map(tagged))
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
            // Number of reasons; `run.jsonl` names them.
            ("gpu/throttle", sample.throttle.as_ref().map(|reasons| reasons.len() as f64)),
        ];
        let known = values.into_iter().filter_map(|(tag, value)| Some((tag, value?)));
        self.scalars(report.iteration, known)
    }

    fn surface(&mut self, report: &SurfaceReport) -> io::Result<()> {
        let mut values = tagged("sugar", &report.values);
        let known = [
            ("sugar/share_near_surface", report.share_near_surface),
            ("sugar/mean_thickness", report.mean_thickness),
        ];
        let known = known.into_iter().filter_map(|(tag, value)| Some((tag.to_owned(), value?)));
        values.extend(known);
        self.scalars(report.iteration, values)
    }

    fn fallback(&mut self, iteration: u32, change: &FallbackChange) -> io::Result<()> {
        self.given_up.retain(|&fallback| fallback != change.fallback);
        if change.given_up {
            self.given_up.push(change.fallback);
        }
        self.scalars(iteration, [(FALLBACK, self.given_up.len() as f64)])
    }

    fn distributions(&mut self, distributions: &Distributions) -> io::Result<()> {
        let iteration = distributions.iteration;
        self.scalars(iteration, [("scene/opacity_mean", distributions.opacity_mean)])?;
        let histograms = [
            ("scene/scale_histogram", &distributions.scale),
            ("scene/opacity_histogram", &distributions.opacity),
            ("scene/xyz_magnitude_histogram", &distributions.xyz_magnitude),
            ("scene/rotation_magnitude_histogram", &distributions.rotation_magnitude),
        ];
        for (tag, samples) in histograms {
            if let Some(histogram) = histogram(tag, samples) {
                self.summary(iteration, histogram)?;
            }
        }
        Ok(())
    }

    fn evaluation(&mut self, evaluation: &Evaluation) -> io::Result<()> {
        let folder = folder(evaluation.split);
        let tagged = |(name, value): (_, Option<_>)| Some((format!("{folder}/{name}"), value?));
        self.scalars(evaluation.iteration, named(&evaluation.mean).into_iter().filter_map(tagged))
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

    /// Records values; nothing if there are none.
    fn scalars<T: AsRef<str>>(
        &mut self,
        iteration: u32,
        values: impl IntoIterator<Item = (T, f64)>,
    ) -> io::Result<()> {
        let mut summary = Summary::new();
        for (tag, value) in values {
            summary.mut_value().extend(scalar(tag.as_ref(), value.to_f32()).take_value());
        }
        if summary.get_value().is_empty() { Ok(()) } else { self.summary(iteration, summary) }
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

fn tagged(folder: &str, values: &TermValues) -> Vec<(String, f64)> {
    values.0.iter().map(|(name, value)| (format!("{folder}/{name}"), *value)).collect()
}

/// Returns the first part of the tags of an evaluated split; `train/` is for training itself.
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

fn png(picture: &Picture) -> io::Result<Vec<u8>> {
    let Picture { width, height, rgb } = picture;
    // The encoder panics on a wrong length.
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

/// Counts samples; `None` without a finite sample. Half of the buckets have equal widths, for the shape. Half have
/// equal counts, for percentiles of long-tailed quantities such as scales.
fn histogram(tag: &str, samples: &[f64]) -> Option<Summary> {
    const PIECES: usize = 30;
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (&min, &max) = (sorted.first()?, sorted.last()?);
    // Upper ends of the buckets, inclusive.
    let mut limits = vec![max];
    for piece in 1..PIECES {
        limits.push(min + (max - min) * piece as f64 / PIECES as f64);
        limits.push(sorted[(sorted.len() - 1) * piece / PIECES]);
    }
    limits.retain(|&limit| limit <= max);
    limits.sort_by(f64::total_cmp);
    limits.dedup();
    let mut below = 0;
    let counts = limits.iter().map(|limit| {
        let up_to = sorted.partition_point(|sample| sample <= limit);
        let count = up_to - below;
        below = up_to;
        count as f64
    });
    let counts: Vec<f64> = counts.collect();
    let (num, sum) = (sorted.len() as f64, sorted.iter().sum());
    let sum_squares = sorted.iter().map(|sample| sample * sample).sum();
    Some(histogram_raw(tag, min, max, num, sum, sum_squares, &limits, &counts))
}

// Pictures of a view during training, as PNG.

/// Folder of the pictures in a model folder.
pub const TIMELAPSE: &str = "timelapse";

/// The sink that writes each picture of `--timelapse` to its file.
#[derive(Debug)]
pub struct TimelapseFolder(PathBuf);

impl TimelapseFolder {
    /// Builds the sink for a model folder.
    pub fn new(model_path: &Path) -> Self {
        Self(model_path.join(TIMELAPSE))
    }

    /// Removes the pictures of iterations that a resumed run repeats.
    fn forget_after(&self, iteration: u32) {
        for (later, path) in pictures(&self.0) {
            if later > iteration {
                // A picture that cannot be removed is overwritten later, or stays.
                fs::remove_file(path).ok();
            }
        }
    }
}

impl Sink for TimelapseFolder {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        match event {
            Event::Started { iteration, .. } => {
                self.forget_after(*iteration);
                Ok(())
            }
            Event::TimelapsePicture { iteration, picture } => {
                create_folder(&self.0)?;
                let path = self.0.join(format!("{iteration:06}.png"));
                let size = [picture.width, picture.height];
                write_png(&path, size, &picture.rgb, ExtendedColorType::Rgb8)
            }
            _ => Ok(()),
        }
    }
}

/// Returns the pictures in a folder, sorted by iteration.
pub fn pictures(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| Some((iteration_of(&entry.path())?, entry.path())));
    let mut pictures: Vec<_> = numbered.collect();
    pictures.sort();
    pictures
}

fn iteration_of(path: &Path) -> Option<u32> {
    let is_png = path.extension().is_some_and(|extension| extension == "png");
    path.file_stem().filter(|_| is_png)?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn histogram_counts_every_finite_sample_once() {
        let mut samples: Vec<f64> = (0..1001).map(|i| f64::from(i * i) * 1e-3).collect();
        samples.extend([f64::NAN, f64::INFINITY]);
        let found = histogram("scale", &samples).unwrap();
        let found = found.get_value()[0].get_histo();
        let (limits, counts) = (found.get_bucket_limit(), found.get_bucket());
        assert_eq!((found.get_min(), found.get_max(), found.get_num()), (0.0, 1000.0, 1001.0));
        assert_eq!(counts.iter().sum::<f64>(), 1001.0);
        assert_eq!(limits.last(), Some(&1000.0));
        assert!(limits.is_sorted_by(|a, b| a < b));
        // Every thirtieth of the samples ends a bucket, so no bucket has more.
        assert!(counts.iter().all(|&count| count <= 35.0), "{counts:?}");
        let found = histogram("scale", &[2.0; 5]).unwrap();
        let found = found.get_value()[0].get_histo();
        assert_eq!((found.get_bucket_limit(), found.get_bucket()), (&[2.0][..], &[5.0][..]));
        assert!(histogram("scale", &[f64::NAN]).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_an_error_at_the_start() {
        let path = Path::new("/dev/full");
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let Err(error) = TensorBoard::to_writer(path, file) else { panic!("written") };
        assert!(error.to_string().starts_with("/dev/full: cannot be written"), "{error}");
    }

    /// A disk that is full after some bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_fills_up_is_an_error_at_the_next_flush() {
        let path = Path::new("model/events");
        let mut sink = TensorBoard::to_writer(path, Disk(100)).unwrap();
        sink.on(&Event::OpacityReset { iteration: 3000 }).unwrap();
        let error = sink.on(&Event::Memory(MemoryReport::default())).unwrap_err();
        assert!(error.to_string().contains("model/events"), "{error}");
    }

    #[test]
    fn picture_with_a_wrong_size_is_an_error() {
        let mut sink = TensorBoard::to_writer(Path::new("events"), Vec::new()).unwrap();
        let wrong = Arc::new(Picture { width: 2, height: 2, rgb: vec![0; 11] });
        let pictures = Pictures {
            iteration: 1,
            split: Split::Test,
            name: "a.jpg".to_owned(),
            render: wrong.clone(),
            ground_truth: wrong.clone(),
            error: wrong.clone(),
            density: wrong,
            depth: None,
            normals: None,
        };
        let error = sink.on(&Event::Pictures(pictures)).unwrap_err();
        assert!(error.to_string().contains("2x2 px has 11 bytes"), "{error}");
    }
}
