//! LPIPS against the `lpips` package, and files of weights.

use std::fs;
use std::path::Path;

use crate::common::lpips::{Tensor, images, tensors, weights, write};
use crate::common::program::{SIZE, TestFolder, Text as _, end, text};
use safetensors::Dtype;
use splat::backend::DeviceError;
use splat::backend::cpu::LpipsModel;
use splat::math::Real;
use splat::math::ssim::{Pair, zero_padded_ssim};
use splat::perceptual::{LpipsError, LpipsInput, LpipsNet, LpipsWeights};

/// As the networks' inputs are: values in 0..1.
fn scaled(images: [Vec<u8>; 2]) -> [Vec<f32>; 2] {
    images.map(|image| image.into_iter().map(|value| f32::from(value) / 255.0).collect())
}

fn distance(net: &LpipsModel, size: [u32; 2], seed: u64, strips: Option<u32>) -> f64 {
    let [x, y] = scaled(images(size, seed));
    net.distance([&x, &y], size, strips, LpipsInput::Stretched).unwrap()
}

/// Width and height of two images, their seed, and their LPIPS.
type Sample = ([u32; 2], u64, f64);

/// Values that `lpips.LPIPS(net=..., pretrained=False, pnet_rand=True)` of lpips 0.1.4 with torch 2.15 gives
/// in double precision for these weights and images, `normalize=True`.
const OF_THE_PACKAGE: [(LpipsNet, [Sample; 3]); 2] = [
    (
        LpipsNet::Vgg,
        [
            ([70, 50], 1001, 0.252_206_424_456_049_7),
            ([131, 97], 1002, 0.267_943_852_577_299_1),
            ([33, 40], 1003, 0.451_667_827_568_159_3),
        ],
    ),
    (
        LpipsNet::Alex,
        [
            ([70, 50], 1001, 0.178_728_046_355_648_54),
            ([131, 97], 1002, 0.204_885_478_371_516_47),
            ([33, 40], 1003, 0.457_162_976_194_675_05),
        ],
    ),
];

#[test]
fn both_networks_give_what_the_package_gives() {
    for (net, expected) in OF_THE_PACKAGE {
        let weights = weights(net);
        assert_eq!(weights.net(), net);
        let ready = LpipsModel::new(&weights);
        for (size, seed, expected) in expected {
            let found = distance(&ready, size, seed, None);
            // Thousands of products are added in single precision, layer after layer.
            let error = (found - expected).abs() / expected;
            assert!(error < 1e-5, "{net:?} {size:?}: {found} instead of {expected}");
        }
    }
}

#[test]
fn strips_give_what_the_whole_image_gives() {
    for net in LpipsNet::ALL {
        let ready = LpipsModel::new(&weights(net));
        // The last layer of VGG16 has two rows of the first image, and so it is cut in two, and eight of
        // the second, which three strips share unevenly.
        for (size, cuts) in [([33, 40], &[u32::MAX][..]), ([35, 131], &[2, 3, u32::MAX])] {
            let whole = distance(&ready, size, 7, Some(1));
            for &strips in cuts {
                let found = distance(&ready, size, 7, Some(strips));
                // Sums of rows are added in another order, and products of matrices cut otherwise.
                assert!((found - whole).abs() < 1e-6 * whole, "{net:?}, {strips} strips: {found}");
            }
        }
    }
}

#[test]
fn an_image_is_like_itself_and_too_small_a_one_is_refused() {
    let ready = LpipsModel::new(&weights(LpipsNet::Alex));
    let [x, _] = scaled(images([40, 31], 1));
    assert_eq!(ready.distance([&x, &x], [40, 31], None, LpipsInput::Stretched).unwrap(), 0.0);
    let error = ready.distance([&x, &x], [40, 30], None, LpipsInput::Stretched).unwrap_err();
    assert!(matches!(error, DeviceError::TooSmallForLpips { least: 31, .. }), "{error}");
}

/// The error of reading a file of these tensors.
fn refused(path: &Path, tensors: &[Tensor]) -> String {
    write(path, tensors);
    match LpipsWeights::read(path) {
        Err(error @ (LpipsError::Tensor { .. } | LpipsError::NotWeights { .. })) => {
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn weights_that_do_not_serve_are_refused_with_file_tensor_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    // AlexNet's weights without the named one, or with a change of it.
    let refused_without = |name: &str, parts: &[&str]| {
        let mut given = tensors(LpipsNet::Alex);
        given.retain(|tensor| tensor.name != name);
        refused(&path, &given).assert_holds(&[&[text(&path)], parts].concat());
    };
    let refused_with = |name: &str, change: &dyn Fn(&mut Tensor), expected: &str| {
        let mut given = tensors(LpipsNet::Alex);
        change(given.iter_mut().find(|tensor| tensor.name == name).unwrap());
        refused(&path, &given).assert_holds(&[text(&path), expected]);
    };
    let parts = ["`lin3.model.1.weight` is missing", "splat help measuring", "as alex requires"];
    refused_without("lin3.model.1.weight", &parts);
    let expected = "no tensor `net.slice1.0.weight` or `features.0.weight`";
    refused_without("net.slice1.0.weight", &[expected, "splat help measuring"]);
    let expected = "`net.slice2.3.bias` is F32 [192, 1] instead of F32 [192]";
    refused_with("net.slice2.3.bias", &|it: &mut Tensor| it.shape = vec![192, 1], expected);
    let halve = |it: &mut Tensor| (it.dtype, it.shape) = (Dtype::F16, vec![512]);
    let expected = "`net.slice4.8.bias` is F16 [512] instead of F32 [256]";
    refused_with("net.slice4.8.bias", &halve, expected);
    let spoil = |it: &mut Tensor| it.bytes[40..44].copy_from_slice(&f32::NAN.to_le_bytes());
    let expected = "`net.slice5.10.weight` is not finite at element 10";
    refused_with("net.slice5.10.weight", &spoil, expected);
    let turn = |it: &mut Tensor| it.shape = vec![64, 11, 3, 11];
    refused_with("net.slice1.0.weight", &turn, "neither VGG16's nor AlexNet's");

    fs::write(&path, b"PK\x03\x04 a zip that is none").unwrap();
    let error = LpipsWeights::read(&path).unwrap_err();
    assert!(matches!(error, LpipsError::NotWeights { .. }), "{error}");
    let error = LpipsWeights::read(&folder.path().join("nowhere")).unwrap_err().to_string();
    assert!(error.contains("nowhere: the weights of LPIPS cannot be read"), "{error}");
}

/// A place with a scene, a file of `AlexNet`'s weights, and flags that name it.
fn with_weights() -> (TestFolder, String) {
    let place = TestFolder::with_scene();
    let path = place.path("alex.safetensors");
    write(&path, &tensors(LpipsNet::Alex));
    let path = text(&path).to_owned();
    (place, path)
}

#[test]
fn a_run_with_weights_measures_lpips_and_eval_finds_the_same() {
    let (place, path) = with_weights();
    let flags = ["--eval", "--enable-lpips", "--progress", "plain", "--lpips-weights", &path];
    place.trained(6, &flags).says(&["LPIPS 0."]);
    let results = &place.json("model/results.json")["ours_6"];
    let lpips = results["LPIPS"].as_f64().unwrap();
    assert!(lpips > 0.0, "{results}");
    assert_eq!(results["lpips_net"], "alex");
    assert_eq!(place.json("model/per_view.json")["ours_6"]["LPIPS"]["00000.png"], lpips);
    place.read("model/metrics.csv").assert_holds(&[&format!(",{lpips:.6},,,,\n")]);

    // Of the run's own weights, of those that are named, and without any that are there.
    let eval = |flags: &[&str]| place.run("eval", flags);
    let found = eval(&["--json"]).done().json();
    assert!((found["mean"]["lpips"].as_f64().unwrap() - lpips).abs() < 1e-4 * lpips, "{found}");
    let printed = eval(&["--enable-lpips"]).done().stdout;
    let (_, shown) = printed.split_once("LPIPS ").unwrap();
    let shown: f64 = shown.split_whitespace().next().unwrap().parse().unwrap();
    // Five digits of a score that is the same to a ten-thousandth.
    assert!((shown - lpips).abs() < 1e-4 * lpips + 1e-5, "{shown} and {lpips}");
    assert!(printed.contains("(alex)"), "{printed}");
    let moved = place.path("moved.safetensors");
    fs::rename(&path, &moved).unwrap();
    let without = eval(&["--json"]).done().says(&["warning", &path, "--lpips-weights"]);
    assert_eq!(without.json()["mean"].get("lpips"), None);
    eval(&["--enable-lpips"]).refused(3, &[&path, "--lpips-weights"]);
    let found = eval(&["--json", "--lpips-weights", text(&moved)]).done().json();
    assert!((found["mean"]["lpips"].as_f64().unwrap() - lpips).abs() < 1e-4 * lpips, "{found}");
}

#[test]
fn who_insists_on_lpips_hears_what_is_missing() {
    let place = TestFolder::with_scene();
    let train = |flags: &[&str]| end(place.train().args(["--iterations", "2"]).args(flags));
    train(&["--enable-lpips"]).refused(2, &["--lpips-weights FILE", "splat help measuring"]);
    let mut homeless = place.train();
    homeless.args(["--iterations=2", "--enable-lpips"]);
    homeless.env_remove("HOME").env_remove("XDG_CACHE_HOME");
    end(&mut homeless).refused(2, &["SPLAT_LPIPS_WEIGHTS", "splat help measuring"]);
    let nowhere = place.path("nowhere.safetensors");
    train(&["--lpips-weights", text(&nowhere)]).refused(3, &["nowhere", "--lpips-weights"]);
    assert!(!place.model().exists(), "refused before anything was begun");
    place.trained(2, &["--eval"]);
    let results = place.read("model/results.json");
    assert!(!results.contains("LPIPS") && !results.contains("lpips"), "{results}");
    place.run("eval", &["--enable-lpips"]).refused(2, &["--lpips-weights FILE"]);
}

#[test]
fn lpips_is_off_where_it_is_switched_off() {
    let (place, path) = with_weights();
    let flags = ["--eval", "--lpips-weights", &path];
    let results = || place.read("model/results.json");
    place.trained(1, &[&flags[..], &["--enable_lpips", "False"]].concat());
    assert!(!results().contains("LPIPS"), "{}", results());
    place.trained(1, &flags);
    assert!(results().contains("LPIPS"), "{}", results());
    let eval = |flags: &[&str]| place.run("eval", flags).done();
    eval(&[]).prints(&["LPIPS"]);
    assert!(!eval(&["--enable_lpips", "False"]).stdout.contains("LPIPS"));
    eval(&["--enable_lpips", "True"]).prints(&["LPIPS"]);
    // A resumed run forgets the weights that it was given before.
    let last = ["--resume", "--iterations=2", "--enable-lpips=false"];
    end(place.train().args(last)).done();
    assert!(!eval(&[]).stdout.contains("LPIPS"));
}

#[test]
fn eight_bits_are_fed_as_they_are() {
    for net in LpipsNet::ALL {
        let ready = LpipsModel::new(&weights(net));
        let images = scaled(images([48, 36], 5));
        let [x, y] = &images;
        let found = ready.distance([x, y], [48, 36], None, LpipsInput::EightBits).unwrap();
        // 2 v' - 1 of these is v.
        let [x, y] = images.clone().map(|image| image.iter().map(|v| (v + 1.0) / 2.0).collect());
        let (x, y): (Vec<f32>, Vec<f32>) = (x, y);
        let expected = ready.distance([&x, &y], [48, 36], None, LpipsInput::Stretched).unwrap();
        // The sum and the half round in single precision.
        assert!((found - expected).abs() < 1e-4 * expected, "{net:?}: {found}, not {expected}");
    }
}

/// The values of a PNG, 0..1.
fn png(path: &Path) -> Vec<f64> {
    let picture = image::open(path).unwrap().into_rgb8();
    picture.into_raw().into_iter().map(|value| f64::from(value) / 255.0).collect()
}

#[test]
fn metrics_of_the_reference_are_those_of_the_pngs() {
    let place = TestFolder::with_scene();
    let vgg = place.path("vgg.safetensors");
    write(&vgg, &tensors(LpipsNet::Vgg));
    let set = ["--eval", "--metrics", "reference", "--progress", "plain"];
    let flags = ["--lpips-weights", text(&vgg)];
    place.trained(4, &[&set[..], &flags].concat()).says(&["; as metrics.py SSIM 0.", " LPIPS 0."]);
    let results = place.json("model/results.json")["ours_4"].clone();

    place.run("render", &["--skip-train"]).done();
    let (width, height) = SIZE;
    let ready = LpipsModel::new(&LpipsWeights::read(&vgg).unwrap());
    let folder = place.model().join("test/ours_4");
    let [render, truth] = ["renders", "gt"].map(|kind| png(&folder.join(kind).join("00000.png")));
    let size = [width, height].map(|side| side as usize);
    let ssim = zero_padded_ssim(Pair { x: &render, y: &truth, size });
    let [x, y] =
        [&render, &truth].map(|image| image.iter().map(|&v| v.to_f32()).collect::<Vec<_>>());
    let lpips = ready.distance([&x, &y], [width, height], None, LpipsInput::EightBits).unwrap();
    let close = |found: &serde_json::Value, expected: f64| {
        let found = found.as_f64().unwrap();
        // Results are kept in full precision; features are summed in single precision.
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    };
    close(&results["REF_SSIM"], ssim);
    close(&results["REF_LPIPS"], lpips);
    assert!((results["SSIM"].as_f64().unwrap() - ssim).abs() > 1e-4, "{results}");
    assert!((results["LPIPS"].as_f64().unwrap() - lpips).abs() > 1e-4, "{results}");
    close(&place.json("model/per_view.json")["ours_4"]["REF_LPIPS"]["00000.png"], lpips);
    place.read("model/metrics.csv").assert_holds(&[&format!(",{ssim:.6},{lpips:.6}\n")]);

    // `eval` measures what training did, unless it is asked for another set.
    let eval = |flags: &[&str]| place.run("eval", flags).done();
    close(&eval(&["--json"]).json()["mean"]["ref_ssim"], ssim);
    eval(&[]).prints(&["metrics.py", &format!("SSIM {ssim:.7}")]);
    let standard = eval(&["--json", "--metrics", "standard"]).json();
    assert_eq!(standard["mean"].get("ref_ssim"), None, "{standard}");
    // Without weights there is SSIM, and a warning; those of AlexNet are not the reference's.
    fs::remove_file(&vgg).unwrap();
    let without = eval(&["--json"]).says(&["warning", "without LPIPS", "SPLAT_LPIPS_WEIGHTS"]);
    let mean = without.json()["mean"].clone();
    assert_eq!((mean.get("lpips"), mean.get("ref_lpips")), (None, None));
    close(&mean["ref_ssim"], ssim);
    let alex = place.path("alex.safetensors");
    write(&alex, &tensors(LpipsNet::Alex));
    let other = eval(&["--json", "--lpips-weights", text(&alex)]).says(&["warning", "AlexNet"]);
    let mean = other.json()["mean"].clone();
    assert!(mean["lpips"].is_number() && mean.get("ref_lpips").is_none(), "{mean}");
}

#[test]
fn views_too_small_for_the_network_go_without() {
    let (place, path) = with_weights();
    // A quarter of 48 x 36 px.
    let ended = place.trained(2, &["--eval", "-r", "4", "--lpips-weights", &path]);
    ended.says(&["warning", "without LPIPS", "at least 31 x 31 px", "12 x 9"]);
    let results = place.read("model/results.json");
    assert!(results.contains("PSNR") && !results.contains("LPIPS"), "{results}");
}
