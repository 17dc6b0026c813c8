//! Reading `run.jsonl` again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::memory::{Bytes, Rung};
use crate::train::event::{PhasePeaks, Tensors};

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The folder has none.
    #[error(
        "{path}: there is no such file. Name the folder of a run (`splat train -m` says which)"
    )]
    Missing {
        /// The log.
        path: PathBuf,
    },
    /// The system refuses it.
    #[error("{path}: cannot be read: {source}. Check its permissions")]
    Unreadable {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is not what a run writes.
    #[error(
        "{path}, line {line}: is not an event of a run: {reason}. Remove the line, or train anew"
    )]
    Damaged {
        /// The log.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// Nothing has happened yet.
    #[error("{path}: no run has begun. Train first, or wait until the run has read its scene")]
    Empty {
        /// The log.
        path: PathBuf,
    },
}

/// The events of a run that concern memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) device: String,
    /// How often the run was started: 1, and once more for each time that it was resumed.
    pub(super) starts: u32,
    /// Whether an evaluation measured LPIPS.
    pub(super) has_lpips: bool,
    /// The last iteration that is known to be done.
    pub(super) iteration: u32,
    /// The iteration that the run ends at.
    pub(super) iterations: u32,
    pub(super) is_finished: bool,
    /// Gaussians after iterations, of which every tenth is known.
    pub(super) gaussians: BTreeMap<u32, u64>,
    /// The most memory by what the run was doing, of all its starts.
    pub(super) peaks: PhasePeaks,
    pub(super) memory: Vec<LoggedMemory>,
    pub(super) buffers: Vec<LoggedBuffers>,
    pub(super) gpu: Vec<LoggedGpu>,
    pub(super) changes: Vec<LoggedChange>,
}

/// A line of the log; of its fields, those that are read.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Record {
    Started {
        device: String,
        gaussians: u64,
        iteration: u32,
        iterations: u32,
    },
    Step {
        iteration: u32,
        gaussians: u64,
    },
    Evaluated {
        lpips_net: Option<String>,
    },
    Memory(LoggedMemory),
    Buffers(LoggedBuffers),
    Gpu(LoggedGpu),
    Rung(LoggedChange),
    Finished {
        iteration: u32,
        gaussians: u64,
        #[serde(default)]
        peaks: PhasePeaks,
    },
    #[serde(other)]
    Other,
}

/// Bytes held.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LoggedMemory {
    pub(super) iteration: u32,
    pub(super) tensors: Tensors,
    pub(super) vram: Option<LoggedVram>,
    pub(super) host_resident: Option<Bytes>,
    #[serde(default)]
    pub(super) host_total: Option<Bytes>,
    /// Logs of older programs have none.
    #[serde(default)]
    pub(super) host_limit: Option<Bytes>,
    /// Growth of the process that nothing explains; only of a device without memory of its own.
    #[serde(default)]
    pub(super) host_creep: Option<Bytes>,
    /// Logs of older programs have none.
    #[serde(default)]
    pub(super) peaks: PhasePeaks,
}

/// Bytes of a device's own memory. What older programs did not write is 0 or absent.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct LoggedVram {
    pub(super) allocated: Bytes,
    pub(super) reserved: Bytes,
    #[serde(default)]
    pub(super) context: Bytes,
    #[serde(default)]
    pub(super) photographs: Bytes,
    #[serde(default)]
    pub(super) scratch: Bytes,
    pub(super) slack: Option<Bytes>,
    pub(super) creep: Option<Bytes>,
    pub(super) budget: Option<Bytes>,
}

/// Every buffer at one time.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LoggedBuffers {
    pub(super) iteration: u32,
    pub(super) after: String,
    #[serde(default)]
    pub(super) gaussians: u64,
    pub(super) entries: Vec<LoggedEntry>,
}

/// One buffer.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LoggedEntry {
    pub(super) label: String,
    pub(super) kind: String,
    /// What held something between two iterations.
    #[serde(default)]
    pub(super) bytes: Bytes,
    pub(super) peak: Bytes,
    pub(super) at_peak: Bytes,
}

/// A look at the GPU.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LoggedGpu {
    pub(super) iteration: u32,
    pub(super) utilization: Option<u32>,
    pub(super) memory_load: Option<u32>,
    pub(super) memory_used: Option<Bytes>,
    pub(super) memory_total: Option<Bytes>,
    pub(super) temperature_c: Option<u32>,
    pub(super) power_w: Option<f64>,
    pub(super) power_limit_w: Option<f64>,
    pub(super) fan_percent: Option<u32>,
    pub(super) clock_sm_mhz: Option<u32>,
    pub(super) clock_memory_mhz: Option<u32>,
    pub(super) pstate: Option<u32>,
    pub(super) throttle: Option<Vec<String>>,
}

/// Something given up or restored.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LoggedChange {
    /// Finished iterations.
    pub iteration: u32,
    /// What.
    pub rung: Rung,
    /// Given up, or restored.
    pub given_up: bool,
    /// Bytes gained, or what taking it back might cost.
    pub bytes: Bytes,
    /// Bytes that were held then.
    pub held: Bytes,
    /// Bytes that could be held.
    pub budget: Bytes,
}

impl Log {
    /// The log of the run in this model folder.
    pub(super) fn read(model_path: &Path) -> Result<Self, LogError> {
        let path = model_path.join("run.jsonl");
        let file = File::open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                LogError::Missing { path: path.clone() }
            }
            _ => LogError::Unreadable { path: path.clone(), source },
        })?;
        Self::of_lines(&path, BufReader::new(file))
    }

    /// The same of lines; `path` is what errors name.
    ///
    /// A killed run may leave its last line unfinished. One that resumes it drops that part; older
    /// programs wrote after it.
    fn of_lines(path: &Path, mut lines: impl BufRead) -> Result<Self, LogError> {
        let mut log = Self::default();
        let mut unfinished: Option<LogError> = None;
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = lines.read_until(b'\n', &mut line);
            if read.map_err(|source| LogError::Unreadable { path: path.to_owned(), source })? == 0 {
                break;
            }
            let record = serde_json::from_slice(line.trim_ascii_end());
            let before = unfinished.take();
            if let (Some(error), false) = (before, matches!(record, Ok(Record::Started { .. }))) {
                return Err(error);
            }
            match record {
                Ok(record) => log.take(record),
                Err(error) => {
                    let damage = LogError::Damaged {
                        path: path.to_owned(),
                        line: number,
                        reason: error.to_string(),
                    };
                    if !error.is_eof() && line.ends_with(b"\n") {
                        return Err(damage);
                    }
                    unfinished = Some(damage);
                }
            }
        }
        if log.starts == 0 { Err(LogError::Empty { path: path.to_owned() }) } else { Ok(log) }
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Started { device, gaussians, iteration, iterations } => {
                self.forget_after(iteration);
                (self.device, self.iterations) = (device, iterations);
                self.starts += 1;
                self.reach(iteration, gaussians);
                self.is_finished = false;
            }
            Record::Step { iteration, gaussians } => self.reach(iteration, gaussians),
            Record::Finished { iteration, gaussians, peaks } => {
                self.reach(iteration, gaussians);
                self.peaks.raise_all(&peaks);
                self.is_finished = true;
            }
            Record::Memory(memory) => {
                self.peaks.raise_all(&memory.peaks);
                self.memory.push(memory);
            }
            Record::Evaluated { lpips_net } => self.has_lpips |= lpips_net.is_some(),
            Record::Buffers(buffers) => self.buffers.push(buffers),
            Record::Gpu(gpu) => self.gpu.push(gpu),
            Record::Rung(change) => self.changes.push(change),
            Record::Other => {}
        }
    }

    fn reach(&mut self, iteration: u32, gaussians: u64) {
        self.gaussians.insert(iteration, gaussians);
        self.iteration = iteration;
    }

    /// The run resumes after this iteration: later records of an earlier part are void.
    fn forget_after(&mut self, iteration: u32) {
        self.gaussians.retain(|&at, _| at <= iteration);
        self.memory.retain(|recorded| recorded.iteration <= iteration);
        self.buffers.retain(|recorded| recorded.iteration <= iteration);
        self.gpu.retain(|recorded| recorded.iteration <= iteration);
        self.changes.retain(|recorded| recorded.iteration <= iteration);
    }

    /// Gaussians after an iteration, or after the last one before it that is known.
    pub(super) fn gaussians_at(&self, iteration: u32) -> u64 {
        self.gaussians.range(..=iteration).next_back().map_or(0, |(_, &count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: &str = r#"{"time":1.0,"event":"started","model_path":"m","device":"CPU","train_views":7,"test_views":1,"gaussians":200,"iteration":0,"iterations":300}"#;

    fn step(iteration: u32, gaussians: u64) -> String {
        format!(r#"{{"event":"step","iteration":{iteration},"gaussians":{gaussians},"l1":0.1}}"#)
    }

    fn memory(iteration: u32, parameters: u64) -> String {
        format!(
            r#"{{"event":"memory","iteration":{iteration},"tensors":{{"parameters":{parameters},"optimizer":1,"gradients":1,"activations":1,"images":1}},"vram":null,"host_resident":9,"host_total":10}}"#
        )
    }

    fn read(text: &str) -> Result<Log, LogError> {
        Log::of_lines(Path::new("m/run.jsonl"), text.as_bytes())
    }

    #[test]
    fn events_that_are_not_known_are_passed_over() {
        let text = [STARTED, r#"{"event":"from the future","x":{}}"#, &step(10, 210)].join("\n");
        let log = read(&(text + "\n")).unwrap();
        assert_eq!((log.starts, log.iteration, log.gaussians_at(9)), (1, 10, 200));
        assert_eq!(log.gaussians_at(10), 210);
        assert!(!log.is_finished);
    }

    #[test]
    fn of_a_resumed_run_the_later_part_counts() {
        let resumed = STARTED.replace(r#""iteration":0"#, r#""iteration":100"#);
        let text = [
            STARTED,
            &step(100, 300),
            &memory(100, 11),
            &step(200, 400),
            &memory(200, 22),
            &resumed.replace("200,", "300,"),
            &step(110, 333),
            &memory(200, 33),
        ];
        let log = read(&text.join("\n")).unwrap();
        assert_eq!((log.starts, log.iteration), (2, 110));
        assert_eq!(log.gaussians_at(250), 333);
        let parameters: Vec<_> = log
            .memory
            .iter()
            .map(|recorded| (recorded.iteration, recorded.tensors.parameters.0))
            .collect();
        assert_eq!(parameters, [(100, 11), (200, 33)]);
    }

    #[test]
    fn an_unfinished_line_is_a_killed_runs_and_any_other_is_named() {
        let half = &step(20, 2)[..25];
        let resumed = STARTED.replace(r#""iteration":0"#, r#""iteration":10"#);
        for text in [
            format!("{STARTED}\n{half}"),
            // As a power cut leaves it.
            format!("{STARTED}\n\u{0}\u{0}"),
            format!("{STARTED}\n{half}\n"),
            format!("{STARTED}\n{half}\n{resumed}\n{}\n", step(20, 5)),
        ] {
            read(&text).unwrap();
        }
        for (text, line) in [
            (format!("{STARTED}\n{half}\n{}\n", step(30, 3)), 2),
            (format!("{STARTED}\n{half}\n{half}\n"), 2),
            (format!("{STARTED}\n{}\n{{\"event\":7}}\n", step(10, 1)), 3),
            (format!("{STARTED}\n\u{0}\u{0}\n"), 2),
            (format!("{STARTED}\n{{\"event\":\"step\"}}\n"), 2),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(&format!("m/run.jsonl, line {line}: ")), "{error}");
        }
    }

    #[test]
    fn a_log_without_a_run_is_empty() {
        for text in ["", "{\"ti", &step(10, 1)] {
            assert!(matches!(read(text), Err(LogError::Empty { .. })), "{text}");
        }
    }
}
