//! `--init`: a run starts from a model that another run, or another program, wrote.

use std::fs;
use std::path::Path;

use crate::common::program::{Ended, TestFolder, end, splat};
use crate::common::scene::as_in_a_ply;
use splat::export::{read_ply, write_ply};
use splat::math::Real;
use splat::math::random::{RandomStream, RandomUse};
use splat::model::{Gaussians, Primitive};

/// Learning rates of zero: what is saved is what training started from.
const FROZEN: [&str; 14] = [
    "--feature-rest-lr",
    "0",
    "--position-lr-init",
    "0",
    "--position-lr-final",
    "0",
    "--feature-lr",
    "0",
    "--opacity-lr",
    "0",
    "--scaling-lr",
    "0",
    "--rotation-lr",
    "0",
];

/// Gaussians within the tiny scene, no two alike.
fn model(sh_degree: u32) -> Gaussians {
    let stream = RandomStream::new(7, 0, RandomUse::Initialise);
    let mut model = Gaussians::zeros(sh_degree, 40);
    let mut index = 0;
    for values in model.groups_mut() {
        for value in values {
            index += 1;
            *value = (stream.uniform(index) * 0.8 + 0.1).to_f32();
        }
    }
    model.log_scales.iter_mut().for_each(|scale| *scale -= 4.0);
    as_in_a_ply(model)
}

/// The Gaussians as another program may write them: its columns in this order, doubles among them.
fn write_foreign(path: &Path, model: &Gaussians, names: &[&str], comment: &str) {
    let rest = model.sh_rest.len() / model.len();
    let value = |row: usize, name: &str| -> f32 {
        let number = |prefix: &str| name[prefix.len()..].parse::<usize>().unwrap();
        match name {
            "x" | "y" | "z" => model.means[row * 3 + "xyz".find(name).unwrap()],
            "opacity" => model.opacity_logits[row],
            _ if name.starts_with("scale_") => model.log_scales[row * 3 + number("scale_")],
            _ if name.starts_with("rot_") => model.quats[row * 4 + number("rot_")],
            _ if name.starts_with("f_dc_") => model.sh_dc[row * 3 + number("f_dc_")],
            _ if name.starts_with("f_rest_") => {
                let (channel, k) = (number("f_rest_") / (rest / 3), number("f_rest_") % (rest / 3));
                model.sh_rest[row * rest + k * 3 + channel]
            }
            // A column that means nothing here.
            _ => 0.5,
        }
    };
    let mut bytes =
        format!("ply\nformat binary_little_endian 1.0\n{comment}element vertex {}\n", model.len());
    for (at, name) in names.iter().enumerate() {
        let scalar = if at % 5 == 4 { "double" } else { "float" };
        bytes += &format!("property {scalar} {name}\n");
    }
    bytes += "end_header\n";
    let mut bytes = bytes.into_bytes();
    for row in 0..model.len() {
        for (at, name) in names.iter().enumerate() {
            match (at % 5 == 4, value(row, name)) {
                (true, value) => bytes.extend(f64::from(value).to_le_bytes()),
                (false, value) => bytes.extend(value.to_le_bytes()),
            }
        }
    }
    fs::write(path, bytes).unwrap();
}

fn train(place: &TestFolder, init: &Path, more: &[&str]) -> Ended {
    let mut command = splat();
    command.args(["train", "--device", "cpu", "--progress", "none", "--iterations", "1"]);
    command.arg("-s").arg(place.scene()).arg("-m").arg(place.model());
    command.arg("--init").arg(init).args(FROZEN).args(more);
    end(&mut command)
}

/// Rows in the order of their first coordinate: training keeps them in another order than the file.
fn sorted(model: &Gaussians) -> Vec<Vec<f32>> {
    let mut rows: Vec<Vec<f32>> = (0..model.len())
        .map(|row| {
            model.rows(row..row + 1).groups().iter().flat_map(|g| g.values.to_vec()).collect()
        })
        .collect();
    rows.sort_by(|a, b| a[0].total_cmp(&b[0]));
    rows
}

fn saved(place: &TestFolder) -> Gaussians {
    read_ply(&place.ply(1)).unwrap()
}

#[test]
fn a_run_starts_from_the_model_that_our_own_or_any_other_program_wrote() {
    let scales = ["scale_2", "scale_0", "scale_1"];
    let rest: Vec<String> = (0..9).rev().map(|i| format!("f_rest_{i}")).collect();
    let mut foreign = vec!["rot_3", "rot_0", "rot_2", "rot_1", "opacity", "z", "segment"];
    foreign.extend(scales);
    foreign.extend(rest.iter().map(String::as_str));
    foreign.extend(["f_dc_1", "f_dc_0", "x", "f_dc_2", "y"]);
    let model = model(1);
    let place = TestFolder::with_scene();
    let (ours, theirs) = (place.path("ours.ply"), place.path("theirs.ply"));
    write_ply(&ours, &model).unwrap();
    write_foreign(&theirs, &model, &foreign, "comment Exported from Another\n");
    for file in [&ours, &theirs] {
        train(&place, file, &["--sh-degree", "1"]).done();
        assert_eq!(sorted(&saved(&place)), sorted(&model), "{}", file.display());
    }
    // What viewers show as the run's beginning is that model, not the scene's points.
    let input = fs::read_to_string(place.model().join("input.ply"));
    let input = input.unwrap_or_else(|_| {
        String::from_utf8_lossy(&fs::read(place.model().join("input.ply")).unwrap()).into_owned()
    });
    assert!(input.contains("element vertex 40\n"), "{}", &input[..80]);
}

#[test]
fn another_sh_degree_drops_harmonics_or_adds_zeros() {
    let place = TestFolder::with_scene();
    let file = place.path("model.ply");
    write_ply(&file, &model(2)).unwrap();
    let says = ["above --sh-degree 0 are dropped", "up to --sh-degree 3 start from zero"];
    for (wanted, says) in [0, 3].into_iter().zip(says) {
        let degree = wanted.to_string();
        train(&place, &file, &["--sh-degree", &degree]).done().says(&[says]);
        let mut expected = model(2);
        expected.set_sh_degree(wanted);
        assert_eq!(sorted(&saved(&place)), sorted(&expected), "{wanted}");
    }
}

#[test]
fn a_model_that_does_not_serve_is_refused_before_anything_is_written() {
    let place = TestFolder::with_scene();
    let file = place.path("model.ply");
    write_ply(&file, &model(1)).unwrap();
    train(&place, &file, &["--max-points", "39"])
        .refused(2, &["model.ply", "40", "--max-points 39"]);
    train(&place, &place.path("nothing.ply"), &[]).refused(3, &["nothing.ply"]);
    write_foreign(&file, &model(0), &["x", "y", "z", "f_dc_0", "f_dc_1", "f_dc_2"], "");
    train(&place, &file, &[]).refused(3, &["model.ply", "`opacity`"]);
    assert!(!place.model().exists());
}

#[test]
fn a_run_that_began_from_a_model_goes_on_without_the_file() {
    let place = TestFolder::with_scene();
    let file = place.path("model.ply");
    write_ply(&file, &model(1)).unwrap();
    train(&place, &file, &["--sh-degree", "1"]).done();
    fs::remove_file(&file).unwrap();
    let mut command = splat();
    command.args(["train", "--device", "cpu", "--progress", "none", "--iterations", "2"]);
    command.arg("-m").arg(place.model()).arg("--resume");
    end(&mut command).done();
    assert_eq!(sorted(&read_ply(&place.ply(2)).unwrap()), sorted(&model(1)));
}
