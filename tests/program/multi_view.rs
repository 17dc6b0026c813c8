//! `--multi-view`: views are compared with those beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rstest::rstest;
use splat::perceptual::{LpipsError, LpipsNet, LpipsWeights};

use crate::common::lpips::{Tensor, Version, file, tensors, write};
use crate::common::program::{Ended, SIZE, TestFolder, Text as _, cut, end, splat, text, words};
use crate::synthetic_scenes::{fixture_of, with_model};

/// The iterations of the photometric stage, and of both.
const START: u32 = 60;

const LAST: u32 = START + 60;

/// A stage whose surface terms come after 16 iterations and are told of after the hundredth of all.
const STAGE: [&str; 6] = words(
    "--sugar-iterations=60 --n-samples-for-sdf=200 --regularity-knn=8 --test-iterations=-1 \
     --regularize=median-normal --init-opacity=0.6",
);

fn trained(place: &TestFolder, model: &str, flags: &[&str]) -> Ended {
    place.trained_into(model, START, &[&STAGE[..], flags].concat())
}

/// A run with the comparison and a checkpoint in the middle of it, in `unbroken`.
static UNBROKEN: LazyLock<TestFolder> = LazyLock::new(|| {
    // Photographs from 25 degrees aside, of which each has others beside it.
    let write_scene = |place: &TestFolder| place.write_views(20, SIZE, 400);
    fixture_of("multi_view", write_scene, |place| {
        trained(place, "unbroken", &["--multi-view", "--checkpoint-iterations=95"]);
    })
});

#[test]
fn views_are_compared_with_others_and_the_log_says_how_they_agree() {
    let reports = UNBROKEN.events("unbroken", "surface");
    assert_eq!(reports.len(), 1, "{reports:?}");
    let value = reports[0]["multi_view"].as_f64().unwrap();
    // At most 0.9 in each pixel.
    assert!(value > 0.0 && value < 0.9, "{}", reports[0]);
    let place = TestFolder::beside(&UNBROKEN);
    trained(&place, "without", &[]).omits(&["--multi-view"]);
    assert!(place.events("without", "surface")[0]["multi_view"].is_null());
    let without = place.ply_bytes("without", LAST);
    assert!(UNBROKEN.ply_bytes("unbroken", LAST) != without, "it changes nothing");
    trained(&place, "weightless", &["--multi-view", "--multi-view-factor=0"]);
    place.assert_same(["weightless", "without"], LAST);
}

#[test]
fn a_resumed_run_compares_what_the_unbroken_one_does() {
    UNBROKEN.assert_continues("unbroken", 95, LAST);
}

#[test]
fn a_run_without_views_side_by_side_says_so_and_trains_on() {
    // Eight photographs from 60 degrees aside.
    let place = TestFolder::with_scene();
    trained(&place, "model", &["--multi-view"])
        .says(&["--multi-view compares nothing", "30 degrees"]);
    assert!(place.events("model", "surface")[0]["multi_view"].is_null());
}

#[test]
fn a_measurement_of_speed_compares_views_too() {
    let line = "bench --device=cpu --iterations=2 --warm-up=1 -m unbroken --multi-view \
                --regularize=median-normal --n-samples-for-sdf=200 --regularity-knn=8";
    UNBROKEN.splat(line, &[]).done().prints(&["each view compared with another"]);
}

/// The convolutions as torchvision names them, with a layer that LPIPS does not have.
fn network(net: LpipsNet) -> Vec<Tensor> {
    let is_head = |tensor: &Tensor| tensor.name.starts_with("lin");
    let mut network: Vec<Tensor> = tensors(net).into_iter().filter(|it| !is_head(it)).collect();
    for tensor in &mut network {
        let parts: Vec<&str> = tensor.name.split('.').collect();
        tensor.name = format!("features.{}.{}", parts[2], parts[3]);
    }
    let values = [1.0_f32, 2.0].into_iter().flat_map(f32::to_le_bytes).collect();
    let classifier = Tensor {
        name: "classifier.6.bias".to_owned(),
        shape: vec![2],
        bytes: values,
        ..network.remove(0)
    };
    let first = "features.0.weight".to_owned();
    network.insert(0, Tensor { name: first, ..tensors(net).remove(0) });
    network.insert(1, classifier);
    network
}

/// The weights that the `lpips` package learned.
fn heads(net: LpipsNet) -> Vec<Tensor> {
    tensors(net).into_iter().filter(|tensor| tensor.name.starts_with("lin")).collect()
}

/// A cache of `PyTorch` with torchvision's `AlexNet` and the heads of the `lpips` package.
fn torch_cache(place: &TestFolder, version: Version) -> PathBuf {
    let checkpoints = place.path("torch/hub/checkpoints");
    fs::create_dir_all(&checkpoints).unwrap();
    let network = file(&network(LpipsNet::Alex), version);
    fs::write(checkpoints.join("alexnet-owt-7be5be79.pth"), network).unwrap();
    fs::write(checkpoints.join("alex.pth"), file(&heads(LpipsNet::Alex), version)).unwrap();
    checkpoints
}

/// Weights, whatever files they were read from.
fn assert_same(found: &LpipsWeights, expected: &LpipsWeights) {
    assert_eq!(found.net(), expected.net());
    assert!(found.convolutions() == expected.convolutions() && found.linear() == expected.linear());
}

#[rstest]
#[case::a_zip(Version::Zip)]
#[case::a_row_of_pickles(Version::Stream)]
#[case::parameters_in_wrappers(Version::Parameters)]
fn files_of_pytorch_hold_the_weights_that_safetensors_hold(#[case] version: Version) {
    let place = TestFolder::empty();
    let whole = place.path("whole.safetensors");
    write(&whole, &tensors(LpipsNet::Alex));
    let expected = LpipsWeights::read(&whole).unwrap();

    let checkpoints = torch_cache(&place, version);
    let found = LpipsWeights::read(&checkpoints.join("alexnet-owt-7be5be79.pth")).unwrap();
    assert_same(&found, &expected);
    assert_eq!(found.files()[1], checkpoints.join("alex.pth"));
    // `lpips.LPIPS(net="alex").state_dict()` as torch.save writes it.
    let saved = place.path("lpips_alex.pth");
    fs::write(&saved, file(&tensors(LpipsNet::Alex), version)).unwrap();
    assert_same(&LpipsWeights::read(&saved).unwrap(), &expected);
}

#[test]
fn the_network_of_the_reference_is_read_from_torchvisions_file() {
    let place = TestFolder::empty();
    let path = place.path("vgg16-397923af.pth");
    fs::write(&path, file(&network(LpipsNet::Vgg), Version::Stream)).unwrap();
    fs::write(place.path("vgg.pth"), file(&heads(LpipsNet::Vgg), Version::Stream)).unwrap();
    let whole = place.path("whole.safetensors");
    write(&whole, &tensors(LpipsNet::Vgg));
    assert_same(&LpipsWeights::read(&path).unwrap(), &LpipsWeights::read(&whole).unwrap());
}

/// The error of a file that does not serve.
fn refused(path: &Path, parts: &[&str]) {
    let error = match LpipsWeights::read(path) {
        Err(error) => error,
        Ok(_) => panic!("{} was read", path.display()),
    };
    assert!(!matches!(error, LpipsError::Unreadable { .. }), "{error}");
    error.to_string().assert_holds(&[&[text(path)], parts].concat());
}

#[rstest]
#[case::a_zip(Version::Zip)]
#[case::a_row_of_pickles(Version::Stream)]
fn files_of_pytorch_that_do_not_serve_say_why(#[case] version: Version) {
    let place = TestFolder::empty();
    let checkpoints = torch_cache(&place, version);
    let (path, heads_path) =
        (checkpoints.join("alexnet-owt-7be5be79.pth"), checkpoints.join("alex.pth"));
    refused(&heads_path, &["holds no weights of LPIPS", "splat help measuring"]);
    let whole = fs::read(&path).unwrap();
    for length in [40, 900, 100_000, whole.len() - 1] {
        cut(&path, length);
        refused(&path, &["holds no weights of LPIPS"]);
        fs::write(&path, &whole).unwrap();
    }
    // A tensor that is said to be larger than its values.
    let mut larger = network(LpipsNet::Alex);
    larger[0].bytes.truncate(64);
    fs::write(&path, file(&larger, version)).unwrap();
    refused(&path, &["`features.0.weight` reaches beyond its values", "alex"]);
    let mut other = network(LpipsNet::Alex);
    other.remove(2);
    fs::write(&path, file(&other, version)).unwrap();
    refused(&path, &["`features.0.bias` is missing"]);
    fs::write(&path, &whole).unwrap();
    fs::remove_file(&heads_path).unwrap();
    refused(&path, &["alex.pth", "beside it", "lpips/weights/v0.1"]);
}

#[test]
fn the_first_files_of_pytorch_are_refused_by_name() {
    let place = TestFolder::empty();
    let path = place.path("alexnet-owt-4df8aa71.pth");
    let mut tar = vec![0; 1024];
    tar[..8].copy_from_slice(b"sys_info");
    tar[257..262].copy_from_slice(b"ustar");
    fs::write(&path, tar).unwrap();
    refused(&path, &["tar archive", "torch.load", "torch.save"]);
}

/// A model, and what `splat eval --json` with these flags and variables says of it.
fn eval(place: &TestFolder, flags: &[&str], variables: &[(&str, &Path)]) -> Ended {
    let mut command = splat();
    command.args(["eval", "--device=cpu", "--json", "-m"]).arg(place.model()).args(flags);
    end(command.envs(variables.iter().copied()))
}

fn lpips(ended: Ended) -> Option<f64> {
    let printed = ended.done().json();
    printed["mean"]["lpips"].as_f64()
}

#[test]
fn weights_are_found_where_they_usually_are() {
    let place = with_model(2, &["--eval"]);
    torch_cache(&place, Version::Zip);
    let torch = place.path("torch");
    let in_torch: &[(&str, &Path)] = &[("TORCH_HOME", &torch)];
    let expected = lpips(eval(&place, &["--enable-lpips"], in_torch)).unwrap();
    // LPIPS is not measured unless requested, even if torch's files are there.
    assert_eq!(lpips(eval(&place, &[], in_torch)), None);
    let doctor = |variables: &[(&str, &Path)]| {
        end(splat().arg("doctor").envs(variables.iter().copied())).stdout
    };
    doctor(in_torch).assert_holds(&["LPIPS      ok: alex, ", "alex.pth"]);

    // The cache of this program, and the variable, which asks for it.
    let caches = place.path("caches");
    fs::create_dir_all(caches.join("splat")).unwrap();
    let own = caches.join("splat/lpips_alex.safetensors");
    write(&own, &tensors(LpipsNet::Alex));
    let in_own: &[(&str, &Path)] = &[("XDG_CACHE_HOME", &caches)];
    assert_eq!(lpips(eval(&place, &["--enable-lpips"], in_own)), Some(expected));
    assert!(doctor(in_own).contains("LPIPS      ok: alex, "));
    let named: &[(&str, &Path)] = &[("SPLAT_LPIPS_WEIGHTS", &own)];
    assert_eq!(lpips(eval(&place, &[], named)), Some(expected));
    let nowhere = place.path("nowhere.pth");
    let variable: &[(&str, &Path)] = &[("SPLAT_LPIPS_WEIGHTS", &nowhere)];
    eval(&place, &[], variable)
        .refused(3, &["SPLAT_LPIPS_WEIGHTS: ", "nowhere.pth"])
        .omits(&["--lpips-weights"]);
    doctor(variable).assert_holds(&["weights that cannot be used: SPLAT_LPIPS_WEIGHTS: "]);

    // The network alone.
    fs::remove_file(torch.join("hub/checkpoints/alex.pth")).unwrap();
    let missing = ["alexnet-owt-7be5be79.pth is the network alone", "copy alex.pth"];
    eval(&place, &["--enable-lpips"], in_torch).refused(2, &missing);
    doctor(in_torch).assert_holds(&missing);
    doctor(&[]).assert_holds(&["LPIPS      no weights. Name a file"]);
    // A file that is broken is there all the same.
    cut(&own, 1000);
    let output = doctor(in_own);
    output.assert_holds(&["weights that cannot be used: ", text(&own)]);
    assert!(!output.contains("no weights. "), "{output}");
}

#[test]
fn what_a_run_found_is_stored_with_it() {
    let place = TestFolder::with_scene();
    let checkpoints = torch_cache(&place, Version::Stream);
    let flags = ["--iterations=2", "--eval", "--enable-lpips"];
    let mut train = place.train();
    end(train.args(flags).env("TORCH_HOME", place.path("torch"))).done();
    let stored = format!("lpips_weights = \"{}", text(&checkpoints.canonicalize().unwrap()));
    place.read("model/config.toml").assert_holds(&[&stored]);
    assert!(lpips(eval(&place, &[], &[])).is_some());
}
