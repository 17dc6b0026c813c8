//! The progress line of a run.

use std::time::Duration;

use crate::backend::nvidia::GpuSample;
use crate::memory::Bytes;
use crate::train::event::{MemoryReport, Step};

/// Weight of the newest iteration in the smoothed loss.
const LOSS_WEIGHT: f64 = 0.4;

/// Weight of the newest iteration in the smoothed time of an iteration.
const TIME_WEIGHT: f64 = 0.05;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RunStage {
    /// Training on photographs only.
    #[default]
    Photometric,
    /// SuGaR's coarse stage.
    Coarse,
}

impl RunStage {
    /// Returns the first word or words of its lines.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Photometric => "Training",
            Self::Coarse => "Coarse Training",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct RunStatus {
    pub(super) stage: RunStage,
    pub(super) step: Option<Step>,
    loss: f64,
    /// Smoothed milliseconds per image.
    ms: f64,
    /// Smoothed milliseconds per iteration of the schedule, which differ from those of an image with a time budget.
    ms_of_iteration: Option<f64>,
    /// Number of steps in the mean of `ms_of_iteration`.
    timed: u32,
    /// Milliseconds since the last step that completed an iteration.
    waiting_ms: f64,
    pub(super) memory: Option<MemoryReport>,
    pub(super) gpu: GpuSample,
}

impl RunStatus {
    pub(super) fn take_step(&mut self, step: &Step) {
        if self.step.is_none() {
            (self.loss, self.ms) = (step.total, step.ms);
        }
        self.waiting_ms += step.ms * f64::from(step.images);
        let passed = step.iteration.saturating_sub(step.before);
        if passed > 0 {
            let ms = std::mem::take(&mut self.waiting_ms) / f64::from(passed);
            let before = self.ms_of_iteration.unwrap_or(ms);
            self.timed += 1;
            // The first iterations of a run are slower.
            let weight = TIME_WEIGHT.max(1.0 / f64::from(self.timed));
            self.ms_of_iteration = Some(before + weight * (ms - before));
        }
        self.loss += LOSS_WEIGHT * (step.total - self.loss);
        self.ms += TIME_WEIGHT * (step.ms - self.ms);
        self.step = Some(step.clone());
    }

    /// Formats `491/30000 │ L:0.214 │ N:1.2M │ V:83% R:34% C:14% │ 17.2it/s │ 0:09:31 │ 0:23:10`: iterations,
    /// smoothed loss, Gaussians, load of video memory, host memory and GPU, speed, elapsed and remaining time. Empty
    /// before the first iteration.
    pub(super) fn line(&self, elapsed: Duration) -> String {
        let Some(step) = &self.step else { return String::new() };
        let left = f64::from(step.iterations.saturating_sub(step.iteration));
        format!(
            "{}/{} │ L:{:.3} │ N:{} │ V:{} R:{} C:{} │ {} │ {} │ {}",
            step.iteration,
            step.iterations,
            self.loss,
            count(step.gaussians),
            percent(self.video_share()),
            percent(self.host_share()),
            percent(self.gpu.utilization.map(f64::from)),
            speed(self.ms),
            clock(elapsed.as_secs_f64()),
            clock(left * self.ms_of_iteration.unwrap_or(self.ms) / 1000.0),
        )
    }

    /// Returns the used share of the GPU's memory by all programs, per cent; if the driver does not report it, this
    /// program's memory over its budget.
    fn video_share(&self) -> Option<f64> {
        let of_budget = || {
            let vram = self.memory.as_ref()?.vram?;
            let budget = vram.budget.filter(|&budget| budget > Bytes(0))?;
            Some(100.0 * vram.reserved.gib() / budget.gib())
        };
        self.gpu.memory_percent().or_else(of_budget)
    }

    /// Returns the resident memory of the process in percent of the host's.
    fn host_share(&self) -> Option<f64> {
        let report = self.memory.as_ref()?;
        let (resident, total) = (report.host_resident?, report.host_total?);
        (total.0 > 0).then(|| 100.0 * resident.gib() / total.gib())
    }

    /// Formats `[Training] Iter 1000: Allocated: 7.52GB, Reserved: 8.00GB, Creep: 0.021GB`: buffers, reserved memory
    /// and unexplained growth, of the device if it has its own memory, else of the process. `, In RAM: 2.00GB`
    /// follows if a part of the model is in RAM.
    pub(super) fn memory_line(&self) -> Option<String> {
        let report = self.memory.as_ref()?;
        let resident = report.host_resident.map(Bytes::gib);
        let (allocated, reserved, creep) = match report.vram {
            Some(vram) => (vram.allocated, Some(vram.reserved.gib()), vram.creep.map(Bytes::gib)),
            None => (report.tensors.total(), resident, report.host_creep.map(Bytes::gib)),
        };
        Some(format!(
            "[{}] Iter {}: Allocated: {:.2}GB, Reserved: {}, Creep: {}{}",
            self.stage.name(),
            report.iteration,
            allocated.gib(),
            reserved.map_or_else(|| "-".to_owned(), |gib| format!("{gib:.2}GB")),
            creep.map_or_else(|| "-".to_owned(), |gib| format!("{gib:.3}GB")),
            report
                .offloaded
                .map_or(String::new(), |bytes| format!(", In RAM: {:.2}GB", bytes.gib())),
        ))
    }
}

/// Formats `34%`, or `-` if unknown.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{share:.0}%"))
}

/// Formats `999`, `12.4k`, `318k`, `1.2M`.
pub(super) fn count(n: usize) -> String {
    let x = n as f64;
    match n {
        0..1000 => n.to_string(),
        1000..99_950 => format!("{:.1}k", x / 1e3),
        99_950..999_500 => format!("{:.0}k", x / 1e3),
        _ => format!("{:.1}M", x / 1e6),
    }
}

/// Formats `246,768`.
pub fn grouped(n: usize) -> String {
    indicatif::HumanCount(n as u64).to_string()
}

/// Formats `17.2it/s`, with three significant digits.
fn speed(ms: f64) -> String {
    let per_second = if ms > 0.0 { 1000.0 / ms } else { return "-it/s".to_owned() };
    if per_second >= 99.95 {
        format!("{per_second:.0}it/s")
    } else if per_second >= 1.0 {
        format!("{per_second:.1}it/s")
    } else {
        format!("{per_second:.2}it/s")
    }
}

/// Formats `0:09:31`.
pub(super) fn clock(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::event::{Tensors, Vram};

    fn report(iteration: u32, resident: u64) -> MemoryReport {
        MemoryReport {
            iteration,
            tensors: Tensors {
                parameters: Bytes(3 << 29),
                images: Bytes(1 << 30),
                ..Tensors::default()
            },
            host_resident: Some(Bytes(resident << 20)),
            host_total: Some(Bytes(16 << 30)),
            ..MemoryReport::default()
        }
    }

    fn memory_line(report: MemoryReport) -> String {
        RunStatus { memory: Some(report), ..RunStatus::default() }.memory_line().unwrap()
    }

    #[test]
    fn line_shows_the_state_of_the_run() {
        let mut status = RunStatus::default();
        assert_eq!(status.line(Duration::ZERO), "");
        let (total, ms, gaussians) = (0.2141, 50.0, 1_234_567);
        let (before, iteration, images, iterations) = (490, 491, 1, 30_000);
        let step =
            Step { before, iteration, images, iterations, total, gaussians, ms, ..Step::default() };
        status.take_step(&step);
        assert_eq!(
            status.line(Duration::from_secs(571)),
            "491/30000 │ L:0.214 │ N:1.2M │ V:- R:- C:- │ 20.0it/s │ 0:09:31 │ 0:24:35"
        );
        status.memory = Some(report(400, 5571));
        assert!(status.line(Duration::ZERO).contains(" R:34% "));
    }

    #[test]
    fn remaining_time_is_estimated_by_iterations() {
        for (images_of_iteration, expected) in [(1, "0:00:45"), (10, "0:07:30")] {
            let mut status = RunStatus::default();
            for image in 1..=100 * images_of_iteration {
                let [before, iteration] =
                    [image - 1, image].map(|image| image / images_of_iteration);
                let (images, iterations, ms) = (1, 1000, 50.0);
                let step = Step { before, iteration, images, iterations, ms, ..Step::default() };
                status.take_step(&step);
            }
            let line = status.line(Duration::ZERO);
            assert!(line.ends_with(expected) && line.contains("20.0it/s"), "{line}");
        }
    }

    #[test]
    fn memory_lines_name_the_stage_and_show_unexplained_growth() {
        assert_eq!(RunStatus::default().memory_line(), None);
        let memory = Some(report(8000, 2048));
        let coarse = RunStatus { stage: RunStage::Coarse, memory, ..RunStatus::default() };
        let line = coarse.memory_line().unwrap();
        assert!(line.starts_with("[Coarse Training] Iter 8000: Allocated: 2.50GB, "), "{line}");
        let host_creep = Some(Bytes(1 << 29));
        let vram = Vram {
            allocated: Bytes(5 << 30),
            reserved: Bytes(6 << 30),
            creep: Some(Bytes(1 << 28)),
            ..Vram::default()
        };
        let of_gpu = MemoryReport { vram: Some(vram), ..report(2500, 2560) };
        let warming = MemoryReport { vram: Some(Vram { creep: None, ..vram }), ..of_gpu };
        for (report, end) in [
            (report(1100, 1000), "Reserved: 0.98GB, Creep: -"),
            (
                MemoryReport { host_creep, ..report(2000, 2560) },
                "[Training] Iter 2000: Allocated: 2.50GB, Reserved: 2.50GB, Creep: 0.500GB",
            ),
            (MemoryReport { host_resident: None, ..report(3000, 0) }, "Reserved: -, Creep: -"),
            (of_gpu, "[Training] Iter 2500: Allocated: 5.00GB, Reserved: 6.00GB, Creep: 0.250GB"),
            (warming, "Reserved: 6.00GB, Creep: -"),
            (
                MemoryReport { offloaded: Some(Bytes(3 << 29)), ..warming },
                "Creep: -, In RAM: 1.50GB",
            ),
        ] {
            let line = memory_line(report);
            assert!(line.ends_with(end), "{line}");
        }
    }

    #[test]
    fn memory_share_counts_all_programs() {
        let mut status = RunStatus::default();
        status.take_step(&Step::default());
        let vram = Vram { reserved: Bytes(6 << 30), ..Vram::default() };
        let budget = Some(Bytes(8 << 30));
        for (vram, shown) in [(vram, " V:- R:34% C:- "), (Vram { budget, ..vram }, " V:75% R:34% ")]
        {
            status.memory = Some(MemoryReport { vram: Some(vram), ..report(50, 5571) });
            assert!(status.line(Duration::ZERO).contains(shown), "{shown}");
        }
        status.gpu = GpuSample {
            utilization: Some(97),
            memory_used: Some(Bytes(83 << 28)),
            memory_total: Some(Bytes(100 << 28)),
            ..GpuSample::default()
        };
        assert!(status.line(Duration::ZERO).contains(" V:83% R:34% C:97% "));
    }

    #[test]
    fn numbers_are_short() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.0k"),
            (12_449, "12.4k"),
            (99_949, "99.9k"),
            (99_950, "100k"),
            (318_400, "318k"),
            (999_499, "999k"),
            (999_500, "1.0M"),
            (61_250_000, "61.2M"),
        ] {
            assert_eq!(count(n), text);
        }
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
        for (ms, text) in
            [(0.0, "-it/s"), (5.0, "200it/s"), (58.0, "17.2it/s"), (4000.0, "0.25it/s")]
        {
            assert_eq!(speed(ms), text);
        }
        for (seconds, text) in [(0.0, "0:00:00"), (36_001.9, "10:00:01"), (f64::NAN, "0:00:00")] {
            assert_eq!(clock(seconds), text);
        }
    }
}
