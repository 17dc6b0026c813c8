//! `splat profile`: memory of a finished or running run.

use std::fmt::Write;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use clap::{ArgMatches, Args};

use super::exit::DataError;
use super::folder;
use super::output::{print_report, print_to_reader};
use super::parser::is_typed;
use crate::files::is_locked;
use crate::memory::Bytes;
use crate::telemetry::{BufferPeak, Finding, GpuSummary, Point, Profile, is_plain_wanted};
use crate::train::event::PhasePeak;

#[derive(Args)]
pub(super) struct ProfileArgs {
    /// Model folder of a run, or latest [default: latest]
    ///
    /// With latest, the run below output/ that wrote to its log last.
    #[arg(value_name = "MODEL")]
    model_path: Option<PathBuf>,

    /// Redraw while the run trains, until it ends
    #[arg(long, conflicts_with = "json")]
    follow: bool,

    /// Buffers to list
    ///
    /// They are recorded by runs on a GPU with --profile-tensors.
    #[arg(long, value_name = "N", default_value_t = 15)]
    top: usize,

    /// Print JSON, with all buffers
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ProfileArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let model_path = named_or_newest(args.model_path.as_deref())?;
    folder::check_not_file(&model_path)?;
    if args.follow {
        return follow(&model_path, args.top);
    }
    let profile = read(&model_path)?;
    if is_typed(matches, "top") && profile.buffers.is_empty() {
        tracing::warn!(
            "--top has no effect: {} has no record of the run's buffers. Train on a GPU with \
             --profile-tensors, and they are listed here",
            model_path.display()
        );
    }
    print_report(&profile, args.json, |profile| profile_text(profile, args.top))
}

// Choice of the run.

/// Folder of runs without a named folder.
const OUTPUT: &str = "output";

/// Argument that means the newest run.
const LATEST: &str = "latest";

/// Returns the named folder, or the newest run if none or `latest` is named and no folder is called `latest`.
fn named_or_newest(named: Option<&Path>) -> Result<PathBuf, DataError> {
    match named {
        Some(path) if path != Path::new(LATEST) || path.exists() => Ok(path.to_owned()),
        _ => newest(Path::new(OUTPUT)).ok_or_else(|| {
            DataError(format!(
                "{OUTPUT}: there is no run in this folder. Name the model folder of one"
            ))
        }),
    }
}

fn read(model_path: &Path) -> Result<Profile, DataError> {
    Profile::read(model_path).map_err(|error| DataError(error.to_string()))
}

/// Returns the subfolder whose log was written last.
fn newest(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let runs = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let written: SystemTime = fs::metadata(path.join("run.jsonl")).ok()?.modified().ok()?;
        Some((written, path))
    });
    runs.max().map(|(_, path)| path)
}

/// Returns the profile as text for the terminal. `top`: number of listed buffers.
fn profile_text(profile: &Profile, top: usize) -> String {
    // Writing to a string cannot fail.
    let mut text = head(profile);
    for share in profile.categories.iter().filter(|share| share.bytes > Bytes(0)) {
        let name = share.category.name();
        write!(text, "\n  {name:<36} {} {:>7.1} %", mib(share.bytes), share.percent).ok();
    }
    if let Some(slack) = profile.slack {
        write!(
            text,
            "\n\nslack: {:.1} % of the memory served nothing at the end, {:.1} % on average, {:.1} % \
             at most",
            slack.last, slack.mean, slack.most
        )
        .ok();
    }
    push_peaks(&mut text, profile);
    push_buffers(&mut text, profile, top);
    push_growth(&mut text, &profile.growth);
    push_given_up(&mut text, profile);
    if let Some(summary) = &profile.gpu {
        push_gpu(&mut text, summary);
    }
    if !profile.profiled && profile.slack.is_some() {
        text.push_str(
            "\n\nThe run did not record its buffers: train with --profile-tensors to see the largest \
             of them here, and what was taken inside of iterations, rounds of density control and \
             evaluations.",
        );
    }
    push_findings(&mut text, &profile.findings);
    text
}

fn head(profile: &Profile) -> String {
    let Profile { device, iteration, iterations, gaussians, .. } = profile;
    let how = match (profile.finished, iteration >= iterations) {
        (true, true) => "complete",
        (true, false) => "interrupted",
        (false, _) => "not at its end",
    };
    let mut text = format!(
        "{}: {iteration} of {iterations} iterations, {how}; {gaussians} Gaussians\n  on {device}",
        profile.model_path.display()
    );
    if profile.starts > 1 {
        let again = profile.starts - 1;
        write!(text, ", resumed {again} {}", if again == 1 { "time" } else { "times" }).ok();
    }
    match profile.peak {
        Some(peak) => {
            let profile_text =
                peak.budget.map(|budget| format!(" of {:.1} MiB that may be taken", budget.mib()));
            write!(
                text,
                "\n\nthe most, at iteration {}: {:.1} MiB{}",
                peak.iteration,
                peak.bytes.mib(),
                profile_text.unwrap_or_default()
            )
            .ok();
        }
        None => text.push_str("\n\nMemory is reported every 100 iterations, and at the end."),
    }
    text
}

/// Adds the peaks by phase, without iterations, to compare the needs of the phases.
fn push_peaks(text: &mut String, profile: &Profile) {
    let what = match profile.peaks.most() {
        PhasePeak { vram: Some(_), .. } => "GPU memory",
        PhasePeak { host: Some(_), .. } => "RAM",
        _ => return,
    };
    write!(text, "\n\npeaks of {what}").ok();
    for (phase, peak) in profile.peaks.iter() {
        if let Some(bytes) = peak.of_device() {
            write!(text, "\n  {:<36} {}", phase.words(), mib(bytes)).ok();
        }
    }
}

fn push_buffers(text: &mut String, profile: &Profile, top: usize) {
    if profile.buffers.is_empty() || top == 0 {
        return;
    }
    text.push_str("\n\nlargest buffers, each at its own most (blocks lie in the scratch)");
    for buffer in profile.buffers.iter().take(top) {
        let BufferPeak { label, kind, purpose, peak, percent, iteration, .. } = buffer;
        let elements = elements(buffer);
        write!(
            text,
            "\n  {label:<29} {kind:<11} {} {percent:>6.1} %  by {iteration:>6}  {purpose}{elements}",
            mib(*peak)
        )
        .ok();
    }
    let rest = profile.buffers.len().saturating_sub(top);
    if rest > 0 {
        let all = profile.buffers.len();
        write!(text, "\n  and {rest} smaller ones (--top {all} lists all)").ok();
    }
}

/// Formats the known element type and shape: `: u32[1500, 12]`.
fn elements(buffer: &BufferPeak) -> String {
    match (buffer.element, buffer.shape) {
        (Some(element), Some([count, 1])) => format!(": {element}[{count}]"),
        (Some(element), Some([count, width])) => format!(": {element}[{count}, {width}]"),
        (Some(element), None) => format!(": {element}"),
        (None, _) => String::new(),
    }
}

/// Adds the findings and the flags that help.
fn push_findings(text: &mut String, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    text.push_str("\n\nfindings");
    for Finding { text: what, flags, .. } in findings {
        write!(text, "\n  {what}").ok();
        if let Some(flags) = flags {
            write!(text, "\n    what helps: {flags}").ok();
        }
    }
}

fn push_growth(text: &mut String, points: &[Point]) {
    if points.is_empty() {
        return;
    }
    write!(
        text,
        "\n\n  {:>9} {:>11} {:>14} {:>14} {:>14} {:>14}",
        "iteration", "Gaussians", "allocated", "reserved", "creep", "host"
    )
    .ok();
    for point in points {
        write!(
            text,
            "\n  {:>9} {:>11} {:>14} {:>14} {:>14} {:>14}",
            point.iteration,
            point.gaussians,
            maybe_mib(Some(point.allocated)),
            maybe_mib(point.reserved),
            maybe_mib(point.creep),
            maybe_mib(point.host_resident),
        )
        .ok();
    }
}

fn push_given_up(text: &mut String, profile: &Profile) {
    if profile.changes.is_empty() {
        if profile.slack.is_some() {
            text.push_str("\n\nnothing was given up to save memory");
        }
        return;
    }
    text.push_str("\n\ngiven up to save memory, and restored");
    for change in &profile.changes {
        write!(
            text,
            "\n  iteration {}: {}: {} ({:.2} of {:.2} GiB were held)",
            change.iteration,
            change.fallback.words(change.given_up),
            maybe_mib(Some(change.bytes)),
            change.held.gib(),
            change.budget.gib()
        )
        .ok();
    }
}

fn push_gpu(text: &mut String, summary: &GpuSummary) {
    write!(text, "\n\nthe GPU, {} samples", summary.samples).ok();
    let figures = [
        ("busy, mean", summary.utilization_mean, "%"),
        ("memory in use by everybody, most", summary.memory_percent_max, "%"),
        ("temperature, most", summary.temperature_max_c.map(f64::from), "°C"),
        ("memory read or written, mean", summary.memory_load_mean, "% of the time"),
        ("power, mean", summary.power_mean_w, "W"),
        ("power that it may draw", summary.power_limit_w, "W"),
        ("fan, most", summary.fan_max_percent.map(f64::from), "%"),
        ("clock, mean", summary.clock_sm_mean_mhz, "MHz"),
        ("clock of its memory, mean", summary.clock_memory_mean_mhz, "MHz"),
        ("slowest performance state, 0 to 15", summary.pstate_slowest.map(f64::from), ""),
    ];
    for (name, figure, unit) in figures {
        if let Some(figure) = figure {
            let line = format!("\n  {name:<36} {figure:>9.1} {unit}");
            text.push_str(line.trim_end());
        }
    }
    for (reason, share) in summary.throttled_percent.iter().flatten() {
        let name = format!("slowed ({})", reason.replace('_', " "));
        write!(text, "\n  {name:<36} {share:>9.1} % of the samples").ok();
    }
    if summary.throttled_percent.as_ref().is_some_and(|reasons| reasons.is_empty()) {
        text.push_str("\n  never slowed by heat or power");
    }
}

fn mib(bytes: Bytes) -> String {
    format!("{:>9.1} MiB", bytes.mib())
}

fn maybe_mib(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| mib(bytes).trim_start().to_owned())
}

// Live profile of a run in training.

/// Interval between reads of the log.
const INTERVAL: Duration = Duration::from_secs(2);

/// Escape sequence that moves the cursor to the top and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows the profile until the run ends or the reader is gone.
fn follow(model_path: &Path, top: usize) -> anyhow::Result<()> {
    let is_terminal = io::stdout().is_terminal() && !is_plain_wanted();
    let mut shown = String::new();
    loop {
        // Check this before reading the log, so that the last entry is not missed.
        let is_training = is_locked(model_path);
        match read(model_path) {
            // The run may still be loading its scene.
            Err(_) if is_training => {}
            Err(error) => return Err(error.into()),
            Ok(profile) => {
                let mut text = profile_text(&profile, top);
                if !profile.finished && !is_training {
                    text.push_str(
                        "\n\nNo program trains in this folder now: there is nothing to follow.",
                    );
                }
                let has_reader = text == shown || {
                    let before = match (is_terminal, shown.is_empty()) {
                        (true, _) => CLEAR,
                        (false, true) => "",
                        (false, false) => "\n",
                    };
                    print_to_reader(&format!("{before}{text}"))?
                };
                if !has_reader || profile.finished || !is_training {
                    return Ok(());
                }
                shown = text;
            }
        }
        sleep(INTERVAL);
    }
}
