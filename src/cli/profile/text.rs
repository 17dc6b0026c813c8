//! A profile as text.

use std::fmt::Write;

use crate::memory::Bytes;
use crate::telemetry::{BufferPeak, Finding, GpuSummary, Point, Profile};
use crate::train::event::PhasePeak;

/// The profile as people read it, with so many buffers.
pub(super) fn of(profile: &Profile, top: usize) -> String {
    // Writing to a string does not fail.
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
    peaks(&mut text, profile);
    buffers(&mut text, profile, top);
    growth(&mut text, &profile.growth);
    given_up(&mut text, profile);
    if let Some(summary) = &profile.gpu {
        gpu(&mut text, summary);
    }
    if !profile.profiled && profile.slack.is_some() {
        text.push_str(
            "\n\nThe run did not record its buffers: train with --profile-tensors to see the largest \
             of them here, and what was taken inside of iterations, rounds of density control and \
             evaluations.",
        );
    }
    findings(&mut text, &profile.findings);
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
            let of =
                peak.budget.map(|budget| format!(" of {:.1} MiB that may be taken", budget.mib()));
            write!(
                text,
                "\n\nthe most, at iteration {}: {:.1} MiB{}",
                peak.iteration,
                peak.bytes.mib(),
                of.unwrap_or_default()
            )
            .ok();
        }
        None => text.push_str("\n\nMemory is reported every 100 iterations, and at the end."),
    }
    text
}

/// The most by phase, without iterations: what each needs is compared with the others.
fn peaks(text: &mut String, profile: &Profile) {
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

fn buffers(text: &mut String, profile: &Profile, top: usize) {
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

/// `: u32[1500, 12]`, as far as that is known.
fn elements(buffer: &BufferPeak) -> String {
    match (buffer.element, buffer.shape) {
        (Some(element), Some([count, 1])) => format!(": {element}[{count}]"),
        (Some(element), Some([count, width])) => format!(": {element}[{count}, {width}]"),
        (Some(element), None) => format!(": {element}"),
        (None, _) => String::new(),
    }
}

/// What stands out, and the flags that help.
fn findings(text: &mut String, findings: &[Finding]) {
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

fn growth(text: &mut String, points: &[Point]) {
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

fn given_up(text: &mut String, profile: &Profile) {
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
            change.rung.words(change.given_up),
            maybe_mib(Some(change.bytes)),
            change.held.gib(),
            change.budget.gib()
        )
        .ok();
    }
}

fn gpu(text: &mut String, summary: &GpuSummary) {
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
