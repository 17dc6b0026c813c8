//! Tables of metrics: `metrics.csv`, `results.json` and `per_view.json` in the model folder.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Serializer;
use serde_json::{Map, Value, json};

use crate::files::{OutputError, TableLock, write_atomically, write_text};
use crate::train::event::{Evaluation, Event, Metrics, Sink, Split, ViewMetrics};

/// A function that enters an evaluation into a table of the model folder.
type WriteTable = fn(&Path, &Evaluation) -> Result<(), OutputError>;

/// The sink that writes one of the tables.
#[derive(Debug)]
pub struct MetricsTable {
    model_path: PathBuf,
    write: WriteTable,
    /// Evaluations that could not be written. They are retried with the next one and at the end.
    unwritten: Vec<Evaluation>,
}

impl MetricsTable {
    /// Returns the tables in the model folder. A new run replaces `metrics.csv`; JSON files are always merged.
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

/// Appends a row to `metrics.csv` in the model folder, or replaces the row of the same iteration and split. All
/// tables are locked against other programs.
pub fn append_metrics(model_path: &Path, evaluation: &Evaluation) -> Result<(), OutputError> {
    let _lock = TableLock::take(model_path);
    let path = model_path.join(METRICS);
    let old = read_if_there(&path)?.unwrap_or_default();
    let key = format!("{},{},", evaluation.iteration, evaluation.split.name());
    // Columns are added at the end, so rows of older versions are only shorter.
    let is_header = |line: &str| line.starts_with("iteration,");
    let commas = |line: &str| line.matches(',').count();
    let kept = old
        .lines()
        .filter(|line| !line.is_empty() && !is_header(line) && !line.starts_with(&key))
        .map(|row| row.to_owned() + &",".repeat(commas(HEADER).saturating_sub(commas(row))));
    let text = |(_, value): (_, Option<f64>)| value.map_or(String::new(), |it| format!("{it:.6}"));
    let [psnr, ssim, l1, optional @ ..] = named(&evaluation.mean).map(text);
    let (gaussians, optional) = (evaluation.gaussians, optional.join(","));
    let row = format!("{key}{psnr},{ssim},{l1},{gaussians},{optional}");
    let lines: Vec<String> = [HEADER.to_owned()].into_iter().chain(kept).chain([row]).collect();
    write_text(&path, &(lines.join("\n") + "\n"))
}

/// Merges `{"ours_N": {"SSIM": .., "PSNR": .., "L1": ..}}` into `results.json` in the model folder, if measured with
/// LPIPS and its network, `lpips_net`. Only for held-out views.
pub fn write_results(model_path: &Path, evaluation: &Evaluation) -> Result<(), OutputError> {
    if evaluation.split != Split::Test {
        return Ok(());
    }
    let mut metrics = columns(evaluation, |at| json!(named(&evaluation.mean)[at].1));
    metrics.extend(evaluation.lpips_net.map(|net| (LPIPS_NET.to_owned(), json!(net))));
    merge(&model_path.join("results.json"), evaluation.iteration, metrics)
}

/// Merges `{"ours_N": {"SSIM": {"00000.png": ..}, ..}}` into `per_view.json` in the model folder. Views are numbered
/// in the order of the split, like the renders. Only for held-out views.
pub fn write_per_view(model_path: &Path, evaluation: &Evaluation) -> Result<(), OutputError> {
    if evaluation.split != Split::Test {
        return Ok(());
    }
    let metrics = columns(evaluation, |at| {
        let entry = |view: &ViewMetrics| {
            (format!("{:05}.png", view.position), json!(named(&view.metrics)[at].1))
        };
        evaluation.views.iter().map(entry).collect::<Map<_, _>>().into()
    });
    merge(&model_path.join("per_view.json"), evaluation.iteration, metrics)
}

/// Returns the measured metrics by their names in the files. `value` gets a metric's index in [`named`].
fn columns(evaluation: &Evaluation, value: impl Fn(usize) -> Value) -> Vec<(String, Value)> {
    let all = named(&evaluation.mean).into_iter().enumerate();
    let measured = all.filter(|(_, (_, mean))| mean.is_some());
    measured.map(|(at, (name, _))| (name.to_uppercase(), value(at))).collect()
}

/// Returns all metrics by name, in the order of the table; `None` if a metric was not measured.
pub(super) fn named(metrics: &Metrics) -> [(&'static str, Option<f64>); 8] {
    let Metrics { psnr, ssim, l1, lpips, corrected, reference } = *metrics;
    [
        ("psnr", Some(psnr)),
        ("ssim", Some(ssim)),
        ("l1", Some(l1)),
        ("lpips", lpips),
        ("cc_psnr", corrected.map(|it| it.psnr)),
        ("cc_ssim", corrected.map(|it| it.ssim)),
        ("ref_ssim", reference.map(|it| it.ssim)),
        ("ref_lpips", reference.and_then(|it| it.lpips)),
    ]
}

const LPIPS_NET: &str = "lpips_net";

/// Sets the metrics of one iteration and keeps everything else in the file.
fn merge(path: &Path, iteration: u32, metrics: Vec<(String, Value)>) -> Result<(), OutputError> {
    let _lock = path.parent().map(TableLock::take);
    let mut methods = read_object(path)?;
    let entry = methods.entry(format!("ours_{iteration}")).or_insert_with(|| json!({}));
    if !entry.is_object() {
        *entry = json!({});
    }
    if let Value::Object(entry) = entry {
        // Metrics that only an earlier evaluation measured are outdated. An LPIPS without the name of its network is
        // another program's.
        let ours: &[&str] = if entry.contains_key(LPIPS_NET) { &["LPIPS", LPIPS_NET] } else { &[] };
        let is_ours = |name: &str| {
            ["CC_", "REF_"].iter().any(|it| name.starts_with(it)) || ours.contains(&name)
        };
        entry.retain(|name, _| !is_ours(name));
        entry.extend(metrics);
    }
    // `ours_7000` comes before `ours_30000`; other names come first.
    let number = |name: &str| name.strip_prefix("ours_").and_then(|n| n.parse::<u64>().ok());
    let mut methods: Vec<_> = methods.into_iter().collect();
    methods.sort_by_cached_key(|(name, _)| (number(name), name.clone()));
    write_atomically(path, |out| {
        let mut json = serde_json::Serializer::pretty(&mut *out);
        json.collect_map(methods.iter().map(|(name, value)| (name, value)))?;
        out.write_all(b"\n")
    })
}

/// Reads a JSON object from a file. An unreadable file is renamed, not lost.
fn read_object(path: &Path) -> Result<Map<String, Value>, OutputError> {
    let Some(text) = read_if_there(path)? else { return Ok(Map::new()) };
    match serde_json::from_str(&text) {
        Ok(object) => Ok(object),
        Err(error) => {
            let aside = path.with_extension("json.unreadable");
            fs::rename(path, &aside).map_err(|source| OutputError::new(&aside, source))?;
            tracing::warn!(
                "{}: is not a JSON object ({error}); it was renamed to {} and started again",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perceptual::LpipsNet;
    use crate::train::event::{Corrected, ReferenceMetrics};

    fn evaluation(iteration: u32, split: Split) -> Evaluation {
        let view = |position, name: &str, psnr| ViewMetrics {
            position,
            name: name.to_owned(),
            px: [48, 36],
            metrics: Metrics { psnr, ssim: 0.75, l1: 0.0625, ..Metrics::default() },
        };
        Evaluation {
            iteration,
            split,
            mean: Metrics { psnr: 25.5, ssim: 0.75, l1: 0.0625, ..Metrics::default() },
            lpips_net: None,
            gaussians: 1234,
            views: vec![view(0, "a.jpg", 25.0), view(1, "b.jpg", 26.0)],
        }
    }

    fn text(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join(name)).unwrap()
    }

    fn json(folder: &Path, name: &str) -> Value {
        serde_json::from_str(&text(folder, name)).unwrap()
    }

    /// Writes evaluations to the tables of a new or resumed run.
    fn tell(model_path: &Path, resumed: bool, evaluations: &[Evaluation]) {
        for mut table in MetricsTable::all(model_path, resumed).unwrap() {
            for evaluation in evaluations {
                table.on(&Event::Evaluated(evaluation.clone())).unwrap();
            }
        }
    }

    #[test]
    fn results_are_ordered_and_keep_other_entries() {
        let folder = tempfile::tempdir().unwrap();
        let older = r#"{"ours_30000":{"LPIPS":0.1,"PSNR":1.0},"theirs":[1]}"#;
        fs::write(folder.path().join("results.json"), older).unwrap();
        for iteration in [7000, 30_000, 1000] {
            write_results(folder.path(), &evaluation(iteration, Split::Test)).unwrap();
        }
        write_results(folder.path(), &evaluation(5, Split::Train)).unwrap();
        let text = text(folder.path(), "results.json");
        let at = |key: &str| text.find(&format!("\"{key}\"")).unwrap();
        assert!(at("theirs") < at("ours_1000"), "{text}");
        assert!(at("ours_1000") < at("ours_7000"), "{text}");
        assert!(at("ours_7000") < at("ours_30000"), "{text}");
        let json = json(folder.path(), "results.json");
        assert_eq!(
            json["ours_30000"],
            json!({"SSIM": 0.75, "PSNR": 25.5, "L1": 0.0625, "LPIPS": 0.1})
        );
        assert_eq!(json.as_object().unwrap().len(), 4);
    }

    #[test]
    fn views_are_numbered_in_the_order_of_the_split() {
        let folder = tempfile::tempdir().unwrap();
        write_per_view(folder.path(), &evaluation(1000, Split::Test)).unwrap();
        assert_eq!(
            json(folder.path(), "per_view.json"),
            json!({"ours_1000": {
                "SSIM": {"00000.png": 0.75, "00001.png": 0.75},
                "PSNR": {"00000.png": 25.0, "00001.png": 26.0},
                "L1": {"00000.png": 0.0625, "00001.png": 0.0625},
            }})
        );
    }

    #[test]
    fn the_csv_has_one_header_and_one_row_for_each_evaluation() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("metrics.csv"), "of an older run\n").unwrap();
        tell(folder.path(), false, &[evaluation(10, Split::Test), evaluation(10, Split::Train)]);
        tell(folder.path(), true, &[evaluation(100, Split::Test), evaluation(10, Split::Test)]);
        assert_eq!(
            text(folder.path(), "metrics.csv"),
            "iteration,split,psnr,ssim,l1,gaussians,lpips,cc_psnr,cc_ssim,ref_ssim,ref_lpips\n\
         10,train,25.500000,0.750000,0.062500,1234,,,,,\n\
         100,test,25.500000,0.750000,0.062500,1234,,,,,\n\
         10,test,25.500000,0.750000,0.062500,1234,,,,,\n"
        );
    }

    #[test]
    fn every_table_has_lpips_with_its_network() {
        let folder = tempfile::tempdir().unwrap();
        let mut evaluation = evaluation(10, Split::Test);
        evaluation.lpips_net = Some(LpipsNet::Vgg);
        evaluation.mean.lpips = Some(0.25);
        evaluation.views[0].metrics.lpips = Some(0.125);
        evaluation.views[1].metrics.lpips = Some(0.375);
        // A row of a version without LPIPS.
        let older = "iteration,split,psnr,ssim,l1,gaussians\n5,test,20.0,0.5,0.1,99\n";
        fs::write(folder.path().join("metrics.csv"), older).unwrap();
        tell(folder.path(), true, &[evaluation]);
        assert_eq!(
            text(folder.path(), "metrics.csv"),
            "iteration,split,psnr,ssim,l1,gaussians,lpips,cc_psnr,cc_ssim,ref_ssim,ref_lpips\n\
         5,test,20.0,0.5,0.1,99,,,,,\n\
         10,test,25.500000,0.750000,0.062500,1234,0.250000,,,,\n"
        );
        let results = &json(folder.path(), "results.json")["ours_10"];
        assert_eq!((&results["LPIPS"], &results["lpips_net"]), (&json!(0.25), &json!("vgg")));
        let views = &json(folder.path(), "per_view.json")["ours_10"]["LPIPS"];
        assert_eq!(*views, json!({"00000.png": 0.125, "00001.png": 0.375}));
    }

    #[test]
    fn optional_metrics_have_columns_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut evaluation = evaluation(10, Split::Test);
        let corrected = Some(Corrected { psnr: 28.5, ssim: 0.875 });
        evaluation.mean.corrected = corrected;
        let reference = Some(ReferenceMetrics { ssim: 0.625, lpips: Some(0.375) });
        evaluation.mean.reference = reference;
        for view in &mut evaluation.views {
            (view.metrics.corrected, view.metrics.reference) = (corrected, reference);
        }
        append_metrics(folder.path(), &evaluation).unwrap();
        write_results(folder.path(), &evaluation).unwrap();
        write_per_view(folder.path(), &evaluation).unwrap();
        let row = text(folder.path(), "metrics.csv");
        assert!(row.ends_with(",1234,,28.500000,0.875000,0.625000,0.375000\n"));
        let json = |name| json(folder.path(), name);
        assert_eq!(json("results.json")["ours_10"]["CC_PSNR"], 28.5);
        assert_eq!(json("results.json")["ours_10"]["REF_LPIPS"], 0.375);
        assert_eq!(json("per_view.json")["ours_10"]["REF_SSIM"]["00000.png"], 0.625);
        assert_eq!(json("per_view.json")["ours_10"]["CC_SSIM"]["00001.png"], 0.875);
        let view = serde_json::to_value(&evaluation.views[0]).unwrap();
        assert_eq!((&view["cc_psnr"], &view["psnr"]), (&json!(28.5), &json!(25.0)));
    }

    #[test]
    fn failed_writes_are_retried() {
        let folder = tempfile::tempdir().unwrap();
        let in_the_way = folder.path().join("results.json");
        fs::create_dir(&in_the_way).unwrap();
        let mut tables = MetricsTable::all(folder.path(), false).unwrap();
        let mut failed = |event: &Event| tables.each_mut().map(|table| table.on(event).is_err());
        assert_eq!(failed(&Event::Evaluated(evaluation(10, Split::Test))), [false, true, false]);
        fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(failed(&Event::Evaluated(evaluation(20, Split::Test))), [false; 3]);
        let text = text(folder.path(), "results.json");
        assert!(text.contains("ours_10") && text.contains("ours_20"), "{text}");
    }

    #[test]
    fn concurrent_writers_lose_no_row() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let folder = folder.path();
                scope.spawn(move || {
                    for at in 0..10 {
                        let evaluation = evaluation(10 * writer + at, Split::Test);
                        append_metrics(folder, &evaluation).unwrap();
                        write_results(folder, &evaluation).unwrap();
                        write_per_view(folder, &evaluation).unwrap();
                    }
                });
            }
        });
        assert_eq!(text(folder.path(), "metrics.csv").lines().count(), 1 + 40);
        for name in ["results.json", "per_view.json"] {
            assert_eq!(json(folder.path(), name).as_object().unwrap().len(), 40, "{name}");
        }
        // The lock leaves no file.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn invalid_json_is_renamed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("results.json"), "{\"ours_1").unwrap();
        write_results(folder.path(), &evaluation(10, Split::Test)).unwrap();
        assert_eq!(text(folder.path(), "results.json.unreadable"), "{\"ours_1");
        assert_eq!(json(folder.path(), "results.json")["ours_10"]["PSNR"], 25.5);
    }
}
