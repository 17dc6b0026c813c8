//! Formats are known by content, and files replace others whole.

use std::fs;
use std::path::Path;

use splat_formats::{SplatFileKind, SplatFormat, read, write};

use crate::known::{formats, scene};

#[test]
fn files_are_known_by_their_content_whatever_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let splats = scene(300, 1);
    for (name, format) in formats() {
        // `.splat` has no mark.
        let path = folder.path().join(if name == "a.splat" { "x.splat" } else { "x.bin" });
        let report = write(&path, &splats, &format).unwrap();
        assert_eq!((report.splats, report.bytes), (300, fs::metadata(&path).unwrap().len()));
        let found = read(&path).unwrap();
        let expected = match format {
            SplatFormat::Ply => SplatFileKind::Ply,
            SplatFormat::PackedPly => SplatFileKind::PackedPly,
            SplatFormat::Splat => SplatFileKind::Splat,
            SplatFormat::Spz(_) => SplatFileKind::Spz,
            SplatFormat::Glb => SplatFileKind::Glb,
            _ => SplatFileKind::Sog,
        };
        assert_eq!((found.kind, found.splats.len(), found.dropped), (expected, 300, 0), "{name}");
        fs::remove_file(path).unwrap();
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no unfinished file is left");
}

#[test]
fn a_folder_of_sog_is_read_by_its_name_and_by_that_of_its_meta_data() {
    let folder = tempfile::tempdir().unwrap();
    let scene_folder = folder.path().join("scene");
    let meta = scene_folder.join("meta.json");
    let format = SplatFormat::of_name(&meta).unwrap();
    let report = write(&meta, &scene(300, 2), &format).unwrap();
    let lengths = fs::read_dir(&scene_folder).unwrap().map(|it| it.unwrap().metadata().unwrap());
    assert_eq!(report.bytes, lengths.map(|about| about.len()).sum::<u64>());
    let [by_folder, by_meta] = [&scene_folder, &meta].map(|path| read(path).unwrap());
    assert_eq!(by_folder, by_meta);
    assert_eq!((by_folder.kind, by_folder.splats.len()), (SplatFileKind::Sog, 300));
}

#[test]
fn levels_of_detail_are_written_to_a_folder_and_the_finest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let meta = folder.path().join("lod-meta.json");
    let format = SplatFormat::of_name(&meta).unwrap();
    let report = write(&meta, &scene(300, 1), &format).unwrap();
    assert!(report.bytes > 0 && report.errors.position < 0.001, "{report:?}");
    let [by_folder, by_meta] = [folder.path(), &meta].map(|path| read(path).unwrap());
    assert_eq!(by_folder, by_meta);
    assert_eq!((by_folder.kind, by_folder.splats.len()), (SplatFileKind::StreamedSog, 300));
    let alone = read(&folder.path().join("3_0/meta.json")).unwrap();
    assert_eq!((alone.kind, alone.splats.len()), (SplatFileKind::Sog, 38));
}

#[test]
fn what_is_no_file_of_gaussians_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    fs::write(&text, "Gaussians").unwrap();
    for path in [&text, folder.path(), &folder.path().join("none.ply"), Path::new("")] {
        let message = read(path).unwrap_err().to_string();
        assert!(message.starts_with(&path.display().to_string()), "{message}");
    }
    let error = read(&text).unwrap_err().to_string();
    assert!(error.contains("has an unknown format"), "{error}");
    assert_eq!(SplatFormat::of_name(&text), None);
}

#[test]
fn a_git_lfs_pointer_and_an_empty_file_are_named_whatever_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    for name in ["a.ply", "a.spz", "a.sog", "a.splat", "a.glb", "a.ksplat", "a"] {
        for (text, parts) in [
            (pointer, ["is a Git LFS pointer", "git lfs pull"]),
            ("", ["is empty (0 bytes)", "Copy or export"]),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            let message = read(&path).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}

#[test]
fn a_page_is_written_and_is_not_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("a <scene>.html");
    let format = SplatFormat::of_name(&page).unwrap();
    let report = write(&page, &scene(300, 3), &format).unwrap();
    assert_eq!((report.splats, report.bytes), (300, fs::metadata(&page).unwrap().len()));
    assert!(report.errors.log_scale > 0.0 && report.errors.log_scale < 0.032, "{report:?}");
    assert_eq!(report.notes, Vec::<String>::new());
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("<title>a &lt;scene&gt;</title>"));
    let renamed = folder.path().join("scene.ply");
    fs::copy(&page, &renamed).unwrap();
    for path in [page, renamed] {
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("is a page for browsers"), "{message}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_named_when_written_to() {
    let path = Path::new("/nowhere/scene.spz");
    let format = SplatFormat::of_name(path).unwrap();
    let message = write(path, &scene(3, 0), &format).unwrap_err().to_string();
    assert!(message.starts_with("/nowhere/scene.spz: cannot be written"), "{message}");
}

#[test]
fn edits_survive_every_format() {
    let mut splats = scene(300, 3);
    splats.cut_sh_degree(1);
    let gone = splats.drop_faint(0.5);
    assert!(gone > 50 && splats.len() == 300 - gone);
    let folder = tempfile::tempdir().unwrap();
    for (name, format) in formats() {
        let path = folder.path().join(name);
        let report = write(&path, &splats, &format).unwrap();
        let found = read(&path).unwrap().splats;
        assert_eq!(found.len(), splats.len(), "{name}");
        let errors = report.errors;
        assert!(errors.position < 0.01 && errors.log_scale < 0.04, "{name}: {errors:?}");
        assert!(errors.rotation_degrees < 1.2 && errors.opacity < 0.003, "{name}: {errors:?}");
    }
}
