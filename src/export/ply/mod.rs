//! Models as PLY; Gaussians in the column order that 3DGS viewers expect.
//!
//! Viewers read the header by line number and the rows as raw structs, so the writer never changes
//! the order, and line 3 is always `element vertex N`. The reader goes by column names alone.
//!
//! In the file the higher harmonics are channel-major (all red coefficients, then green, then
//! blue); in memory each coefficient holds its three channels.
//!
//! Surfels have two scales in the file, as 2D Gaussian splatting writes them. What lacks `scale_2` alone is
//! read as surfels.
//!
//! Triangles have a row for each vertex, without scales and rotation, and faces behind them; comments say how
//! they are drawn. Programs for meshes open such a file, and show its colours of 8 bits.

mod error;
mod faces;
mod fields;
mod gaussians;
mod read;
mod write;

pub use error::{PlyError, PlyFacesError};
pub use faces::{PlyTriangles, StoredWindow};
pub use fields::{ColumnRange, FilterField, FlatField, Meaning, PlyField, PlyRows, VertexFields};
pub use read::{PlyModel, read_ply, read_ply_model, read_ply_primitive, read_ply_rows};
pub use write::{NewPly, PlyStyle, RenderMode, write_ply, write_ply_chunks, write_ply_triangles};

#[cfg(test)]
mod triangle_tests;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::config::PrimitiveName;
    use crate::files::OutputError;
    use crate::math::Real as _;
    use crate::model::{FLAT_LOG_SCALE, Gaussians, Primitive, sh_rest_count};

    /// Gaussians in which no two numbers are equal.
    fn all_different(n: usize, sh_degree: u32) -> Gaussians {
        let mut next = 0.0f32;
        let mut column = |width: usize| -> Vec<f32> {
            (0..n * width)
                .map(|_| {
                    // Small enough that even the last are scales that can be drawn.
                    next += 1.0 / 8192.0;
                    next - 1000.0
                })
                .collect()
        };
        Gaussians {
            sh_degree,
            means: column(3),
            log_scales: column(3),
            quats: unit_quats(&column(4)),
            opacity_logits: column(1),
            sh_dc: column(3),
            sh_rest: column(3 * sh_rest_count(sh_degree)),
        }
    }

    /// The same rotations at unit length, as a file holds them.
    fn unit_quats(quats: &[f32]) -> Vec<f32> {
        let unit = |quat: &[f32; 4]| {
            let length = quat.iter().map(|&part| f64::from(part).powi(2)).sum::<f64>().sqrt();
            quat.map(|part| (f64::from(part) / length).to_f32())
        };
        quats.as_chunks::<4>().0.iter().flat_map(unit).collect()
    }

    #[test]
    fn rotations_have_unit_length_in_a_file() {
        let mut gaussians = all_different(3, 0);
        gaussians.quats = vec![3.0, 0.0, 0.0, 4.0, 0.0, 1e-20, 0.0, 0.0, -1e19, 0.0, 0.0, 1e19];
        let half = std::f32::consts::FRAC_1_SQRT_2;
        let expected = [0.6, 0.0, 0.0, 0.8, 0.0, 1.0, 0.0, 0.0, -half, 0.0, 0.0, half];
        assert_eq!(read_bytes(&file_of(&gaussians)).unwrap().quats, expected);
    }

    /// The bytes that `write_ply` makes.
    fn file_of(gaussians: &Gaussians) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        write_ply(&path, gaussians).unwrap();
        fs::read(&path).unwrap()
    }

    fn read_bytes(bytes: &[u8]) -> Result<Gaussians, PlyError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        fs::write(&path, bytes).unwrap();
        read_ply(&path)
    }

    #[rstest]
    fn what_was_written_is_read_again(
        #[values(0, 1, 2, 3)] degree: u32,
        // Below, at and above the rows of one chunk, and none at all.
        #[values(0, 1, 7, 4096, 4099)] n: usize,
    ) {
        let gaussians = all_different(n, degree);
        assert_eq!(read_bytes(&file_of(&gaussians)).unwrap(), gaussians);
    }

    #[test]
    fn the_header_has_the_count_in_line_three_and_62_columns() {
        let bytes = file_of(&all_different(3, 3));
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().take(66).collect();
        assert_eq!(lines[..3], ["ply", "format binary_little_endian 1.0", "element vertex 3"]);
        assert_eq!(lines[3], "property float x");
        assert_eq!(lines[6], "property float nx");
        assert_eq!(lines[9], "property float f_dc_0");
        assert_eq!(lines[12], "property float f_rest_0");
        assert_eq!(lines[56], "property float f_rest_44");
        assert_eq!(lines[57], "property float opacity");
        assert_eq!(lines[64], "property float rot_3");
        assert_eq!(lines[65], "end_header");
        let header = text.find("end_header\n").unwrap() + "end_header\n".len();
        // The bytes of the header are ASCII, so text and file agree on the position.
        assert_eq!(bytes.len() - header, 3 * 248);
    }

    #[test]
    fn harmonics_are_channel_major_in_the_file() {
        let gaussians = all_different(2, 1);
        let bytes = file_of(&gaussians);
        let row_bytes = (17 + 9) * 4;
        let second = &bytes[bytes.len() - row_bytes..];
        let floats: Vec<f32> = bytemuck::pod_collect_to_vec(second);
        let rest = &gaussians.sh_rest[9..];
        let red = [rest[0], rest[3], rest[6]];
        let green = [rest[1], rest[4], rest[7]];
        let blue = [rest[2], rest[5], rest[8]];
        assert_eq!(floats[9..18], [red, green, blue].concat());
        assert_eq!(floats[3..6], [0.0; 3], "normals are zero");
    }

    /// A file with columns in another order, doubles among them, and columns of other programs.
    fn foreign_file() -> Vec<u8> {
        let mut bytes = b"ply\r\nformat binary_little_endian 1.0\r\ncomment by hand\r\n".to_vec();
        bytes.extend(b"element camera 2\r\nproperty int id\r\nelement vertex 1\r\n");
        let names = ["rot_3", "rot_2", "rot_1", "rot_0", "opacity", "scale_2", "scale_1"];
        let more = ["scale_0", "f_dc_2", "f_dc_1", "f_dc_0", "z", "y"];
        for name in names.iter().chain(&more) {
            bytes.extend(format!("property float {name}\r\n").bytes());
        }
        bytes.extend(b"property uchar filter_3D\r\nproperty double x\r\nend_header\r\n");
        bytes.extend([9u8; 8]);
        for value in 1u8..=13 {
            bytes.extend(f32::from(value).to_le_bytes());
        }
        bytes.push(200);
        bytes.extend(14.0f64.to_le_bytes());
        bytes
    }

    #[test]
    fn columns_are_found_by_name_and_strangers_are_ignored() {
        let gaussians = read_bytes(&foreign_file()).unwrap();
        assert_eq!(gaussians.sh_degree, 0);
        assert_eq!(gaussians.means, [14.0, 13.0, 12.0]);
        assert_eq!(gaussians.sh_dc, [11.0, 10.0, 9.0]);
        assert_eq!(gaussians.log_scales, [8.0, 7.0, 6.0]);
        assert_eq!(gaussians.opacity_logits, [5.0]);
        assert_eq!(gaussians.quats, [4.0, 3.0, 2.0, 1.0]);
    }

    fn edited(from: &str, to: &str) -> String {
        let bytes = file_of(&all_different(2, 1));
        let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
        let header = String::from_utf8_lossy(&bytes[..end]).replace(from, to);
        read_bytes(&[header.as_bytes(), &bytes[end..]].concat()).unwrap_err().to_string()
    }

    #[rstest]
    #[case("property float scale_1", "property float size_1", "no column `scale_1`")]
    #[case("property float f_rest_8\n", "", "8 f_rest columns")]
    #[case("property float f_rest_3", "property float f_rest_9", "no column `f_rest_3`")]
    #[case("property float x", "property uchar x", "`x` is of type uchar")]
    #[case("property float nx", "property float x", "`x` twice")]
    #[case("property float nx", "property list uchar int nx", "line 7")]
    #[case("property float nx", "property quaternion nx", "line 7")]
    #[case("binary_little_endian", "ascii", "`ascii 1.0`")]
    #[case("binary_little_endian", "binary_big_endian", "binary_big_endian")]
    #[case("element vertex 2", "element vertex 3", "truncated")]
    #[case("element vertex 2", "element vertex 18446744073709551615", "truncated")]
    #[case("element vertex 2", "element vertex many", "line 3")]
    #[case("element vertex 2", "element face 2", "no `element vertex`")]
    #[case("ply", "PLY?", "not a PLY")]
    fn a_broken_header_is_named(#[case] from: &str, #[case] to: &str, #[case] said: &str) {
        let message = edited(from, to);
        assert!(message.contains(said) && message.contains("a.ply"), "{message}");
    }

    #[test]
    fn a_number_that_is_none_is_named_by_row_and_column() {
        let mut gaussians = all_different(5, 1);
        // Row 3, coefficient 2, green: in the file f_rest_5 (three of each channel).
        gaussians.sh_rest[3 * 9 + 2 * 3 + 1] = f32::NAN;
        let message = read_bytes(&file_of(&gaussians)).unwrap_err().to_string();
        assert!(message.contains("row 3") && message.contains("`f_rest_5`"), "{message}");
        assert!(message.contains("NaN"), "{message}");

        let mut gaussians = all_different(5, 0);
        gaussians.quats[8..12].fill(0.0);
        let message = read_bytes(&file_of(&gaussians)).unwrap_err().to_string();
        assert!(message.contains("row 2") && message.contains("rotation"), "{message}");
    }

    #[test]
    fn a_missing_file_and_a_folder_are_errors_that_name_the_path() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("none.ply"), folder.path().to_owned()] {
            let message = read_ply(&path).unwrap_err().to_string();
            assert!(message.contains(&path.display().to_string()), "{message}");
        }
    }

    #[test]
    fn gaussians_with_columns_of_unlike_length_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut gaussians = all_different(2, 1);
        gaussians.sh_rest.pop();
        assert!(write_ply(&folder.path().join("a.ply"), &gaussians).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[rstest]
    fn the_file_is_the_same_however_its_rows_are_cut(
        #[values(0, 2)] degree: u32,
        #[values(1, 5, 4096, 5000)] chunk: usize,
    ) {
        let gaussians = all_different(9000, degree);
        let chunks = (0..9000)
            .step_by(chunk)
            .map(|first| Ok::<_, OutputError>(gaussians.rows(first..first + chunk)));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        write_ply_chunks(&path, RenderMode::Dilated, degree, 9000, chunks).unwrap();
        assert!(fs::read(&path).unwrap() == file_of(&gaussians));
    }

    /// Bytes on disk of the file in a folder that has no name yet.
    #[cfg(target_os = "linux")]
    pub(super) fn bytes_of_unnamed(folder: &Path) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        let folder = folder.canonicalize().unwrap();
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
        let of_folder =
            open.filter(|fd| fs::read_link(fd).is_ok_and(|file| file.starts_with(&folder)));
        of_folder.filter_map(|fd| fs::metadata(fd).ok()).map(|about| 512 * about.blocks()).sum()
    }

    #[rstest]
    fn room_is_kept_for_all_of_a_file_and_no_more(
        #[values(RenderMode::Dilated, RenderMode::Surfels)] mode: RenderMode,
    ) {
        let gaussians = all_different(9000, 2);
        let folder = tempfile::tempdir().unwrap();
        let [path, plain] = ["a.ply", "b.ply"].map(|name| folder.path().join(name));
        let file = NewPly::with_room::<Gaussians>(&path, mode, 2, 9000).unwrap();
        // Some file systems keep no room.
        let Some(file) = file else { return };
        #[cfg(target_os = "linux")]
        {
            let kept = bytes_of_unnamed(folder.path());
            let rows = [Ok::<_, OutputError>(&gaussians)];
            write_ply_chunks::<Gaussians, _, _>(&plain, mode, 2, 9000, rows).unwrap();
            let needed = fs::metadata(&plain).unwrap().len();
            assert!(kept >= needed && kept < needed + (1 << 16), "{kept} of {needed}");
        }
        file.write::<Gaussians, _, OutputError>([Ok(&gaussians)]).unwrap();
        let rows = [Ok::<_, OutputError>(&gaussians)];
        write_ply_chunks::<Gaussians, _, _>(&plain, mode, 2, 9000, rows).unwrap();
        assert!(fs::read(&path).unwrap() == fs::read(&plain).unwrap());
    }

    #[test]
    fn a_file_for_the_mip_filter_says_so_after_the_element() {
        let gaussians = all_different(3, 1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        let rows = [Ok::<_, OutputError>(&gaussians)];
        write_ply_chunks::<Gaussians, _, _>(&path, RenderMode::Mip, 1, 3, rows).unwrap();
        let bytes = fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let found = "element vertex 3\ncomment SplatRenderMode: mip\nproperty float x\n";
        assert!(text.contains(found));
        assert_eq!(read_ply(&path).unwrap(), gaussians);
    }

    /// The bytes of a file of surfels.
    fn surfels_of(gaussians: &Gaussians) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        let (degree, count) = (gaussians.sh_degree, gaussians.len());
        let rows = [Ok::<_, OutputError>(gaussians)];
        write_ply_chunks::<Gaussians, _, _>(&path, RenderMode::Surfels, degree, count, rows)
            .unwrap();
        fs::read(&path).unwrap()
    }

    #[rstest]
    fn surfels_have_two_scales_and_are_read_again(
        #[values(0, 1, 3)] degree: u32,
        #[values(0, 1, 4099)] n: usize,
    ) {
        let mut surfels = all_different(n, degree);
        surfels.log_scales.iter_mut().skip(2).step_by(3).for_each(|it| *it = FLAT_LOG_SCALE);
        let bytes = surfels_of(&surfels);
        let text = String::from_utf8_lossy(&bytes);
        let first = format!("vertex {n}\ncomment SplatRenderMode: 2dgs\nproperty float x\n");
        assert!(text.contains(&first), "{}", &text[..200]);
        assert!(text.contains("scale_1\nproperty float rot_0\n") && !text.contains("scale_2"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        fs::write(&path, &bytes).unwrap();
        assert_eq!(read_ply_primitive(&path).unwrap(), PrimitiveName::Surfels);
        let read = read_ply_model(&path).unwrap();
        assert_eq!(
            read,
            PlyModel { gaussians: surfels, primitive: PrimitiveName::Surfels, triangles: None }
        );
        fs::write(&path, file_of(&all_different(1, degree))).unwrap();
        assert_eq!(read_ply_model(&path).unwrap().primitive, PrimitiveName::Gaussians);
    }

    #[test]
    fn surfels_need_both_of_their_scales_and_have_no_3d_filter() {
        let mut surfels = all_different(2, 0);
        surfels.log_scales.iter_mut().skip(2).step_by(3).for_each(|it| *it = FLAT_LOG_SCALE);
        let bytes = surfels_of(&surfels);
        let edited = |from: &str, to: &str| {
            let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
            let header = String::from_utf8_lossy(&bytes[..end]).replace(from, to);
            read_bytes(&[header.as_bytes(), &bytes[end..]].concat())
        };
        let error = edited("property float scale_1", "property float size_1").unwrap_err();
        assert!(error.to_string().contains("no column `scale_1`"), "{error}");
        assert_eq!(edited("property float nx", "property float filter_3D").unwrap(), surfels);
    }

    #[rstest]
    #[case::too_few_rows(1, 8, "7 of 8 Gaussians")]
    #[case::too_many_rows(1, 6, "7 of 6 Gaussians")]
    #[case::another_degree(2, 7, "SH degree 1 among those of degree 2")]
    fn chunks_that_are_not_what_was_announced_leave_the_old_file(
        #[case] degree: u32,
        #[case] count: usize,
        #[case] said: &str,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        fs::write(&path, "old").unwrap();
        let chunks = [3, 4].map(|n| Ok::<_, OutputError>(all_different(n, 1)));
        let error = write_ply_chunks(&path, RenderMode::Dilated, degree, count, chunks)
            .unwrap_err()
            .to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn a_truncated_file_is_an_error(cut in 0usize..2000) {
            let bytes = file_of(&all_different(3, 2));
            let cut = cut.min(bytes.len() - 1);
            prop_assert!(read_bytes(&bytes[..cut]).is_err());
        }

        #[test]
        fn flipped_bits_never_panic(flips in prop::collection::vec((0usize..4000, 0u8..8), 1..20)) {
            let mut bytes = file_of(&all_different(3, 2));
            let length = bytes.len();
            for (at, bit) in flips {
                bytes[at % length] ^= 1 << bit;
            }
            let _ = read_bytes(&bytes);
        }

        #[test]
        fn random_bytes_behind_a_good_start_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            start in prop::sample::select(vec![
                "", "ply\n", "ply\nformat binary_little_endian 1.0\n",
                "ply\nformat binary_little_endian 1.0\nelement vertex 9\nproperty ",
            ]),
        ) {
            prop_assert!(read_bytes(&[start.as_bytes(), &bytes].concat()).is_err());
        }
    }
}
