//! Files that other programs wrote of a known scene.

use std::path::{Path, PathBuf};

use splat_formats::{SplatFileKind, Splats, SpzAxes, WorstErrors, read, read_with_axes};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/golden").join(name)
}

/// The rows of a file in the order of the scene, by place: files of other programs are sorted.
fn in_order(scene: &Splats, found: &Splats) -> Splats {
    let squared =
        |a: [f32; 3], b: [f32; 3]| -> f32 { a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum() };
    let nearest = |mean: &[f32; 3]| {
        let distances = found.columns().means.iter().map(|other| squared(*mean, *other));
        let nearest = (0_u32..).zip(distances).min_by(|a, b| a.1.total_cmp(&b.1));
        nearest.unwrap().0
    };
    let rows: Vec<u32> = scene.columns().means.iter().map(nearest).collect();
    found.rows(&rows)
}

/// The worst errors of a file against the scene.
fn errors(name: &str, kind: SplatFileKind) -> WorstErrors {
    errors_in_axes(name, kind, None)
}

/// The same of an SPZ in these axes.
fn errors_in_axes(name: &str, kind: SplatFileKind, axes: Option<SpzAxes>) -> WorstErrors {
    let scene = read(&golden("scene.ply")).unwrap().splats;
    let found = read_with_axes(&golden(name), axes).unwrap();
    assert_eq!((found.kind, found.splats.len(), found.dropped), (kind, 300, 0), "{name}");
    assert_eq!(found.notes, Vec::<String>::new(), "{name}");
    WorstErrors::between(&scene, &in_order(&scene, &found.splats))
}

#[test]
fn a_packed_ply_of_another_program_is_read_within_its_steps() {
    let worst = errors("transform.compressed.ply", SplatFileKind::PackedPly);
    // Half of 16 units by 10 bits, of 7 by 10, of 1/255, of 1/32.
    assert!(worst.position < 0.5 * 16.0 / 1023.0 && worst.log_scale < 0.5 * 7.0 / 1023.0);
    assert!(worst.opacity < 0.51 / 255.0 && worst.sh < 1.01 / 64.0, "{worst:?}");
    assert!(worst.rotation_degrees < 0.28 && worst.color < 0.002, "{worst:?}");
}

#[test]
fn a_splat_of_another_program_is_read_within_its_steps() {
    let worst = errors("transform.splat", SplatFileKind::Splat);
    assert!(worst.position == 0.0 && worst.log_scale < 1e-6, "{worst:?}");
    // It truncates bytes: a whole step.
    assert!(worst.opacity < 1.01 / 255.0 && worst.color < 1.01 / 255.0, "{worst:?}");
    assert!(worst.rotation_degrees < 2.0, "{worst:?}");
}

#[test]
fn spz_files_of_other_programs_are_read_within_their_steps() {
    // Steps of harmonics: 1/8 and 1/16 by splat-transform, which rounds twice; 1/128 by Adobe's. Version 3 of
    // splat-transform leaves a PLY's axes as they are, and does not say so.
    let files = [
        ("transform.spz", Some(SpzAxes::SCENE), 0.07),
        ("transform.2.spz", None, 0.07),
        ("adobe.v3.spz", None, 0.004),
        ("adobe.v4.spz", None, 0.004),
    ];
    for (name, axes, harmonics) in files {
        let worst = errors_in_axes(name, SplatFileKind::Spz, axes);
        assert!(worst.position < 1.23e-4 && worst.log_scale < 0.0313, "{name}: {worst:?}");
        assert!(worst.opacity < 0.51 / 255.0 && worst.color < 0.0038, "{name}: {worst:?}");
        assert!(worst.rotation_degrees < 0.28 && worst.sh < harmonics, "{name}: {worst:?}");
    }
}

#[test]
fn a_sog_of_another_program_is_read_within_its_steps() {
    let worst = errors("transform.sog", SplatFileKind::Sog);
    // It truncates places and rotations: a whole step of each. Codebooks of 900 numbers.
    assert!(worst.position < 1e-3 && worst.log_scale < 0.05, "{worst:?}");
    assert!(worst.opacity < 1.01 / 255.0 && worst.rotation_degrees < 2.0, "{worst:?}");
    // Its palette has 256 rows for 300 Gaussians.
    assert!(worst.color < 0.01 && worst.sh < 0.6, "{worst:?}");
}

#[test]
fn a_glb_of_another_program_is_read_exactly() {
    let worst = errors("transform.glb", SplatFileKind::Glb);
    assert!(worst.position == 0.0 && worst.color == 0.0, "{worst:?}");
    // Logarithms and logits of f32, and rotations to which it does nothing.
    assert!(worst.log_scale < 1e-6 && worst.opacity < 1e-7 && worst.sh < 1e-7, "{worst:?}");
    assert!(worst.rotation_degrees < 1e-4, "{worst:?}");
}

#[test]
fn ksplat_files_of_another_program_are_read_within_their_steps() {
    // Steps of positions: 5 units a bucket by 16 bits; of numbers: halves; of harmonics: 3 by 8 bits.
    let files = [
        ("level0.ksplat", 0.0, 1e-6, 1e-4, 0.0),
        // Halves are truncated: a whole step of numbers below 1, 2^-11.
        ("level1.ksplat", 1e-4, 1e-3, 0.1, 4.9e-4),
        ("level2.ksplat", 1e-4, 1e-3, 0.1, 0.5 * 3.0 / 255.0 + 1e-6),
    ];
    for (name, position, log_scale, degrees, harmonics) in files {
        let worst = errors(name, SplatFileKind::Ksplat);
        assert!(worst.position <= position && worst.log_scale < log_scale, "{name}: {worst:?}");
        assert!(worst.rotation_degrees < degrees && worst.sh <= harmonics, "{name}: {worst:?}");
        // It truncates bytes: a whole step.
        assert!(worst.opacity < 1.01 / 255.0 && worst.color < 1.01 / 255.0, "{name}: {worst:?}");
    }
}
