//! Tests of all formats on disk: detection, atomic writes, and robustness against invalid files.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test that cannot continue says so and stops"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use splat_formats::{
    FORMATS, FormatRow, ReadSplats, SogTools, SplatColumns, SplatFileError, SplatFileKind,
    SplatFormat, Splats, SpzAxes, SpzOptions, SpzVersion, StreamedOptions, WorstErrors, read,
    read_streamed, read_with_axes, write, write_streamed,
};
use splat_mesh::narrow::to_f32;
use splat_mesh::random::RandomSequence;

// Files of a known scene, written by other programs.

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/golden").join(name)
}

/// Matches rows to the scene by position: other programs sort their files.
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

/// A whole step of a byte, for programs that truncate; others round, to half a step.
const BYTE: f64 = 1.01 / 255.0;
const HALF_BYTE: f64 = 0.51 / 255.0;

/// A file, the axes to read it in, and upper bounds of the errors of positions, log-scales, rotations (degrees),
/// opacities, colours and harmonics; a bound of 0 means no error.
type Golden = (&'static str, SplatFileKind, Option<SpzAxes>, [f64; 6]);

#[test]
fn files_of_other_programs_are_read_within_their_steps() {
    const LOST: f64 = f64::INFINITY;
    // Positions of 5 units per bucket in 16 bits. Harmonics of level 2: 3 in 8 bits.
    let level = |position, log_scale, degrees, harmonics| {
        [position, log_scale, degrees, BYTE, BYTE, harmonics]
    };
    // Harmonics in steps of 1/8 and 1/16 by splat-transform, which rounds twice; of 1/128 by Adobe.
    let spz = |harmonics| [1.23e-4, 0.0313, 0.28, HALF_BYTE, 0.0038, harmonics];
    // 16 units in 10 bits, 7 in 10, 1/255, 1/32.
    let packed = [8.0 / 1023.0, 3.5 / 1023.0, 0.28, HALF_BYTE, 0.002, 1.01 / 64.0];
    let files: [Golden; 11] = [
        ("transform.compressed.ply", SplatFileKind::PackedPly, None, packed),
        ("transform.splat", SplatFileKind::Splat, None, [0.0, 1e-6, 2.0, BYTE, BYTE, LOST]),
        // Version 3 of splat-transform keeps the axes of a PLY without storing them.
        ("transform.spz", SplatFileKind::Spz, Some(SpzAxes::SCENE), spz(0.07)),
        ("transform.2.spz", SplatFileKind::Spz, None, spz(0.07)),
        ("adobe.v3.spz", SplatFileKind::Spz, None, spz(0.004)),
        ("adobe.v4.spz", SplatFileKind::Spz, None, spz(0.004)),
        // The program truncates positions and rotations. Codebooks have 900 numbers, the palette has 256 rows for 300
        // Gaussians.
        ("transform.sog", SplatFileKind::Sog, None, [1e-3, 0.05, 2.0, BYTE, 0.01, 0.6]),
        // Logarithms and logits of f32; rotations are unchanged.
        ("transform.glb", SplatFileKind::Glb, None, [0.0, 1e-6, 1e-4, 1e-7, 0.0, 1e-7]),
        ("level0.ksplat", SplatFileKind::Ksplat, None, level(0.0, 1e-6, 1e-4, 0.0)),
        // Halves are truncated: a whole step of numbers below 1, 2^-11.
        ("level1.ksplat", SplatFileKind::Ksplat, None, level(1e-4, 1e-3, 0.1, 4.9e-4)),
        ("level2.ksplat", SplatFileKind::Ksplat, None, level(1e-4, 1e-3, 0.1, 1.5 / 255.0 + 1e-6)),
    ];
    let scene = read(&golden("scene.ply")).unwrap().splats;
    for (name, kind, axes, bounds) in files {
        let found = read_with_axes(&golden(name), axes).unwrap();
        assert_eq!((found.kind, found.splats.len(), found.dropped), (kind, 300, 0), "{name}");
        assert_eq!(found.notes, Vec::<String>::new(), "{name}");
        let worst = WorstErrors::between(&scene, &in_order(&scene, &found.splats));
        let WorstErrors { position, log_scale, rotation_degrees, opacity, color, sh, .. } = worst;
        let errors = [position, log_scale, rotation_degrees, opacity, color, sh];
        for (error, bound) in errors.into_iter().zip(bounds) {
            assert!(error < bound || error == 0.0, "{name}: {worst:?}");
        }
    }
}

// Gaussians and files for the other tests.

/// Creates Gaussians like those of a small scene.
pub(crate) fn scene(count: usize, sh_degree: u32) -> Splats {
    let mut random = RandomSequence::of_seed(7);
    let mut next = || to_f32(random.uniform());
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

/// Returns all formats that are single files and can be read, with file names.
pub(crate) fn formats() -> Vec<(String, SplatFormat)> {
    let v4 = SpzOptions { version: SpzVersion::V4, ..SpzOptions::default() };
    let is_readable_file = |row: &&FormatRow| row.list_of_folder().is_none() && row.name != "html";
    let rows = FORMATS.iter().filter(is_readable_file);
    let mut formats: Vec<_> =
        rows.map(|row| (format!("a{}", row.file_name), (row.format)())).collect();
    formats.push(("v4.spz".to_owned(), SplatFormat::Spz(v4)));
    formats
}

/// Returns the bytes of a scene in a format.
pub(crate) fn file(splats: &Splats, format: &SplatFormat) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    write(&path, splats, format).unwrap();
    fs::read(path).unwrap()
}

// Truncated, broken and malicious files must give an error without a panic, in memory of at most 4 times the file and
// 64 MB.

const MAX_EXTRA_BYTES: usize = 64 << 20;

/// Reads bytes as a file of this name and checks the memory use.
fn read_bytes(path: &Path, bytes: &[u8]) -> Result<ReadSplats, SplatFileError> {
    fs::write(path, bytes).unwrap();
    let (peak, read) = peak_of(|| read(path));
    let most = 4 * bytes.len() + MAX_EXTRA_BYTES;
    assert!(peak <= most, "{peak} bytes for a file of {}: {}", bytes.len(), path.display());
    read
}

#[test]
fn truncated_files_are_errors_that_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for (name, format) in formats() {
        let whole = file(&scene(12, 1), &format);
        let path = folder.path().join(&name);
        for length in 0..whole.len() {
            let found = read_bytes(&path, &whole[..length]);
            // Rows without a header cannot be recognised as truncated, unless there are none.
            if name == "a.splat" && length > 0 && length % 32 == 0 {
                assert_eq!(found.unwrap().splats.len(), length / 32);
                continue;
            }
            let message = found.map(|read| read.splats.len()).unwrap_err().to_string();
            assert!(message.contains(&name) && message.len() < 500, "{length}: {message}");
        }
        assert!(read_bytes(&path, &whole).is_ok());
    }
}

#[test]
fn huge_counts_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let most = u32::MAX.to_string();
    for (name, from) in [("a.ply", "vertex 40"), ("a.compressed.ply", "vertex 40")] {
        let format = formats().into_iter().find(|(known, _)| *known == name).unwrap().1;
        let bytes = file(&scene(40, 1), &format);
        let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
        let header =
            String::from_utf8_lossy(&bytes[..end]).replace(from, &format!("vertex {most}"));
        let broken = [header.as_bytes(), &bytes[end..]].concat();
        let message = read_bytes(&folder.path().join(name), &broken).unwrap_err().to_string();
        assert!(message.contains(&most) || message.contains("truncated"), "{message}");
    }
    // SPZ 4 stores the count in bytes 8 to 11.
    let format = formats().pop().unwrap().1;
    let mut bytes = file(&scene(40, 1), &format);
    bytes[8..12].fill(255);
    let message = read_bytes(&folder.path().join("v4.spz"), &bytes).unwrap_err().to_string();
    assert!(message.contains(&most), "{message}");
}

#[test]
fn truncated_and_changed_ksplat_files_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    for level in 0..3 {
        let whole = fs::read(golden(&format!("level{level}.ksplat"))).unwrap();
        let path = folder.path().join("a.ksplat");
        for length in (0..whole.len()).step_by(97) {
            let message = read_bytes(&path, &whole[..length]).unwrap_err().to_string();
            let fault = if length == 0 { "is empty" } else { "truncated" };
            assert!(message.contains("a.ksplat") && message.contains(fault), "{message}");
        }
        // Every meaningful byte of the headers.
        for at in (0..48).chain(4096..4140) {
            let mut bytes = whole.clone();
            for byte in [0, 1, 255] {
                bytes[at] = byte;
                read_bytes(&path, &bytes).ok();
            }
        }
    }
}

/// Returns the parts of a SOG with levels of detail.
fn streamed_parts(count: usize) -> BTreeMap<String, Vec<u8>> {
    let mut parts = BTreeMap::new();
    let options = StreamedOptions { levels: 2, ..StreamedOptions::default() };
    write_streamed(&scene(count, 1), &options, &SogTools::default(), &mut parts).unwrap();
    parts
}

#[test]
fn truncated_parts_are_errors() {
    let whole = streamed_parts(12);
    let bytes: usize = whole.values().map(Vec::len).sum();
    let finest = |name: &&String| name.starts_with("0_0/") || name.starts_with("lod");
    for name in whole.keys().filter(finest) {
        let mut parts = whole.clone();
        // The last byte of a WebP may be padding.
        for length in 0..whole[name].len() - 1 {
            parts.insert(name.clone(), whole[name][..length].to_vec());
            let (peak, read) = peak_of(|| read_streamed(&mut parts));
            assert!(read.is_err(), "{name} of {length} bytes");
            assert!(peak <= 4 * bytes + MAX_EXTRA_BYTES, "{name} of {length} bytes: {peak}");
        }
    }
}

/// Returns a gzip of an SPZ header that announces this number of Gaussians, and 200 MB of zeros.
fn bomb(count: u32) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(9));
    let header = [b"NGSP".as_slice(), &3_u32.to_le_bytes(), &count.to_le_bytes(), &[0, 12, 0, 0]];
    encoder.write_all(&header.concat()).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..200).for_each(|_| encoder.write_all(&zeros).unwrap());
    encoder.finish().unwrap()
}

#[test]
fn decompression_bombs_are_not_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = bomb(200_000_000 / 19);
    assert!(bytes.len() < 300_000);
    let message = read_bytes(&folder.path().join("a.spz"), &bytes).unwrap_err().to_string();
    assert!(message.contains("no scene"), "{message}");
    // A small count, followed by the zeros.
    let read = read_bytes(&folder.path().join("b.spz"), &bomb(1)).unwrap();
    assert!(read.splats.len() <= 1);
}

proptest! {
    // A case reads seven files.
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_changed_bytes_make_a_reader_panic(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        inside in prop::collection::vec((0_usize..400, any::<u8>()), 0..4),
    ) {
        static FILES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
            let scene = scene(20, 1);
            formats().into_iter().map(|(name, format)| (name, file(&scene, &format))).collect()
        });
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in FILES.iter() {
            let mut bytes = bytes.clone();
            for (place, byte) in &places {
                let at = place.index(bytes.len());
                bytes[at] = *byte;
            }
            // Header bytes are the most dangerous.
            for (at, byte) in &inside {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            let _either = read_bytes(&folder.path().join(name), &bytes);
        }
    }

    #[test]
    fn no_changed_bytes_of_a_part_make_a_reader_panic(
        part in any::<prop::sample::Index>(),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        static PARTS: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| streamed_parts(20));
        let mut parts = PARTS.clone();
        let name = parts.keys().nth(part.index(parts.len())).unwrap().clone();
        let bytes = parts.get_mut(&name).unwrap();
        for (place, byte) in places {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        let (peak, _either) = peak_of(|| read_streamed(&mut parts));
        prop_assert!(peak <= MAX_EXTRA_BYTES + (1 << 20), "{name}: {peak}");
    }
}

// Measuring of memory.

/// Counts the allocations of the current thread. Readers allocate on the calling thread only.
struct CountingAllocator;

thread_local! {
    static TAKEN: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // The counters are gone at the end of a thread.
    let _ended = TAKEN.try_with(|taken| {
        taken.set(taken.get() + bytes);
        PEAK.try_with(|peak| peak.set(peak.get().max(taken.get())))
    });
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: all calls go to the system's allocator with equal arguments; counting does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns the peak of bytes that `work` allocated on this thread, and its result.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = TAKEN.get();
    PEAK.set(before);
    let made = work();
    (usize::try_from(PEAK.get() - before).unwrap_or(0), made)
}

#[test]
fn peak_counts_simultaneous_allocations() {
    let (peak, _) = peak_of(|| {
        drop(vec![1_u8; 5000]);
        vec![1_u8; 3000].len()
    });
    assert!((5000..5200).contains(&peak), "{peak}");
}

// Detection by content, and atomic replacement.

#[test]
fn formats_are_detected_by_content_and_hold_an_edited_scene() {
    let folder = tempfile::tempdir().unwrap();
    let mut splats = scene(300, 3);
    splats.cut_sh_degree(1);
    let gone = splats.drop_faint(0.5);
    assert!(gone > 50 && splats.len() == 300 - gone);
    for (name, format) in formats() {
        // `.splat` has no magic bytes.
        let path = folder.path().join(if name == "a.splat" { "x.splat" } else { "x.bin" });
        let report = write(&path, &splats, &format).unwrap();
        assert_eq!(
            (report.splats, report.bytes),
            (splats.len(), fs::metadata(&path).unwrap().len())
        );
        let errors = report.errors;
        assert!(errors.position < 0.01 && errors.log_scale < 0.04, "{name}: {errors:?}");
        assert!(errors.rotation_degrees < 1.2 && errors.opacity < 0.003, "{name}: {errors:?}");
        let found = read(&path).unwrap();
        let expected = match format {
            SplatFormat::Ply => SplatFileKind::Ply,
            SplatFormat::PackedPly => SplatFileKind::PackedPly,
            SplatFormat::Splat => SplatFileKind::Splat,
            SplatFormat::Spz(_) => SplatFileKind::Spz,
            SplatFormat::Glb => SplatFileKind::Glb,
            SplatFormat::Sog(_) | SplatFormat::SogFolder(_) | SplatFormat::StreamedSog(_) => {
                SplatFileKind::Sog
            }
            SplatFormat::Html(_) => unreachable!("pages are not read"),
        };
        let is_found = (found.kind, found.splats.len(), found.dropped);
        assert_eq!(is_found, (expected, splats.len(), 0), "{name}");
        fs::remove_file(path).unwrap();
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no unfinished file is left");
}

#[test]
fn sog_folder_is_read_by_folder_and_by_metadata() {
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
fn other_files_are_errors_that_name_the_file() {
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
fn lfs_pointers_and_empty_files_are_reported() {
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
fn page_is_written_but_cannot_be_read() {
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
fn missing_folder_is_named_in_the_error() {
    let path = Path::new("/nowhere/scene.spz");
    let format = SplatFormat::of_name(path).unwrap();
    let message = write(path, &scene(3, 0), &format).unwrap_err().to_string();
    assert!(message.starts_with("/nowhere/scene.spz: cannot be written"), "{message}");
}
