//! Models as PLY. Gaussians have the column order that 3DGS viewers expect.
//!
//! Viewers read the header by line number and the rows as raw structs, so the writer never changes the order, and
//! line 3 is always `element vertex N`. The reader uses the column names only.
//!
//! In the file the higher harmonics are channel-major (all red coefficients, then green, then blue); in memory each
//! coefficient holds its three channels.
//!
//! Surfels have two scales in the file, as in 2D Gaussian splatting. A file that lacks only `scale_2` is read as
//! surfels.
//!
//! Triangles have a row for each vertex, without scales and rotation, and faces behind the vertices. Comments hold
//! the window. Programs for meshes open such a file and show its 8-bit colours.

mod fields;
mod read;
mod write;

pub use fields::{
    ColumnRange, FilterField, FlatField, Meaning, PlyError, PlyFacesError, PlyField, PlyRows,
    PlyTriangles, StoredWindow, VertexFields,
};
pub use read::{PlyModel, read_ply, read_ply_model, read_ply_primitive, read_ply_rows};
pub use write::{NewPly, PlyStyle, RenderMode, write_ply, write_ply_chunks, write_ply_triangles};

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::config::PrimitiveName;
    use crate::files::{OutputError, assert_parts};
    use crate::math::Real as _;
    use crate::model::{FLAT_LOG_SCALE, Gaussians, Primitive, TriangleMesh, sh_rest_count};

    /// Returns columns in which no two numbers are equal; all are above `-below`.
    fn columns(rows: usize, below: f32) -> impl FnMut(usize) -> Vec<f32> {
        let mut next = 0.0_f32;
        move |width| {
            let mut values = vec![0.0; rows * width];
            for value in &mut values {
                next += 1.0 / 8192.0;
                *value = next - below;
            }
            values
        }
    }

    /// Gaussians in which no two numbers are equal.
    fn all_different(n: usize, sh_degree: u32) -> Gaussians {
        // Small enough that the last values are valid scales.
        let mut column = columns(n, 1000.0);
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

    fn flat(n: usize, sh_degree: u32) -> Gaussians {
        let mut surfels = all_different(n, sh_degree);
        surfels.log_scales.iter_mut().skip(2).step_by(3).for_each(|it| *it = FLAT_LOG_SCALE);
        surfels
    }

    /// Normalises rotations, as a file holds them.
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

    fn file_of(gaussians: &Gaussians) -> Vec<u8> {
        written(|path| write_ply(path, gaussians))
    }

    fn in_mode(gaussians: &Gaussians, mode: RenderMode) -> Vec<u8> {
        let (degree, count) = (gaussians.sh_degree, gaussians.len());
        let rows = [Ok::<_, OutputError>(gaussians)];
        written(|path| write_ply_chunks::<Gaussians, _, _>(path, mode, degree, count, rows))
    }

    fn written(write: impl FnOnce(&Path) -> Result<(), OutputError>) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        write(&path).unwrap();
        fs::read(&path).unwrap()
    }

    fn read_by<T>(read: impl FnOnce(&Path) -> T, bytes: &[u8]) -> T {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        fs::write(&path, bytes).unwrap();
        read(&path)
    }

    fn read_bytes(bytes: &[u8]) -> Result<Gaussians, PlyError> {
        read_by(read_ply, bytes)
    }

    fn read_model(bytes: &[u8]) -> Result<PlyModel, PlyError> {
        let read = |path: &Path| {
            let primitive = read_ply_primitive(path)?;
            read_ply_model(path).inspect(|model| assert_eq!(model.primitive, primitive))
        };
        read_by(read, bytes)
    }

    /// Replaces text in the header of a file.
    fn edited(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
        let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
        let header = String::from_utf8_lossy(&bytes[..end]);
        assert!(header.contains(from), "{header}");
        [header.replace(from, to).as_bytes(), &bytes[end..]].concat()
    }

    #[rstest]
    fn a_written_file_is_read_back(
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

    /// Returns a file with columns in another order, doubles among them, and columns of other programs.
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
    fn columns_are_found_by_name_and_others_are_ignored() {
        let gaussians = read_bytes(&foreign_file()).unwrap();
        assert_eq!(gaussians.sh_degree, 0);
        assert_eq!(gaussians.means, [14.0, 13.0, 12.0]);
        assert_eq!(gaussians.sh_dc, [11.0, 10.0, 9.0]);
        assert_eq!(gaussians.log_scales, [8.0, 7.0, 6.0]);
        assert_eq!(gaussians.opacity_logits, [5.0]);
        assert_eq!(gaussians.quats, [4.0, 3.0, 2.0, 1.0]);
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
    fn a_broken_header_is_named(#[case] from: &str, #[case] to: &str, #[case] text: &str) {
        let bytes = edited(&file_of(&all_different(2, 1)), from, to);
        assert_parts(&read_bytes(&bytes).unwrap_err().to_string(), &[text, "a.ply"]);
    }

    #[test]
    fn invalid_numbers_are_reported_by_row_and_column() {
        let mut gaussians = all_different(5, 1);
        // Row 3, coefficient 2, green: in the file f_rest_5 (three of each channel).
        gaussians.sh_rest[3 * 9 + 2 * 3 + 1] = f32::NAN;
        let message = read_bytes(&file_of(&gaussians)).unwrap_err().to_string();
        assert_parts(&message, &["row 3", "`f_rest_5`", "NaN"]);

        let mut gaussians = all_different(5, 0);
        gaussians.quats[8..12].fill(0.0);
        let message = read_bytes(&file_of(&gaussians)).unwrap_err().to_string();
        assert_parts(&message, &["row 2", "rotation"]);
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
    fn the_file_does_not_depend_on_the_chunks(
        #[values(0, 2)] degree: u32,
        #[values(1, 5, 4096, 5000)] chunk: usize,
    ) {
        let gaussians = all_different(9000, degree);
        let chunks = (0..9000)
            .step_by(chunk)
            .map(|first| Ok::<_, OutputError>(gaussians.rows(first..first + chunk)));
        let mode = RenderMode::Dilated;
        let bytes = written(|path| write_ply_chunks(path, mode, degree, 9000, chunks));
        assert!(bytes == file_of(&gaussians));
    }

    /// Asserts that a new file takes about the disk space of these bytes before `write` writes them.
    fn assert_reserved(
        mode: RenderMode,
        rows: usize,
        bytes: &[u8],
        write: impl FnOnce(NewPly) -> Result<(), OutputError>,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        let file = NewPly::with_room::<Gaussians>(&path, mode, 2, rows).unwrap();
        // Some file systems cannot reserve space.
        let Some(file) = file else { return };
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::fs::MetadataExt as _;
            let folder = folder.path().canonicalize().unwrap();
            let open = fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
            let of_folder =
                open.filter(|fd| fs::read_link(fd).is_ok_and(|file| file.starts_with(&folder)));
            let blocks = of_folder.filter_map(|fd| fs::metadata(fd).ok()).map(|it| it.blocks());
            let (kept, needed) = (512 * blocks.sum::<u64>(), bytes.len() as u64);
            assert!(kept >= needed && kept < needed + (1 << 16), "{kept} of {needed}");
        }
        write(file).unwrap();
        assert!(fs::read(&path).unwrap() == bytes);
    }

    #[rstest]
    fn space_is_reserved_for_the_whole_file_and_no_more(
        #[values(RenderMode::Dilated, RenderMode::Surfels)] mode: RenderMode,
    ) {
        let gaussians = all_different(9000, 2);
        let bytes = in_mode(&gaussians, mode);
        assert_reserved(mode, 9000, &bytes, |file| {
            file.write::<Gaussians, _, OutputError>([Ok(&gaussians)])
        });
    }

    #[test]
    fn a_file_for_the_mip_filter_says_so_after_the_element() {
        let gaussians = all_different(3, 1);
        let bytes = in_mode(&gaussians, RenderMode::Mip);
        let text = String::from_utf8_lossy(&bytes);
        let found = "element vertex 3\ncomment SplatRenderMode: mip\nproperty float x\n";
        assert!(text.contains(found));
        assert_eq!(read_bytes(&bytes).unwrap(), gaussians);
    }

    #[rstest]
    fn surfels_are_stored_with_two_scales(
        #[values(0, 1, 3)] degree: u32,
        #[values(0, 1, 4099)] n: usize,
    ) {
        let surfels = flat(n, degree);
        let bytes = in_mode(&surfels, RenderMode::Surfels);
        let text = String::from_utf8_lossy(&bytes);
        let first = format!("vertex {n}\ncomment SplatRenderMode: 2dgs\nproperty float x\n");
        assert!(text.contains(&first), "{}", &text[..200]);
        assert!(text.contains("scale_1\nproperty float rot_0\n") && !text.contains("scale_2"));
        let (primitive, triangles) = (PrimitiveName::Surfels, None);
        let expected = PlyModel { gaussians: surfels, primitive, triangles };
        assert_eq!(read_model(&bytes).unwrap(), expected);
        let plain = read_model(&file_of(&all_different(1, degree))).unwrap();
        assert_eq!(plain.primitive, PrimitiveName::Gaussians);
    }

    #[test]
    fn surfels_need_both_of_their_scales_and_have_no_3d_filter() {
        let surfels = flat(2, 0);
        let bytes = in_mode(&surfels, RenderMode::Surfels);
        let edited = |from: &str, to: &str| read_bytes(&edited(&bytes, from, to));
        let error = edited("property float scale_1", "property float size_1").unwrap_err();
        assert!(error.to_string().contains("no column `scale_1`"), "{error}");
        assert_eq!(edited("property float nx", "property float filter_3D").unwrap(), surfels);
    }

    #[rstest]
    #[case::too_few_rows(1, 8, "7 of 8 Gaussians")]
    #[case::too_many_rows(1, 6, "7 of 6 Gaussians")]
    #[case::another_degree(2, 7, "SH degree 1 among those of degree 2")]
    fn unexpected_chunks_leave_the_old_file(
        #[case] degree: u32,
        #[case] count: usize,
        #[case] text: &str,
    ) {
        let chunks = [3, 4].map(|n| Ok::<_, OutputError>(all_different(n, 1)));
        let mode = RenderMode::Dilated;
        let error = failed(|path| write_ply_chunks(path, mode, degree, count, chunks));
        assert!(error.contains(text), "{error}");
    }

    proptest! {
        #[test]
        fn a_truncated_file_is_an_error(cut in 0usize..2000) {
            for bytes in [file_of(&all_different(3, 2)), bytes_of(&strip(7, 2))] {
                prop_assert!(read_model(&bytes[..cut.min(bytes.len() - 1)]).is_err());
            }
        }

        #[test]
        fn flipped_bits_never_panic_nor_give_a_face_without_a_vertex(
            flips in prop::collection::vec((0usize..4000, 0u8..8), 1..20),
        ) {
            for mut bytes in [file_of(&all_different(3, 2)), bytes_of(&strip(7, 1))] {
                let length = bytes.len();
                for (at, bit) in &flips {
                    bytes[at % length] ^= 1 << bit;
                }
                if let Ok(PlyModel { gaussians, triangles: Some(found), .. }) = read_model(&bytes) {
                    let corners = found.faces.as_flattened();
                    prop_assert!(corners.iter().all(|&vertex| (vertex as usize) < gaussians.len()));
                }
            }
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

    const WINDOW: StoredWindow = StoredWindow { exponent: 0.012_345_678_9, opacity_floor: 0.713 };

    /// Creates a strip of triangles in whose vertices no two numbers are equal.
    fn strip(vertices: usize, sh_degree: u32) -> TriangleMesh {
        let mut column = columns(vertices, 7.0);
        let vertices = Gaussians {
            sh_degree,
            means: column(3),
            opacity_logits: column(1),
            sh_dc: column(3),
            sh_rest: column(3 * sh_rest_count(sh_degree)),
            log_scales: vec![0.0; 3 * vertices],
            quats: [1.0, 0.0, 0.0, 0.0].repeat(vertices),
        };
        let count = u32::try_from(vertices.len()).unwrap();
        let faces = (2..count).map(|third| [third, third - 1, third - 2]).collect();
        TriangleMesh { vertices, faces }
    }

    fn bytes_of(mesh: &TriangleMesh) -> Vec<u8> {
        written(|path| write_ply_triangles(path, mesh, WINDOW))
    }

    fn read_edited(from: &str, to: &str) -> Result<PlyModel, PlyError> {
        read_model(&edited(&bytes_of(&strip(7, 1)), from, to))
    }

    #[rstest]
    fn triangles_are_read_as_they_were_written(
        #[values(0, 1, 3)] degree: u32,
        // None, and more than one read holds.
        #[values(0, 3, 8, 20_011)] vertices: usize,
    ) {
        let mesh = strip(vertices, degree);
        let PlyModel { gaussians, primitive, triangles } = read_model(&bytes_of(&mesh)).unwrap();
        assert_eq!(primitive, PrimitiveName::Triangles);
        assert!(gaussians == mesh.vertices);
        assert!(triangles == Some(PlyTriangles { faces: mesh.faces, window: WINDOW }));
    }

    #[test]
    fn programs_for_meshes_can_read_the_header() {
        let mut mesh = strip(5, 1);
        mesh.vertices.sh_dc[3..6].copy_from_slice(&[-9.0, 0.0, 0.9]);
        let bytes = bytes_of(&mesh);
        let text = String::from_utf8_lossy(&bytes);
        let (head, _) = text.split_once("property float f_rest_0\n").unwrap();
        let expected = "ply\nformat binary_little_endian 1.0\nelement vertex 5\n\
        comment SplatRenderMode: triangles\ncomment SplatWindowExponent: 0.0123456789\n\
        comment SplatOpacityFloor: 0.713\nproperty float x\nproperty float y\nproperty float z\n\
        property uchar red\nproperty uchar green\nproperty uchar blue\n\
        property float f_dc_0\nproperty float f_dc_1\nproperty float f_dc_2\n";
        assert_eq!(head, expected);
        let tail = "property float f_rest_8\nproperty float opacity\nelement face 3\n\
        property list uchar int vertex_indices\nend_header\n";
        assert!(text.contains(tail));
        // Three faces of 13 bytes at the end; a row has 16 floats and three bytes of colour.
        assert_eq!(bytes[bytes.len() - 13..], [3, 4, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0]);
        let second = bytes.len() - 3 * 13 - 4 * (16 * 4 + 3);
        // 0.5 + 0.2821 * 0.9 = 0.7539
        assert_eq!(bytes[second + 12..second + 15], [0, 128, 192]);
    }

    #[test]
    fn unknown_properties_are_ignored_and_missing_comments_mean_solid() {
        let mesh = strip(7, 1);
        for (from, to) in [
            ("vertex_indices", "vertex_index"),
            ("list uchar int", "list uint8 uint32"),
            ("comment SplatRenderMode: triangles\n", ""),
        ] {
            assert_eq!(read_edited(from, to).unwrap().gaussians, mesh.vertices, "{from}");
        }
        let window = |from| read_edited(from, "comment ").unwrap().triangles.unwrap().window;
        assert_eq!(window("comment SplatWindowExponent: ").exponent, StoredWindow::SOLID.exponent);
        assert_eq!(window("comment SplatOpacityFloor: ").opacity_floor, 0.9999);
        // A number before the list and one behind it, as tools for meshes write them.
        let bytes = bytes_of(&mesh);
        let line = "property list uchar int vertex_indices\n";
        let faces = bytes.len() - 5 * 13;
        let more = format!("property short a\n{line}property float b\n");
        let mut file = edited(&bytes[..faces], line, &more);
        for face in bytes[faces..].chunks_exact(13) {
            file.extend([&[9; 2], face, &[9; 4]].concat());
        }
        let read = read_model(&file).unwrap();
        assert_eq!((read.gaussians, read.triangles.unwrap().faces), (mesh.vertices, mesh.faces));
    }

    #[rstest]
    #[case::cut_off("element face 5", "element face 6", &["truncated", "6 rows of 13 bytes", "has 65 bytes"])]
    #[case::endless("element face 5", "element face 18446744073709551615", &["truncated"])]
    #[case::no_faces("element face 5", "element edge 5", &["no `element face`", "SplatRenderMode"])]
    #[case::no_harmonics("property float f_dc_1", "property float g_dc_1", &["no column `f_dc_1`", "a mesh"])]
    #[case::no_opacity("property float opacity", "property float opaque", &["no column `opacity`"])]
    #[case::no_list("list uchar int vertex_indices", "int vertex_indices", &["no list of vertices"])]
    #[case::other_list("int vertex_indices", "int texcoord", &["list uchar int texcoord", "vertex_indices"])]
    #[case::fractions("uchar int vertex", "uchar float vertex", &["list uchar float vertex_indices"])]
    #[case::no_type("uchar int vertex", "uchar word vertex", &["list uchar word vertex_indices"])]
    #[case::exponent("Exponent: 0.0123456789", "Exponent: much", &["SplatWindowExponent: much", "0 and more"])]
    #[case::floor("Floor: 0.713", "Floor: 1", &["SplatOpacityFloor: 1", "below 1"])]
    #[case::big_endian("little", "big", &["binary_big_endian"])]
    fn a_broken_header_of_triangles_is_named(
        #[case] from: &str,
        #[case] to: &str,
        #[case] text: &[&str],
    ) {
        let message = read_edited(from, to).unwrap_err().to_string();
        assert_parts(&message, &[text, &["a.ply"]].concat());
    }

    #[rstest]
    // The file ends with five faces of 13 bytes.
    #[case::quad(3 * 13, 4, "face 2 has 4 corners")]
    #[case::line(5 * 13, 2, "face 0 has 2 corners")]
    #[case::behind_the_last(2 * 13 - 5, 7, "face 3 names vertex 7, and there are 7")]
    #[case::below_zero(13 - 4, 0xff, "face 4 names vertex")]
    fn a_broken_face_is_named(#[case] before_end: usize, #[case] value: u8, #[case] text: &str) {
        let mut bytes = bytes_of(&strip(7, 0));
        let at = bytes.len() - before_end;
        bytes[at] = value;
        if value == 0xff {
            bytes[at..at + 4].fill(0xff);
        }
        let message = read_model(&bytes).unwrap_err().to_string();
        assert_parts(&message, &[text, "a.ply"]);
    }

    #[test]
    fn gaussians_with_faces_stay_gaussians() {
        let gaussians = strip(4, 1).vertices;
        let last = "property float rot_3\n";
        let faces = "element face 0\nproperty list uchar int vertex_indices\n";
        let bytes = edited(&file_of(&gaussians), last, &(last.to_owned() + faces));
        let (primitive, triangles) = (PrimitiveName::Gaussians, None);
        assert_eq!(read_model(&bytes).unwrap(), PlyModel { gaussians, primitive, triangles });
    }

    /// Returns the error of a write over an old file, which must stay.
    fn failed(write: impl FnOnce(&Path) -> Result<(), OutputError>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        fs::write(&path, "old").unwrap();
        let error = write(&path).unwrap_err().to_string();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        error
    }

    #[test]
    fn invalid_triangles_leave_the_old_file() {
        let mut mesh = strip(6, 0);
        mesh.faces[2][1] = 6;
        let error = failed(|path| write_ply_triangles(path, &mesh, WINDOW));
        assert!(error.contains("face 2 names vertex 6 of 6"), "{error}");
        let mode = RenderMode::Triangles { window: WINDOW, faces: 4 };
        let rows = [Ok::<_, OutputError>(&mesh.vertices)];
        let error = failed(|path| write_ply_chunks::<Gaussians, _, _>(path, mode, 0, 6, rows));
        assert!(error.contains("0 of 4 triangles"), "{error}");
    }

    #[test]
    fn space_is_reserved_for_faces() {
        let mesh = strip(9001, 2);
        let mode = RenderMode::Triangles { window: WINDOW, faces: mesh.faces.len() };
        let chunks =
            (0..9001).step_by(1000).map(|first| Ok(mesh.vertices.rows(first..first + 1000)));
        assert_reserved(mode, 9001, &bytes_of(&mesh), |file| {
            file.write_triangles::<Gaussians, _, OutputError>(chunks, &mesh.faces)
        });
    }
}
