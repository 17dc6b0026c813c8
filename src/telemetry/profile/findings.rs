//! What stands out in a run's use of memory, and what helps.

use std::collections::BTreeMap;

use serde::Serialize;

use super::log::{Log, LoggedBuffers, LoggedMemory};
use crate::memory::Bytes;
use crate::train::event::Phase;

/// Unexplained growth below this is that of the driver's own lists.
const LEAK: Bytes = Bytes(16 << 20);

/// Slack from which on it is worth returning more often, per cent.
const SLACK_PERCENT: f64 = 10.0;

/// Share of what may be taken from which on a run is near its limit, per cent.
const NEAR_PERCENT: f64 = 90.0;

/// Something that stands out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// In a sentence.
    pub text: String,
    /// Flags of `splat train` that help; none where nothing has to be done.
    pub flags: Option<String>,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Memory grew that nothing explains.
    Leak,
    /// Memory served nothing.
    Slack,
    /// Evaluation took more than training.
    Evaluation,
    /// How near the nearest limit was.
    Limit,
}

/// The findings of a run, of whose memory so many per cent served nothing on average.
pub(super) fn of(log: &Log, slack_percent: Option<f64>) -> Vec<Finding> {
    let slack = slack_percent.and_then(slack);
    [leak(log), slack, evaluation(log), limit(log)].into_iter().flatten().collect()
}

fn leak(log: &Log) -> Option<Finding> {
    let last = log.memory.iter().rev();
    let (creep, what) = match last.clone().find_map(|memory| memory.vram?.creep) {
        Some(creep) => (creep, "GPU memory"),
        None => (last.clone().find_map(|memory| memory.host_creep)?, "RAM"),
    };
    if creep < LEAK {
        return None;
    }
    let (where_it_is, flags) = match grown(&log.buffers) {
        Some((label, bytes)) => {
            let text = format!("; `{label}` grew most, by {:.1} MiB", bytes.mib());
            (
                text,
                "--checkpoint-iterations, and --resume in a new process, which begins without it",
            )
        }
        None => (String::new(), "--profile-tensors, which shows the buffer"),
    };
    Some(Finding {
        kind: FindingKind::Leak,
        text: format!(
            "{:.1} MiB of {what} were held at the end that the number of Gaussians does not \
             explain{where_it_is}. Please report it",
            creep.mib()
        ),
        flags: Some(flags.to_owned()),
    })
}

/// The buffer whose contents grew most while the number of Gaussians stayed the same, up to the end.
fn grown(recorded: &[LoggedBuffers]) -> Option<(&str, Bytes)> {
    let last = recorded.last()?;
    let mut same = recorded.iter().rev().take_while(|it| it.gaussians == last.gaussians);
    let first = same.by_ref().last()?;
    let before: BTreeMap<(&str, &str), Bytes> =
        first.entries.iter().map(|it| ((it.label.as_str(), it.kind.as_str()), it.bytes)).collect();
    let growth = last.entries.iter().filter(|it| it.kind != "pinned").map(|entry| {
        let key = (entry.label.as_str(), entry.kind.as_str());
        let before = before.get(&key).copied().unwrap_or_default();
        (entry.label.as_str(), Bytes(entry.bytes.0.saturating_sub(before.0)))
    });
    growth.max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| bytes.0 > 0)
}

fn slack(percent: f64) -> Option<Finding> {
    (percent > SLACK_PERCENT).then(|| Finding {
        kind: FindingKind::Slack,
        text: format!("{percent:.1} % of the memory served nothing on average"),
        flags: Some("--fragmentation aggressive".to_owned()),
    })
}

fn evaluation(log: &Log) -> Option<Finding> {
    let evaluation = log.peaks.of(Phase::Evaluation)?.vram?;
    let training = log.peaks.vram_of_training()?;
    let beyond = Bytes(evaluation.0.checked_sub(training.0).filter(|&bytes| bytes > 0)?);
    let flags = if log.has_lpips {
        "--enable-lpips false, and splat eval after the run"
    } else {
        "-r or --test-every: held-out views show more than those of training"
    };
    Some(Finding {
        kind: FindingKind::Evaluation,
        text: format!("evaluation took {:.1} MiB more than training", beyond.mib()),
        flags: Some(flags.to_owned()),
    })
}

/// Of the limits that are known the one that was approached most.
fn limit(log: &Log) -> Option<Finding> {
    let of_gpu = log.memory.iter().filter_map(|memory| {
        let vram = memory.vram?;
        Some((vram.reserved, vram.budget?))
    });
    // Within iterations more is taken than between them.
    let budget = log.memory.iter().rev().find_map(|memory| memory.vram?.budget);
    let of_gpu = of_gpu.chain(log.peaks.most().vram.zip(budget));
    // Where the limit is not known, the machine is it.
    let may_use = |memory: &LoggedMemory| memory.host_limit.or(memory.host_total);
    let of_host = log.memory.iter().filter_map(|it| Some((it.host_resident?, may_use(it)?)));
    let of_host = of_host.chain(log.peaks.most().host.zip(log.memory.last().and_then(may_use)));
    let nearest = |what: &'static str, flags: &'static str, used: Bytes, limit: Bytes| Nearest {
        what,
        flags,
        used,
        limit,
    };
    let gpu_flags = "--max-points N, -r, --offload sh, or --optimize-memory if it is off";
    let all = of_gpu
        .map(|(used, limit)| nearest("of the GPU memory that may be taken", gpu_flags, used, limit))
        .chain(of_host.map(|(used, limit)| {
            nearest("of the RAM that may be used", "--image-cache or --host-limit", used, limit)
        }));
    let most =
        all.filter(|it| it.limit.0 > 0).max_by(|a, b| a.percent().total_cmp(&b.percent()))?;
    let percent = most.percent();
    Some(Finding {
        kind: FindingKind::Limit,
        text: format!(
            "the nearest limit: {:.1} of {:.1} MiB {} ({percent:.0} %)",
            most.used.mib(),
            most.limit.mib(),
            most.what
        ),
        flags: (percent > NEAR_PERCENT).then(|| most.flags.to_owned()),
    })
}

/// What was used of a limit.
struct Nearest {
    what: &'static str,
    flags: &'static str,
    used: Bytes,
    limit: Bytes,
}

impl Nearest {
    fn percent(&self) -> f64 {
        100.0 * self.used.gib() / self.limit.gib()
    }
}
