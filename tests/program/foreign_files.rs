//! `-c`, `--init` and `--start-checkpoint` recognise each other's files, and those of `torch.save`.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use crate::common::program::{Ended, TestFolder, end, text};
use crate::fixtures::fixture;
use rstest::rstest;

/// A run of four iterations in `model`, with files beside it as other programs leave them.
static FILES: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("foreign_files", |place| {
        place.trained(4, &["--save-iterations=2", "--checkpoint-iterations=2"]);
        // As `torch.save` writes them, newer and older versions.
        let zip = b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0archive/data.pkl\x80\x02";
        fs::write(place.model().join("chkpnt2.pth"), zip).unwrap();
        fs::write(place.model().join("chkpnt9.pth"), b"\x80\x02\x8a\x0al\xfc").unwrap();
        fs::write(place.path("15000.pt"), zip).unwrap();
        fs::write(place.path("renamed.bin"), zip).unwrap();
    })
});

/// Trains from this file by this flag.
fn train(flag: &str, file: &Path) -> Ended {
    let place = TestFolder::beside(&FILES);
    let ended = end(place.train().args(["--regularize=density", flag]).arg(file));
    assert!(!place.model().exists(), "something was written");
    ended
}

#[rstest]
#[case::of_the_coarse_stage("-c", "-c")]
#[case::to_start_from("--init", "--init")]
#[case::to_resume("--start-checkpoint", "--init")]
fn pytorch_files_are_named_with_the_ply_to_use(#[case] flag: &str, #[case] instead: &str) {
    let said = "is a PyTorch checkpoint, which this program does not read";
    let use_ply = |iteration| format!("use {instead} {}", text(&FILES.ply(iteration)));
    let folder = FILES.model();
    train(flag, &folder.join("chkpnt2.pth")).refused(3, &[said, "chkpnt2.pth", &use_ply(2)]);
    // Of an iteration without a PLY, the last one.
    train(flag, &folder.join("chkpnt9.pth")).refused(3, &[said, &use_ply(4)]);
    for name in ["15000.pt", "renamed.bin"] {
        let generic = format!("use {instead} MODEL/point_cloud/iteration_N/point_cloud.ply");
        train(flag, &FILES.path(name)).refused(3, &[said, name, &generic]);
    }
}

#[test]
fn checkpoints_and_plys_are_named_with_the_flag_that_takes_them() {
    let (checkpoint, ply) = (FILES.checkpoint(2), FILES.ply(2));
    let [checkpoint, ply] = [&checkpoint, &ply].map(|path| text(path));
    for flag in ["-c", "--init"] {
        let ended = train(flag, Path::new(checkpoint));
        ended.refused(3, &["is a checkpoint. ", "--start-checkpoint", &format!("{flag} {ply}")]);
    }
    let ended = train("--start-checkpoint", Path::new(ply));
    ended.refused(3, &["is a PLY", &format!("--init {ply}"), "-c for"]);
}

#[test]
fn folders_are_named_with_what_lies_in_them() {
    let folder = FILES.model();
    let model = text(&folder);
    let ended = train("--init", &folder);
    ended.refused(3, &["is a folder", text(&FILES.ply(4)), &format!("-c {model}")]);
    let ended = train("--start-checkpoint", &folder);
    ended.refused(3, &["--resume -m", text(&FILES.checkpoint(4))]);
    train("--start-checkpoint", &FILES.scene()).refused(3, &["is a folder, not a checkpoint"]);
}

#[test]
fn files_that_are_recognised_are_taken() {
    for (flag, file) in [
        ("-c", FILES.model()),
        ("-c", FILES.ply(2)),
        ("--init", FILES.ply(2)),
        ("--start-checkpoint", FILES.checkpoint(2)),
    ] {
        let place = TestFolder::beside(&FILES);
        let stage = ["--regularize=density", "--n-samples-for-sdf=100", "--sugar-iterations=3"];
        end(place.train().args(["--iterations=4", flag]).arg(file).args(stage)).done();
    }
}

/// Gaussians with one value that no training can start from, in a format.
fn with_value(name: &str, change: impl Fn(&mut splat_formats::SplatColumns)) -> std::path::PathBuf {
    let mut columns = splat_formats::read(&FILES.ply(4)).unwrap().splats.into_columns();
    change(&mut columns);
    let splats = splat_formats::Splats::from_columns(columns).unwrap().splats;
    let path = FILES.path(name);
    let format = splat_formats::SplatFormat::of_name(&path).unwrap();
    splat_formats::write(&path, &splats, &format).unwrap();
    path
}

#[test]
fn values_that_cannot_be_trained_are_named() {
    let harmonic = with_value("harmonic.glb", |it| it.sh_rest[1][2] = 1.5e28);
    train("--init", &harmonic).refused(3, &["harmonic.glb", "harmonic of 1.5e28"]);
    let place = with_value("place.ply", |it| it.means[3][0] = -1e20);
    train("--init", &place).refused(3, &["place.ply", "Gaussian 3", "coordinate"]);
    let colour = with_value("colour.glb", |it| it.sh_dc[0][1] = 1e9);
    train("--init", &colour).refused(3, &["colour.glb", "colour"]);
    let bytes = fs::read(with_value("nan.glb", |_| ())).unwrap();
    // The first coordinate of the binary part.
    let start = 28 + u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize;
    let broken = [&bytes[..start], &f32::NAN.to_le_bytes(), &bytes[start + 4..]].concat();
    fs::write(FILES.path("nan.glb"), broken).unwrap();
    train("--init", &FILES.path("nan.glb")).refused(3, &["nan.glb", "not finite", "splat export"]);
}

#[rstest]
#[case("a.ply")]
#[case("a.spz")]
#[case("a.sog")]
fn git_lfs_pointers_are_named(#[case] name: &str) {
    let path = FILES.path(name);
    fs::write(&path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n").unwrap();
    train("--init", &path).refused(3, &[name, "git lfs pull"]);
}
