//! Tests of the tables.

use super::*;
use crate::perceptual::LpipsNet;
use crate::train::event::{Corrected, ReferenceMetrics, ViewMetrics};

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

/// The tables of a run, or of what resumes one, after these evaluations.
fn tell(model_path: &Path, resumed: bool, evaluations: &[Evaluation]) {
    for mut table in MetricsTable::all(model_path, resumed).unwrap() {
        for evaluation in evaluations {
            table.on(&Event::Evaluated(evaluation.clone())).unwrap();
        }
    }
}

#[test]
fn results_are_ordered_by_number_and_keep_what_others_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    fs::write(&path, r#"{"ours_30000":{"LPIPS":0.1,"PSNR":1.0},"theirs":[1]}"#).unwrap();
    for iteration in [7000, 30_000, 1000] {
        write_results(folder.path(), &evaluation(iteration, Split::Test)).unwrap();
    }
    write_results(folder.path(), &evaluation(5, Split::Train)).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let at = |key: &str| text.find(&format!("\"{key}\"")).unwrap();
    assert!(at("theirs") < at("ours_1000"), "{text}");
    assert!(at("ours_1000") < at("ours_7000"), "{text}");
    assert!(at("ours_7000") < at("ours_30000"), "{text}");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["ours_30000"], json!({"SSIM": 0.75, "PSNR": 25.5, "L1": 0.0625, "LPIPS": 0.1}));
    assert_eq!(json.as_object().unwrap().len(), 4);
}

#[test]
fn views_are_numbered_in_the_order_of_the_split() {
    let folder = tempfile::tempdir().unwrap();
    write_per_view(folder.path(), &evaluation(1000, Split::Test)).unwrap();
    let text = fs::read_to_string(folder.path().join("per_view.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        json,
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
    let path = folder.path().join("metrics.csv");
    fs::write(&path, "of an older run\n").unwrap();
    tell(folder.path(), false, &[evaluation(10, Split::Test), evaluation(10, Split::Train)]);
    tell(folder.path(), true, &[evaluation(100, Split::Test), evaluation(10, Split::Test)]);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "iteration,split,psnr,ssim,l1,gaussians,lpips,cc_psnr,cc_ssim,ref_ssim,ref_lpips\n\
         10,train,25.500000,0.750000,0.062500,1234,,,,,\n\
         100,test,25.500000,0.750000,0.062500,1234,,,,,\n\
         10,test,25.500000,0.750000,0.062500,1234,,,,,\n"
    );
}

#[test]
fn lpips_stands_in_every_table_with_its_network() {
    let folder = tempfile::tempdir().unwrap();
    let mut evaluation = evaluation(10, Split::Test);
    evaluation.lpips_net = Some(LpipsNet::Vgg);
    evaluation.mean.lpips = Some(0.25);
    evaluation.views[0].metrics.lpips = Some(0.125);
    evaluation.views[1].metrics.lpips = Some(0.375);
    // A row as it was written before there was LPIPS.
    let csv = folder.path().join("metrics.csv");
    let older = "iteration,split,psnr,ssim,l1,gaussians\n5,test,20.0,0.5,0.1,99\n";
    fs::write(&csv, older).unwrap();
    tell(folder.path(), true, &[evaluation]);
    assert_eq!(
        fs::read_to_string(&csv).unwrap(),
        "iteration,split,psnr,ssim,l1,gaussians,lpips,cc_psnr,cc_ssim,ref_ssim,ref_lpips\n\
         5,test,20.0,0.5,0.1,99,,,,,\n\
         10,test,25.500000,0.750000,0.062500,1234,0.250000,,,,\n"
    );
    let json = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(folder.path().join(name)).unwrap()).unwrap()
    };
    let results = &json("results.json")["ours_10"];
    assert_eq!((&results["LPIPS"], &results["lpips_net"]), (&json!(0.25), &json!("vgg")));
    let views = &json("per_view.json")["ours_10"]["LPIPS"];
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
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(text("metrics.csv").ends_with(",1234,,28.500000,0.875000,0.625000,0.375000\n"));
    let json = |name: &str| serde_json::from_str::<Value>(&text(name)).unwrap();
    assert_eq!(json("results.json")["ours_10"]["CC_PSNR"], 28.5);
    assert_eq!(json("results.json")["ours_10"]["REF_LPIPS"], 0.375);
    assert_eq!(json("per_view.json")["ours_10"]["REF_SSIM"]["00000.png"], 0.625);
    assert_eq!(json("per_view.json")["ours_10"]["CC_SSIM"]["00001.png"], 0.875);
    let view = serde_json::to_value(&evaluation.views[0]).unwrap();
    assert_eq!((&view["cc_psnr"], &view["psnr"]), (&json!(28.5), &json!(25.0)));
}

#[test]
fn what_could_not_be_written_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("results.json");
    fs::create_dir(&in_the_way).unwrap();
    let mut tables = MetricsTable::all(folder.path(), false).unwrap();
    let mut failed = |event: &Event| tables.each_mut().map(|table| table.on(event).is_err());
    assert_eq!(failed(&Event::Evaluated(evaluation(10, Split::Test))), [false, true, false]);
    fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(failed(&Event::Evaluated(evaluation(20, Split::Test))), [false; 3]);
    let text = fs::read_to_string(&in_the_way).unwrap();
    assert!(text.contains("ours_10") && text.contains("ours_20"), "{text}");
}

#[test]
fn of_many_that_write_tables_none_loses_a_row() {
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
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(text("metrics.csv").lines().count(), 1 + 40);
    for name in ["results.json", "per_view.json"] {
        let json: Value = serde_json::from_str(&text(name)).unwrap();
        assert_eq!(json.as_object().unwrap().len(), 40, "{name}");
    }
    // The lock leaves nothing.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_file_that_is_no_json_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    fs::write(&path, "{\"ours_1").unwrap();
    write_results(folder.path(), &evaluation(10, Split::Test)).unwrap();
    let aside = folder.path().join("results.json.unreadable");
    assert_eq!(fs::read_to_string(aside).unwrap(), "{\"ours_1");
    let json: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(json["ours_10"]["PSNR"], 25.5);
}
