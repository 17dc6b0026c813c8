//! A program without CUDA kernels on a machine with an NVIDIA GPU.

use std::fs;

use crate::common::program::{Ended, TestFolder, end};

/// Runs its arguments where `/dev` holds the file of a GPU; `$0` is an empty folder.
const WITH_GPU_FILE: &str = r#"
    mount -t tmpfs tmpfs "$0" && touch "$0/nvidia0" "$0/null" &&
    mount --bind /dev/null "$0/null" && mount --bind "$0" /dev && exec "$@"
"#;

/// The program on a machine with the files of a GPU. Nothing where this user may not mount, even in a
/// namespace of their own.
fn on_gpu_machine(place: &TestFolder, args: &[&str]) -> Option<Ended> {
    let devices = place.path("dev");
    fs::create_dir_all(&devices).unwrap();
    let run = |command: &[&str]| {
        let mut unshare = assert_cmd::Command::new("unshare");
        unshare.args(["--map-root-user", "--mount", "sh", "-c", WITH_GPU_FILE]).arg(&devices);
        end(unshare.env_remove("SPLAT_LOG").args(command))
    };
    if run(&["true"]).code != Some(0) {
        eprintln!("no mount namespace can be made here");
        return None;
    }
    Some(run(&[&[env!("CARGO_BIN_EXE_splat")], args].concat()))
}

#[test]
fn the_demonstration_trains_and_says_what_is_missing() {
    let place = TestFolder::empty();
    let model = place.path("demo");
    let demo = ["train", "--demo", "--iterations", "3", "-m", model.to_str().unwrap()];
    let Some(ended) = on_gpu_machine(&place, &demo) else { return };
    let said = ["warning", "has no CUDA kernels", "nvcc", "NVCC or CUDA_HOME"];
    ended.done().says(&said);
    // What comes next works there, too.
    let render = ["render", "--skip-train", "-m", model.to_str().unwrap()];
    on_gpu_machine(&place, &render).unwrap().done();
    let resume = [&demo[..], &["--resume"]].concat();
    on_gpu_machine(&place, &resume).unwrap().done();
}

#[test]
fn scenes_of_the_users_own_are_refused_unless_the_processor_is_asked_for() {
    let place = TestFolder::with_scene();
    let (scene, model) = (place.scene(), place.model());
    let train = ["train", "-s", scene.to_str().unwrap(), "-m", model.to_str().unwrap()];
    let train = [&train[..], &["--iterations", "2"]].concat();
    let Some(ended) = on_gpu_machine(&place, &train) else { return };
    ended.refused(5, &["has an NVIDIA GPU", "built without CUDA kernels", "--device cpu"]);
    on_gpu_machine(&place, &[&train[..], &["--device", "cpu"]].concat()).unwrap().done();
    let demo = ["train", "--demo", "--device", "cuda", "-m", model.to_str().unwrap()];
    let ended = on_gpu_machine(&place, &demo).unwrap();
    ended.refused(5, &["--device cuda: this program was built without CUDA kernels"]);
}
