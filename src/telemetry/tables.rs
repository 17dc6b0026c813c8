//! Metrics as tables: `metrics.csv`, `results.json` and `per_view.json` in the model folder.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serializer;
use serde_json::{Map, Value, json};

use crate::files::{OutputError, TableLock, write_atomically, write_text};
use crate::train::event::{Evaluation, Event, Metrics, Sink, Split};

/// Enters an evaluation into a table of the model folder.
type WriteTable = fn(&Path, &Evaluation) -> Result<(), OutputError>;

/// The sink that keeps one of the tables.
#[derive(Debug)]
pub struct MetricsTable {
    model_path: PathBuf,
    write: WriteTable,
    /// Evaluations that could not be written. They are tried again with the next and at the end.
    unwritten: Vec<Evaluation>,
}

impl MetricsTable {
    /// The tables in the model folder. A run that is not resumed starts `metrics.csv` anew;
    /// the JSON files are always merged with what they hold.
    pub fn all(model_path: &Path, resumed: bool) -> Result<[Self; 3], OutputError> {
        let csv = model_path.join(METRICS);
        if !resumed {
            let _lock = TableLock::take(model_path);
            write_text(&csv, &format!("{HEADER}\n"))?;
        }
        let writers: [WriteTable; 3] = [append_metrics, write_results, write_per_view];
        let model_path = model_path.to_owned();
        Ok(writers.map(|write| Self {
            model_path: model_path.clone(),
            write,
            unwritten: Vec::new(),
        }))
    }
}

impl Sink for MetricsTable {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        match event {
            Event::Evaluated(evaluation) => self.unwritten.push(evaluation.clone()),
            Event::Finished { .. } => {}
            _ => return Ok(()),
        }
        while let Some(first) = self.unwritten.first() {
            (self.write)(&self.model_path, first)?;
            self.unwritten.remove(0);
        }
        Ok(())
    }
}

const METRICS: &str = "metrics.csv";
const HEADER: &str =
    "iteration,split,psnr,ssim,l1,gaussians,lpips,cc_psnr,cc_ssim,ref_ssim,ref_lpips";

/// Appends a row to `metrics.csv` in the model folder; a row of the same iteration and split is
/// replaced. As with the other tables, another program that does so waits.
pub fn append_metrics(model_path: &Path, evaluation: &Evaluation) -> Result<(), OutputError> {
    let _lock = TableLock::take(model_path);
    let path = model_path.join(METRICS);
    let old = read_if_there(&path)?.unwrap_or_default();
    let key = format!("{},{},", evaluation.iteration, evaluation.split.name());
    // Columns are added at the end, so that rows of an older program only lack some.
    let is_header = |line: &str| line.starts_with("iteration,");
    let kept = old
        .lines()
        .filter(|line| !line.is_empty() && !is_header(line) && !line.starts_with(&key))
        .map(filled_up);
    let Metrics { psnr, ssim, l1, lpips, corrected, reference } = evaluation.mean;
    let optional = [
        lpips,
        corrected.map(|it| it.psnr),
        corrected.map(|it| it.ssim),
        reference.map(|it| it.ssim),
        reference.and_then(|it| it.lpips),
    ];
    let optional =
        optional.map(|value| value.map_or(String::new(), |value| format!("{value:.6}"))).join(",");
    let row = format!("{key}{psnr:.6},{ssim:.6},{l1:.6},{},{optional}", evaluation.gaussians);
    let lines: Vec<String> = [HEADER.to_owned()].into_iter().chain(kept).chain([row]).collect();
    write_text(&path, &(lines.join("\n") + "\n"))
}

/// The row with as many columns as the header has.
fn filled_up(row: &str) -> String {
    let commas = |line: &str| line.matches(',').count();
    row.to_owned() + &",".repeat(commas(HEADER).saturating_sub(commas(row)))
}

/// Merges `{"ours_N": {"SSIM": .., "PSNR": .., "L1": ..}}` into `results.json` in the model folder; with
/// LPIPS, where it was measured, and `lpips_net`, the network that measured it. Held-out views only: an evaluation of the training views changes nothing.
pub fn write_results(model_path: &Path, evaluation: &Evaluation) -> Result<(), OutputError> {
    if evaluation.split != Split::Test {
        return Ok(());
    }
    let mut metrics = columns(evaluation, |metric| json!(metric(&evaluation.mean)));
    metrics.extend(evaluation.lpips_net.map(|net| (LPIPS_NET, json!(net))));
    merge(&model_path.join("results.json"), evaluation.iteration, metrics)
}

/// Merges `{"ours_N": {"SSIM": {"00000.png": ..}, ..}}` into `per_view.json` in the model folder;
/// views are numbered in the order of the split, as the folder of renders is. Held-out views only.
pub fn write_per_view(model_path: &Path, evaluation: &Evaluation) -> Result<(), OutputError> {
    if evaluation.split != Split::Test {
        return Ok(());
    }
    let by_view = |value: &dyn Fn(&Metrics) -> Value| -> Value {
        let views = evaluation.views.iter();
        views
            .map(|view| (format!("{:05}.png", view.position), value(&view.metrics)))
            .collect::<Map<_, _>>()
            .into()
    };
    let metrics = columns(evaluation, |metric| by_view(&|view| json!(metric(view))));
    merge(&model_path.join("per_view.json"), evaluation.iteration, metrics)
}

/// The metrics that were measured by the names that they have in the files.
fn columns(
    evaluation: &Evaluation,
    value: impl Fn(fn(&Metrics) -> Option<f64>) -> Value,
) -> Vec<(&'static str, Value)> {
    let measured = COLUMNS.iter().filter(|(_, metric)| metric(&evaluation.mean).is_some());
    measured.map(|&(name, metric)| (name, value(metric))).collect()
}

/// A metric's name in the files, and how it is read.
type MetricColumn = (&'static str, fn(&Metrics) -> Option<f64>);

/// All metrics.
const COLUMNS: [MetricColumn; 8] = [
    ("SSIM", |m| Some(m.ssim)),
    ("PSNR", |m| Some(m.psnr)),
    ("L1", |m| Some(m.l1)),
    ("LPIPS", |m| m.lpips),
    ("CC_SSIM", |m| Some(m.corrected?.ssim)),
    ("CC_PSNR", |m| Some(m.corrected?.psnr)),
    ("REF_SSIM", |m| Some(m.reference?.ssim)),
    ("REF_LPIPS", |m| m.reference?.lpips),
];

/// The network of the LPIPS beside it.
const LPIPS_NET: &str = "lpips_net";

/// Sets the metrics of one iteration and keeps everything else that the file holds.
fn merge(
    path: &Path,
    iteration: u32,
    metrics: Vec<(&'static str, Value)>,
) -> Result<(), OutputError> {
    let _lock = path.parent().map(TableLock::take);
    let mut methods = read_object(path)?;
    let entry = methods.entry(format!("ours_{iteration}")).or_insert_with(|| json!({}));
    if !entry.is_object() {
        *entry = json!({});
    }
    if let Value::Object(entry) = entry {
        // What an earlier evaluation measured and this one does not is not true of the model any more.
        // An LPIPS without the name of its network is another program's.
        let ours: &[&str] = if entry.contains_key(LPIPS_NET) { &["LPIPS", LPIPS_NET] } else { &[] };
        let is_ours = |name: &str| {
            ["CC_", "REF_"].iter().any(|it| name.starts_with(it)) || ours.contains(&name)
        };
        entry.retain(|name, _| !is_ours(name));
        entry.extend(metrics.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    let mut methods: Vec<_> = methods.into_iter().collect();
    methods.sort_by(|(a, _), (b, _)| by_iteration(a, b));
    write_atomically(path, |out| {
        let mut json = serde_json::Serializer::pretty(&mut *out);
        json.collect_map(methods.iter().map(|(name, value)| (name, value)))?;
        out.write_all(b"\n")
    })
}

/// `ours_7000` before `ours_30000`; names of another kind come first.
fn by_iteration(a: &str, b: &str) -> Ordering {
    let number = |name: &str| name.strip_prefix("ours_").and_then(|n| n.parse::<u64>().ok());
    number(a).cmp(&number(b)).then_with(|| a.cmp(b))
}

/// What a JSON file holds. One that cannot be read as an object is put aside, not lost.
fn read_object(path: &Path) -> Result<Map<String, Value>, OutputError> {
    let Some(text) = read_if_there(path)? else { return Ok(Map::new()) };
    match serde_json::from_str(&text) {
        Ok(object) => Ok(object),
        Err(error) => {
            let aside = path.with_extension("json.unreadable");
            fs::rename(path, &aside).map_err(|source| OutputError::new(&aside, source))?;
            tracing::warn!(
                "{}: is not a JSON object ({error}); it was renamed to {} and begun anew",
                path.display(),
                aside.display()
            );
            Ok(Map::new())
        }
    }
}

fn read_if_there(path: &Path) -> Result<Option<String>, OutputError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OutputError::new(path, source)),
    }
}
