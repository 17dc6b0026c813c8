//! Progress of a run on stderr.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use splat_mesh::narrow::floor_u32;

use super::closing::Closing;
use super::jsonl::Encoder;
use super::logging::{
    Console, Newlines, ProgressStyle, end_opening, escape_controls, escapes_wanted,
};
use super::status::{RunStage, RunStatus, clock, count};
use crate::files::OutputError;
use crate::memory::Bytes;
use crate::train::event::{Event, Saved, Sink, TargetPsnr, TargetReport};
use crate::train::span::ImageSpan;

const LINE_INTERVAL: Duration = Duration::from_secs(5);
const BAR_INTERVAL: Duration = Duration::from_millis(50);
const MEMORY_INTERVAL: u32 = 1000;

/// The sink that shows progress. It never fails, because training should outlive its terminal.
pub struct Progress {
    style: ProgressStyle,
    out: Box<dyn Write>,
    bar: Option<ProgressBar>,
    status: RunStatus,
    started: Instant,
    memory_reported: u32,
    /// Time and iteration of the last line.
    shown: Option<(Instant, u32)>,
    encoder: Encoder,
    closing: Closing,
}

impl Progress {
    /// Shows progress on stderr, together with the log of `init_logging`.
    pub fn to_stderr(style: ProgressStyle) -> Self {
        let console = Console::current();
        let mut this = Self::to_writer(style, console.writer());
        if style == ProgressStyle::Bar && escapes_wanted() {
            this.bar = Some(console.add(bar(BarLayout::Wide.style(RunStage::default()))));
        }
        this
    }

    /// Shows progress as lines in `writer`, also in the style of a bar.
    pub fn to_writer(style: ProgressStyle, writer: impl Write + 'static) -> Self {
        Self {
            style,
            out: Box::new(writer),
            bar: None,
            status: RunStatus::default(),
            started: Instant::now(),
            memory_reported: 0,
            shown: None,
            encoder: Encoder::default(),
            closing: Closing::default(),
        }
    }

    /// Prints a line and ignores errors, because the reader may be gone.
    fn print(&mut self, text: &str) {
        self.out.write_all(format!("{text}\n").as_bytes()).ok();
        self.out.flush().ok();
    }

    fn show(&mut self, event: &Event) {
        if let Some((iteration, text)) = occasion(event) {
            self.print(&format!("[ITER {iteration}] {text}"));
            return;
        }
        match event {
            Event::Started {
                model_path,
                device,
                train_views,
                test_views,
                gaussians,
                iteration,
                ..
            } => {
                self.started = Instant::now();
                self.status.stage = RunStage::Photometric;
                self.memory_reported = *iteration;
                let folder = model_path.display().to_string();
                let resumed = match iteration {
                    0 => String::new(),
                    _ => format!(", resumed at {iteration}"),
                };
                self.print(&format!(
                    "Training on {device}: {train_views} views, {test_views} held out, \
                     {} Gaussians{resumed}, into {}",
                    count(*gaussians),
                    escape_controls(&folder, Newlines::Escaped)
                ));
            }
            Event::Step(step) => {
                self.status.take_step(step);
                let last = step.iteration >= step.iterations;
                let interval = if self.bar.is_some() { BAR_INTERVAL } else { LINE_INTERVAL };
                if last || self.shown.is_none_or(|(at, _)| at.elapsed() >= interval) {
                    self.show_line();
                }
            }
            Event::Memory(report) => {
                self.status.memory = Some(*report);
                let since = ImageSpan { before: self.memory_reported, after: report.iteration };
                self.memory_reported = report.iteration;
                if since.crosses(MEMORY_INTERVAL)
                    && let Some(line) = self.status.memory_line()
                {
                    self.print(&line);
                }
            }
            Event::CoarseStarted { iteration, iterations, gaussians } => {
                self.status.stage = RunStage::Coarse;
                let what = format!("{gaussians} Gaussians, up to iteration {iterations}");
                self.print_coarse(*iteration, &what);
            }
            Event::Pruned { iteration, pruned, gaussians } => {
                let what = format!("{pruned} transparent Gaussians pruned, {gaussians} left");
                self.print_coarse(*iteration, &what);
            }
            Event::Neighbours { iteration, count, gaussians, seconds } => {
                let found = format!("{count} nearest neighbours of {gaussians} Gaussians found");
                self.print_coarse(*iteration, &format!("{found} in {seconds:.2} s"));
            }
            Event::Gpu(report) => self.status.gpu.clone_from(&report.sample),
            Event::Finished { .. } => self.finish(event),
            Event::Fallback { change, held, budget, .. } => {
                // Some fallbacks only reduce later requests and free no bytes.
                let bytes = match change.bytes {
                    Bytes(0) => String::new(),
                    bytes => format!(": {:.1} MiB", bytes.mib()),
                };
                self.print(&format!(
                    "[Memory] {}{bytes} ({:.2} of {:.2} GiB are held)",
                    change.fallback.words(change.given_up),
                    held.gib(),
                    budget.gib()
                ));
            }
            // Warnings go through the log, in every style.
            _ => {}
        }
    }

    fn print_coarse(&mut self, iteration: u32, what: &str) {
        self.print(&format!("[{}] Iter {iteration}: {what}", RunStage::Coarse.name()));
    }

    fn show_line(&mut self) {
        let Some(step) = &self.status.step else { return };
        let (iteration, iterations) = (step.iteration, step.iterations);
        let line = self.status.line(self.started.elapsed());
        let stage = self.status.stage;
        match &self.bar {
            Some(bar) => {
                let columns = console::Term::stderr().size().1;
                let layout = BarLayout::for_columns(columns, stage);
                bar.set_style(layout.style(stage));
                bar.set_message(layout.fit(&line, columns));
                bar.set_length(iterations.into());
                bar.set_position(iteration.into());
            }
            None => self.print(&format!("{} {line}", stage.name())),
        }
        self.shown = Some((Instant::now(), iteration));
    }

    /// Replaces the bar by its last line.
    fn finish(&mut self, event: &Event) {
        let bar = self.bar.take();
        if let Some(bar) = &bar {
            bar.finish_and_clear();
        }
        let shown = self.shown.map(|(_, iteration)| iteration);
        if bar.is_some() || self.status.step.as_ref().map(|step| step.iteration) != shown {
            self.show_line();
        }
        for line in self.closing.lines(event) {
            self.print(&line);
        }
    }
}

impl Sink for Progress {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        if self.style == ProgressStyle::Json {
            if let Ok(lines) = self.encoder.lines(event) {
                self.out.write_all(&lines).and_then(|()| self.out.flush()).ok();
            }
            return Ok(());
        }
        if let Event::Warning { message } = event {
            tracing::warn!("{message}");
        }
        if matches!(event, Event::Started { .. }) {
            for line in end_opening(true) {
                self.print(&line);
            }
        }
        self.closing.take(event);
        if self.style != ProgressStyle::None {
            self.show(event);
        }
        Ok(())
    }
}

/// Returns the iteration and the text of an occasional event.
fn occasion(event: &Event) -> Option<(u32, String)> {
    Some(match event {
        Event::ViewSize { iteration, divisor } => {
            let size = match divisor {
                1 => "full size".to_owned(),
                _ => format!("1/{divisor} of their size"),
            };
            (*iteration, format!("Training views are drawn at {size}"))
        }
        Event::PrunedToTarget(report) => (report.iteration, target_text(report)),
        Event::Evaluated(evaluation) => {
            let (split, mean) = (evaluation.split.name(), &evaluation.mean);
            let lpips = |it: Option<f64>| it.map_or(String::new(), |it| format!(" LPIPS {it:.4}"));
            let corrected = mean.corrected.map_or(String::new(), |it| {
                format!("; colour-corrected PSNR {:.3} SSIM {:.4}", it.psnr, it.ssim)
            });
            let reference = mean.reference.map_or(String::new(), |it| {
                format!("; as metrics.py SSIM {:.4}{}", it.ssim, lpips(it.lpips))
            });
            let text = format!(
                "Evaluating {split}: L1 {:.5} PSNR {:.3} SSIM {:.4}{}{corrected}{reference}",
                mean.l1,
                mean.psnr,
                mean.ssim,
                lpips(mean.lpips)
            );
            (evaluation.iteration, text)
        }
        Event::Saved { iteration, what: Saved::PointCloud, .. } => {
            (*iteration, "Saving Gaussians".to_owned())
        }
        Event::Saved { iteration, what: Saved::Checkpoint, .. } => {
            (*iteration, "Saving Checkpoint".to_owned())
        }
        Event::Control { iteration, action, .. } => (*iteration, action.words().to_owned()),
        Event::Ended { iteration, message, .. } => (*iteration, message.clone()),
        _ => return None,
    })
}

/// Describes the prune to `--target-gaussians`.
fn target_text(report: &TargetReport) -> String {
    let TargetReport { target, pruned, gaussians, psnr, .. } = report;
    if *pruned == 0 {
        return format!("Nothing to prune: {}, --target-gaussians {target}", counted(*gaussians));
    }
    let decibels = |psnr: Option<f64>| psnr.map_or("-".to_owned(), |psnr| format!("{psnr:.3}"));
    let cost = psnr.as_ref().map_or(String::new(), |TargetPsnr { split, before, after }| {
        format!("; {split} PSNR {} before, {} after", decibels(*before), decibels(*after))
    });
    format!("Pruned {}, {gaussians} left{cost}", counted(*pruned))
}

/// Formats `1 Gaussian`, `2 Gaussians`.
fn counted(gaussians: usize) -> String {
    format!("{gaussians} Gaussian{}", if gaussians == 1 { "" } else { "s" })
}

/// Returns a bar, hidden until its console draws it.
fn bar(style: indicatif::ProgressStyle) -> ProgressBar {
    ProgressBar::hidden().with_style(style)
}

fn bar_style(template: &str) -> indicatif::ProgressStyle {
    indicatif::ProgressStyle::with_template(template)
        .unwrap_or_else(|_| indicatif::ProgressStyle::default_bar())
        .progress_chars("━╸ ")
}

/// Layout of the line for the width of the terminal. Its end, the remaining time, matters more than the bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BarLayout {
    Wide,
    Medium,
    Narrow,
}

/// Columns of the narrow bar and the blank after it.
const BAR_COLUMNS: usize = 5;

impl BarLayout {
    /// Chooses the layout. The line of a long run takes 82 columns, or 70 without the blanks around its separators;
    /// the name of the stage before it takes 8, or 15 in the coarse stage.
    fn for_columns(columns: u16, stage: RunStage) -> Self {
        let taken = if stage == RunStage::Coarse { 15 } else { 8 };
        match columns.saturating_sub(taken) {
            102.. => Self::Wide,
            90..102 => Self::Medium,
            _ => Self::Narrow,
        }
    }

    /// Returns the style without colours, cut at the width of the terminal.
    fn style(self, stage: RunStage) -> indicatif::ProgressStyle {
        let stage = stage.name();
        bar_style(&match self {
            Self::Wide => format!("{stage} {{bar:16}} {{wide_msg}}"),
            Self::Medium => format!("{stage} {{bar:4}} {{wide_msg}}"),
            Self::Narrow => "{bar:4} {wide_msg}".to_owned(),
        })
    }

    /// Drops the least important parts of the line until it fits beside a narrow bar.
    fn fit(self, line: &str, columns: u16) -> String {
        if self != Self::Narrow {
            return line.to_owned();
        }
        // Loads, elapsed time, number of Gaussians, speed, loss.
        const DROP_ORDER: [usize; 5] = [3, 5, 2, 4, 1];
        let parts: Vec<&str> = line.split(" │ ").collect();
        let room = usize::from(columns).saturating_sub(BAR_COLUMNS);
        let without = |dropped: &[usize]| {
            let kept = parts.iter().enumerate().filter(|(at, _)| !dropped.contains(at));
            kept.map(|(_, part)| *part).collect::<Vec<_>>().join("│")
        };
        (0..=DROP_ORDER.len())
            .map(|count| without(&DROP_ORDER[..count]))
            .find(|line| line.chars().count() <= room)
            .unwrap_or_else(|| without(&DROP_ORDER))
    }
}

// Progress of other work: a bar if stderr takes escape sequences, else a line every 5 seconds.

const FULL: u64 = 1000;

/// Progress of the stages of some work, in the command's style, unless the log shows only warnings.
pub struct WorkProgress {
    is_shown: bool,
    bar: Option<ProgressBar>,
    stage: Mutex<Stage>,
}

struct Stage {
    name: &'static str,
    /// Start of the stage, or of its last repetition.
    begun: Instant,
    /// Finished share, 0 to 1.
    share: f64,
    shown: Instant,
}

impl Stage {
    fn new(name: &'static str) -> Self {
        let now = Instant::now();
        Self { name, begun: now, share: 0.0, shown: now }
    }

    /// Sets the finished share. A falling share restarts the stage.
    fn advance(&mut self, share: f64) {
        if share < self.share {
            self.begun = Instant::now();
        }
        self.share = share;
    }

    /// Formats `45 %, 0:01:10 left`.
    fn described(&self) -> String {
        let share = self.share;
        let percent = (100.0 * share).floor();
        if share <= 0.0 {
            return format!("{percent} %");
        }
        let left = self.begun.elapsed().as_secs_f64() * (1.0 - share) / share;
        format!("{percent} %, {} left", clock(left))
    }
}

impl WorkProgress {
    /// Shows progress on stderr, together with the log of `init_logging`.
    pub fn to_stderr() -> Self {
        let console = Console::current();
        let is_shown = console.style != ProgressStyle::None && console.shows_news(module_path!());
        let has_bar = is_shown && console.style == ProgressStyle::Bar && escapes_wanted();
        let bar = has_bar.then(|| console.add(bar(bar_style("{prefix} {bar:16} {wide_msg}"))));
        if let Some(bar) = &bar {
            bar.set_length(FULL);
        }
        Self { is_shown, bar, stage: Mutex::new(Stage::new("")) }
    }

    /// Sets the finished share of a stage, 0 to 1.
    pub fn report(&self, name: &'static str, share: f64) {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if stage.name != name {
            *stage = Stage::new(name);
        }
        stage.advance(share);
        match &self.bar {
            Some(bar) => {
                bar.set_prefix(name);
                bar.set_message(stage.described());
                bar.set_position(floor_u32(share.clamp(0.0, 1.0) * FULL as f64).into());
            }
            None if self.is_shown && stage.shown.elapsed() >= LINE_INTERVAL => {
                stage.shown = Instant::now();
                tracing::info!("{name}: {}", stage.described());
            }
            None => {}
        }
    }
}

impl Drop for WorkProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_terminal_keeps_iterations_and_remaining_time() {
        let line =
            "491/30000 │ L:0.214 │ N:1.2M │ V:83% R:34% C:14% │ 17.2it/s │ 0:09:31 │ 0:23:10";
        let fit =
            |columns| BarLayout::for_columns(columns, RunStage::Photometric).fit(line, columns);
        assert_eq!(fit(40), "491/30000│L:0.214│17.2it/s│0:23:10");
        assert_eq!(fit(24), "491/30000│0:23:10");
        assert_eq!(fit(80), line.replace(" │ ", "│"));
        assert_eq!(fit(120), line);
    }

    #[test]
    fn falling_share_restarts_the_stage() {
        let mut stage = Stage::new("surface");
        let Some(long_ago) = stage.begun.checked_sub(Duration::from_secs(93)) else { return };
        stage.begun = long_ago;
        stage.advance(0.75);
        assert_eq!(stage.described(), "75 %, 0:00:31 left");
        stage.advance(0.25);
        assert_eq!(stage.described(), "25 %, 0:00:00 left");
    }
}
