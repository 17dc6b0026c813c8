//! Gaussians and files for the other tests.

use splat_formats::{SplatColumns, SplatFormat, Splats, SpzOptions, SpzVersion};

/// Numbers that differ from one another, from 0 to 1.
fn scattered(seed: u32) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        // Numerical Recipes' generator: its upper bits are good enough for places.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).unwrap()) / 65_536.0
    }
}

/// Gaussians like those of a small scene.
pub(crate) fn scene(count: usize, sh_degree: u32) -> Splats {
    let mut next = scattered(7);
    let mut columns = SplatColumns::with_capacity(sh_degree, count);
    for _ in 0..count {
        columns.means.push([0; 3].map(|_| 8.0 * next() - 4.0));
        columns.log_scales.push([0; 3].map(|_| 4.0 * next() - 6.0));
        columns.rotations.push([0; 4].map(|_| next() - 0.501));
        columns.opacity_logits.push(8.0 * next() - 3.0);
        columns.sh_dc.push([0; 3].map(|_| 3.0 * next() - 1.5));
        for _ in 0..splat_formats::sh_rest_count(sh_degree) {
            columns.sh_rest.push([0; 3].map(|_| 0.5 * next() - 0.25));
        }
    }
    Splats::from_columns(columns).unwrap().splats
}

/// All formats that are one file, with a name that tells them.
pub(crate) fn formats() -> Vec<(&'static str, SplatFormat)> {
    let v4 = SpzOptions { version: SpzVersion::V4, ..SpzOptions::default() };
    let of_name =
        |name: &'static str| (name, SplatFormat::of_name(std::path::Path::new(name)).unwrap());
    let mut formats: Vec<_> =
        ["a.ply", "a.compressed.ply", "a.splat", "a.spz", "a.sog", "a.glb"].map(of_name).into();
    formats.push(("v4.spz", SplatFormat::Spz(v4)));
    formats
}

/// The bytes of a scene in a format.
pub(crate) fn file(splats: &Splats, format: &SplatFormat) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    splat_formats::write(&path, splats, format).unwrap();
    std::fs::read(path).unwrap()
}
