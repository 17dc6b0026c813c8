//! Writes Gaussians to a path in any format.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::mem::discriminant;
use std::ops::RangeInclusive;
use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use crate::antimatter::write_splat;
use crate::error::SplatFileError;
use crate::folder::ZipSink;
use crate::geometry::{angle_degrees, sigmoid};
use crate::glb::{GlbError, write_glb};
use crate::html::{HtmlError, HtmlOptions, write_html};
use crate::open::folder_of;
use crate::ply::{write_packed_ply, write_ply};
use crate::sog::{SogError, SogOptions, SogTools, write_sog};
use crate::splats::{FLAT_LOG_SCALE, SH_C0, SplatPrimitive, Splats, sh_rest_count};
use crate::spz::{LEAST_SPZ_LOG_SCALE, SpzOptions, encode_spz};
use crate::streamed::{StreamedOptions, write_streamed};
use crate::unfinished::{FolderSink, replace_file};

/// Size from which a page takes long to load.
const LARGE_PAGE_BYTES: u64 = 100_000_000;

/// Formats that can be written, with options.
#[derive(Clone, Debug, PartialEq)]
pub enum SplatFormat {
    /// PLY of 3D Gaussian splatting, lossless.
    Ply,
    /// `compressed.ply` of `PlayCanvas`.
    PackedPly,
    /// `.splat` of antimatter15.
    Splat,
    /// SPZ of Niantic.
    Spz(SpzOptions),
    /// SOG of `PlayCanvas` in a zip.
    Sog(SogOptions),
    /// SOG in a folder. The path is that of its `meta.json`.
    SogFolder(SogOptions),
    /// SOG with levels of detail in a folder. The path is that of its `lod-meta.json`.
    StreamedSog(StreamedOptions),
    /// glTF with `KHR_gaussian_splatting`.
    Glb,
    /// HTML page, which cannot be read.
    Html(HtmlOptions),
}

/// Summary of a written file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WriteReport {
    /// Number of Gaussians.
    pub splats: usize,
    /// Total size in bytes.
    pub bytes: u64,
    /// Errors of the file. For levels of detail, those of the finest.
    pub errors: WorstErrors,
    /// Messages for the user.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// A format on command lines and in file names.
#[derive(Clone, Copy, Debug)]
pub struct FormatRow {
    /// Name on command lines.
    pub name: &'static str,
    /// Line of help.
    pub help: &'static str,
    /// End of file names, with its dot; of a folder, the name of the file that lists the others.
    pub file_name: &'static str,
    /// Returns the format with default options.
    pub format: fn() -> SplatFormat,
}

/// All formats that can be written.
pub const FORMATS: &[FormatRow] = &[
    FormatRow {
        name: "ply",
        help: "PLY of 3D Gaussian splatting, or of 2DGS for surfels, which loses nothing; of triangles, a mesh",
        file_name: ".ply",
        format: || SplatFormat::Ply,
    },
    FormatRow {
        name: "compressed-ply",
        help: "compressed.ply of PlayCanvas and SuperSplat, a quarter of a PLY",
        file_name: ".compressed.ply",
        format: || SplatFormat::PackedPly,
    },
    FormatRow {
        name: "splat",
        help: ".splat of antimatter15, without harmonics",
        file_name: ".splat",
        format: || SplatFormat::Splat,
    },
    FormatRow {
        name: "spz",
        help: "SPZ of Niantic, a tenth of a PLY",
        file_name: ".spz",
        format: || SplatFormat::Spz(SpzOptions::default()),
    },
    FormatRow {
        name: "sog",
        help: "SOG of PlayCanvas in one file, for web viewers",
        file_name: ".sog",
        format: || SplatFormat::Sog(SogOptions::default()),
    },
    FormatRow {
        name: "sog-folder",
        help: "SOG as a folder: name the meta.json in it",
        file_name: "meta.json",
        format: || SplatFormat::SogFolder(SogOptions::default()),
    },
    FormatRow {
        name: "streamed-sog",
        help: "SOG with levels of detail, for large scenes: name the lod-meta.json in its folder",
        file_name: "lod-meta.json",
        format: || SplatFormat::StreamedSog(StreamedOptions::default()),
    },
    FormatRow {
        name: "glb",
        help: "glTF with `KHR_gaussian_splatting`, y up; of triangles, a mesh",
        file_name: ".glb",
        format: || SplatFormat::Glb,
    },
    FormatRow {
        name: "html",
        help: "A page that shows the Gaussians in any browser, also offline",
        file_name: ".html",
        format: || SplatFormat::Html(HtmlOptions::default()),
    },
];

impl FormatRow {
    /// Returns the end of file names without its dot.
    pub fn ending(&self) -> &'static str {
        self.file_name.trim_start_matches('.')
    }

    /// Returns the name of the file that lists the others if the format is a folder.
    pub fn list_of_folder(&self) -> Option<&'static str> {
        (!self.file_name.starts_with('.')).then_some(self.file_name)
    }
}

impl SplatFormat {
    /// Returns the format for a file name, with default options.
    pub fn of_name(path: &Path) -> Option<Self> {
        let typed = path.file_name()?.to_str()?;
        let name = typed.to_ascii_lowercase();
        // The names of lists are case-sensitive.
        let fits = |row: &&FormatRow| match row.list_of_folder() {
            Some(list) => typed == list,
            None => name.ends_with(row.file_name),
        };
        let mut format =
            (FORMATS.iter().filter(fits).max_by_key(|row| row.file_name.len())?.format)();
        if let Self::Html(options) = &mut format {
            path.file_stem()?.to_str()?.clone_into(&mut options.title);
        }
        Some(format)
    }

    /// True if the format stores harmonics above degree 0.
    pub fn has_harmonics(&self) -> bool {
        !matches!(self, Self::Splat)
    }

    /// Returns the row of the format.
    pub fn row(&self) -> &'static FormatRow {
        let is_same = |row: &&FormatRow| discriminant(&(row.format)()) == discriminant(self);
        FORMATS.iter().find(is_same).unwrap_or(&FORMATS[0])
    }
}

/// Writes Gaussians to `path`. If writing fails, an existing file is kept.
///
/// A folder's files are replaced one by one after all are written. If interrupted in between, the folder has no
/// list file. Other files in the folder stay.
///
/// Surfels need a thickness for the format first: [`Splats::flatten_for`].
pub fn write(
    path: &Path,
    splats: &Splats,
    format: &SplatFormat,
) -> Result<WriteReport, SplatFileError> {
    write_with(path, splats, format, &SogTools::default())
}

/// Writes Gaussians like [`write()`], with tools for SOG.
pub fn write_with(
    path: &Path,
    splats: &Splats,
    format: &SplatFormat,
    tools: &SogTools<'_>,
) -> Result<WriteReport, SplatFileError> {
    let unwritable = |source| SplatFileError::unwritable(path, source);
    let sog = |source| match source {
        SogError::Write(source) => unwritable(source),
        source => SplatFileError::Sog { path: path.to_owned(), source },
    };
    let folder = |write: &dyn Fn(&mut FolderSink) -> Result<WorstErrors, SogError>| {
        let mut sink = FolderSink::create(folder_of(path)).map_err(unwritable)?;
        let errors = write(&mut sink).map_err(sog)?;
        let bytes = sink.finish().map_err(unwritable)?;
        Ok(WriteReport { splats: splats.len(), bytes, errors, notes: Vec::new() })
    };
    let errors = match format {
        SplatFormat::Ply => {
            replace(path, |out| write_ply(splats, out).map(|()| WorstErrors::default()))
        }
        SplatFormat::PackedPly => replace(path, |out| write_packed_ply(splats, out)),
        SplatFormat::Splat => replace(path, |out| write_splat(splats, out)),
        SplatFormat::Spz(options) => {
            let file = encode_spz(splats, options)
                .map_err(|source| SplatFileError::Spz { path: path.to_owned(), source })?;
            replace(path, |out| out.write_all(&file.bytes).map(|()| file.worst))
        }
        SplatFormat::Sog(options) => replace_file(path, |out: &mut BufWriter<&mut File>| {
            let mut zip = ZipSink::new(out);
            let worst = write_sog(splats, options, tools, &mut zip)?;
            zip.finish()?;
            Ok::<_, SogError>(worst)
        })
        .map_err(sog),
        SplatFormat::Glb => {
            replace_file(path, |out: &mut BufWriter<&mut File>| write_glb(splats, out)).map_err(
                |source| match source {
                    GlbError::Write(source) => unwritable(source),
                    source => SplatFileError::Glb { path: path.to_owned(), source },
                },
            )
        }
        SplatFormat::Html(options) => {
            replace_file(path, |out: &mut BufWriter<&mut File>| write_html(splats, options, out))
                .map_err(|source| match source {
                    HtmlError::Write(source) => unwritable(source),
                    source => SplatFileError::Html { path: path.to_owned(), source },
                })
        }
        SplatFormat::SogFolder(options) => {
            return folder(&|sink| write_sog(splats, options, tools, sink));
        }
        SplatFormat::StreamedSog(options) => {
            return folder(&|sink| write_streamed(splats, options, tools, sink));
        }
    }?;
    let bytes = fs::metadata(path).map_err(unwritable)?.len();
    let notes = match format {
        SplatFormat::Html(_) => note_of_page(path, bytes).into_iter().collect(),
        _ => Vec::new(),
    };
    Ok(WriteReport { splats: splats.len(), bytes, errors, notes })
}

fn note_of_page(path: &Path, bytes: u64) -> Option<String> {
    (bytes > LARGE_PAGE_BYTES).then(|| {
        format!(
            "{}: a page of {} MB takes long to load, and more memory than some phones have. Crop the \
             scene, or leave out faint Gaussians or harmonics",
            path.display(),
            bytes / 1_000_000
        )
    })
}

fn replace(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<WorstErrors>,
) -> Result<WorstErrors, SplatFileError> {
    replace_file(path, |out| write(out)).map_err(|source| SplatFileError::unwritable(path, source))
}

// Surfels in formats without surfels.

/// Log-distance between the scale of surfels' thickness and the least other scale in a shared table: a factor of
/// about 100.
const FLATTER: f32 = 4.6;

impl Splats {
    /// Sets the third scale of surfels to a value that the format stores exactly. Does not change Gaussians.
    pub fn flatten_for(&mut self, format: &SplatFormat) {
        if self.columns().primitive != SplatPrimitive::Surfels {
            return;
        }
        let drawn = self.columns().log_scales.iter().flat_map(|[first, second, _]| [first, second]);
        let Some(&least) = drawn.min_by(|a, b| a.total_cmp(b)) else { return };
        let flat = match format {
            SplatFormat::Spz(_) | SplatFormat::Html(_) => LEAST_SPZ_LOG_SCALE,
            // All scales share one table, whose entries also cover the gap.
            SplatFormat::Sog(_) | SplatFormat::SogFolder(_) | SplatFormat::StreamedSog(_) => {
                (least - FLATTER).max(FLAT_LOG_SCALE)
            }
            SplatFormat::Ply | SplatFormat::PackedPly | SplatFormat::Splat | SplatFormat::Glb => {
                FLAT_LOG_SCALE
            }
        };
        self.columns_mut().log_scales.iter_mut().for_each(|[.., third]| *third = flat);
    }
}

/// Bytes of a file and its errors.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedSplats {
    /// Bytes of the file.
    pub bytes: Vec<u8>,
    /// Largest differences between the input and the file.
    pub worst: WorstErrors,
}

/// Largest errors over all Gaussians, by kind of value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WorstErrors {
    /// Error of a coordinate of a centre, scene units.
    pub position: f64,
    /// Error of the natural logarithm of a scale within the format's range.
    pub log_scale: f64,
    /// Number of scales that were clipped to the format's range.
    pub clipped_scales: usize,
    /// Angle between rotations, degrees.
    pub rotation_degrees: f64,
    /// Error of an opacity in 0..1.
    pub opacity: f64,
    /// Error of a colour channel in 0..1, without harmonics above degree 0.
    pub color: f64,
    /// Error of a coefficient above degree 0. Coefficients that a format cannot store count as zero.
    pub sh: f64,
}

impl WorstErrors {
    /// Compares two sets of Gaussians row by row.
    pub fn between(written: &Splats, read: &Splats) -> Self {
        Self::between_within(written, read, &(f32::NEG_INFINITY..=f32::INFINITY))
    }

    /// Compares for a format with a limited range of log-scales.
    pub(crate) fn between_within(
        written: &Splats,
        read: &Splats,
        log_scales: &RangeInclusive<f32>,
    ) -> Self {
        let (a, b) = (written.columns(), read.columns());
        let scales = a.log_scales.as_flattened().iter().zip(b.log_scales.as_flattened());
        let (held, clipped): (Vec<_>, Vec<_>) =
            scales.partition(|(scale, _)| log_scales.contains(*scale));
        let scale_error = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs();
        let mut worst = Self {
            position: farthest(&a.means, &b.means),
            log_scale: held.into_iter().map(scale_error).fold(0.0, f64::max),
            clipped_scales: clipped.len(),
            color: SH_C0 * farthest(&a.sh_dc, &b.sh_dc),
            ..Self::default()
        };
        let rotations = a.rotations.par_iter().zip(&b.rotations);
        worst.rotation_degrees =
            rotations.map(|(a, b)| angle_degrees(*a, *b)).reduce(|| 0.0, f64::max);
        let opacities = a.opacity_logits.par_iter().zip(&b.opacity_logits);
        worst.opacity =
            opacities.map(|(a, b)| (sigmoid(*a) - sigmoid(*b)).abs()).reduce(|| 0.0, f64::max);
        let shared = sh_rest_count(a.sh_degree.min(b.sh_degree));
        let sh_error = |row: usize| {
            let (a, b) = (a.rest(row), b.rest(row));
            let missing = a[shared..].as_flattened().iter().map(|x| f64::from(x.abs()));
            missing.fold(farthest(&a[..shared], &b[..shared]), f64::max)
        };
        worst.sh = (0..a.len().min(b.len())).into_par_iter().map(sh_error).reduce(|| 0.0, f64::max);
        worst
    }

    /// Combines the errors of two parts of a file.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            position: self.position.max(other.position),
            log_scale: self.log_scale.max(other.log_scale),
            clipped_scales: self.clipped_scales + other.clipped_scales,
            rotation_degrees: self.rotation_degrees.max(other.rotation_degrees),
            opacity: self.opacity.max(other.opacity),
            color: self.color.max(other.color),
            sh: self.sh.max(other.sh),
        }
    }
}

fn farthest(a: &[[f32; 3]], b: &[[f32; 3]]) -> f64 {
    let pairs = a.as_flattened().iter().zip(b.as_flattened());
    pairs.map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;

    use super::*;
    use crate::geometry::logit;
    use crate::open::read;
    use crate::place::ScenePlacement;
    use crate::splats::known_splats::{random_splats, random_surfels};

    #[test]
    fn only_large_pages_have_a_note() {
        let path = Path::new("scene.html");
        assert_eq!(note_of_page(path, LARGE_PAGE_BYTES), None);
        let note = note_of_page(path, 250_000_000).unwrap();
        assert!(note.starts_with("scene.html: a page of 250 MB"), "{note}");
    }

    #[rstest]
    #[case("a.ply", SplatPrimitive::Surfels)]
    #[case("a.compressed.ply", SplatPrimitive::Gaussians)]
    #[case("a.splat", SplatPrimitive::Gaussians)]
    #[case("a.spz", SplatPrimitive::Gaussians)]
    #[case("a.sog", SplatPrimitive::Gaussians)]
    #[case("folder/meta.json", SplatPrimitive::Gaussians)]
    #[case("folder/lod-meta.json", SplatPrimitive::Gaussians)]
    #[case("a.glb", SplatPrimitive::Gaussians)]
    fn third_scale_of_surfels_is_stored_exactly(
        #[case] name: &str,
        #[case] primitive: SplatPrimitive,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let format = SplatFormat::of_name(&path).unwrap();
        let mut surfels = random_surfels(700, 1, 3);
        let smaller = ScenePlacement { scale: 0.01, ..ScenePlacement::default() };
        surfels.place(&smaller).unwrap();
        surfels.flatten_for(&format);
        let flat = surfels.columns().log_scales[0][2];
        let written = write(&path, &surfels, &format).unwrap();
        // The other scales begin at e^-10.6, and SPZ clips at e^-10.
        assert!(written.errors.log_scale < 0.7, "{:?}", written.errors);
        let read = read(&path).unwrap().splats;
        assert_eq!((read.len(), read.columns().primitive), (700, primitive));
        let thirds = read.columns().log_scales.iter().map(|[.., third]| third);
        assert!(thirds.into_iter().all(|third| (third - flat).abs() < 1e-5), "{flat}");
        let mut gaussians = random_splats(9, 0, 1);
        gaussians.flatten_for(&format);
        assert!(gaussians == random_splats(9, 0, 1));
    }

    #[test]
    fn each_error_is_reported_alone() {
        let a = random_splats(5, 2, 8);
        assert_eq!(WorstErrors::between(&a, &a), WorstErrors::default());
        let errors = |change: &dyn Fn(&mut Splats)| {
            let mut b = a.clone();
            change(&mut b);
            WorstErrors::between(&a, &b)
        };
        let moved = errors(&|b| b.columns_mut().means[3][2] += 0.5);
        assert!((moved.position - 0.5).abs() < 1e-6 && moved.log_scale == 0.0);
        let faint = errors(&|b| b.columns_mut().opacity_logits[0] = logit(1e-9));
        assert!((faint.opacity - sigmoid(a.columns().opacity_logits[0])).abs() < 1e-6);
        let turned = errors(&|b| b.columns_mut().rotations[1] = [0.0, 0.0, 1.0, 0.0]);
        assert!(turned.rotation_degrees > 1.0 && turned.position == 0.0);
        let painted = errors(&|b| b.columns_mut().sh_dc[4][0] += 1.0);
        assert!((painted.color - SH_C0).abs() < 1e-6);
        // Removed coefficients count fully.
        let mut known = a.clone();
        known.columns_mut().sh_rest.fill([0.0; 3]);
        known.columns_mut().sh_rest[8 * 4 + 7] = [0.0, -3.0, 0.0];
        let mut cut = known.clone();
        cut.cut_sh_degree(1);
        assert_eq!(WorstErrors::between(&known, &cut).sh, 3.0);
    }
}
