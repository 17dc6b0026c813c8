//! Triangles that are written, read, cut off and broken.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::config::PrimitiveName;
use crate::files::OutputError;
use crate::model::{Gaussians, Primitive as _, TriangleMesh, sh_rest_count};

const WINDOW: StoredWindow = StoredWindow { exponent: 0.012_345_678_9, opacity_floor: 0.713 };

/// A strip of triangles in whose vertices no two numbers are equal.
fn strip(vertices: usize, sh_degree: u32) -> TriangleMesh {
    let mut next = 0.0_f32;
    let mut column = |width: usize| -> Vec<f32> {
        (0..vertices * width)
            .map(|_| {
                next += 1.0 / 8192.0;
                next - 7.0
            })
            .collect()
    };
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
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ply");
    write_ply_triangles(&path, mesh, WINDOW).unwrap();
    fs::read(&path).unwrap()
}

fn read_bytes(bytes: &[u8]) -> Result<PlyModel, PlyError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ply");
    fs::write(&path, bytes).unwrap();
    let primitive = read_ply_primitive(&path)?;
    read_ply_model(&path).inspect(|model| assert_eq!(model.primitive, primitive))
}

/// The file with another header.
fn edited(from: &str, to: &str) -> Result<PlyModel, PlyError> {
    let bytes = bytes_of(&strip(7, 1));
    let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
    let header = String::from_utf8(bytes[..end].to_vec()).unwrap();
    assert!(header.contains(from), "{header}");
    read_bytes(&[header.replace(from, to).as_bytes(), &bytes[end..]].concat())
}

#[rstest]
fn triangles_are_read_as_they_were_written(
    #[values(0, 1, 3)] degree: u32,
    // None at all, and more than are laid out at a time.
    #[values(0, 3, 8, 20_011)] vertices: usize,
) {
    let mesh = strip(vertices, degree);
    let PlyModel { gaussians, primitive, triangles } = read_bytes(&bytes_of(&mesh)).unwrap();
    assert_eq!(primitive, PrimitiveName::Triangles);
    assert!(gaussians == mesh.vertices);
    assert!(triangles == Some(PlyTriangles { faces: mesh.faces, window: WINDOW }));
}

#[test]
fn the_header_is_one_that_programs_for_meshes_know() {
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
fn what_others_add_is_passed_over_and_what_they_leave_out_is_solid() {
    let mesh = strip(7, 1);
    for (from, to) in [
        ("vertex_indices", "vertex_index"),
        ("list uchar int", "list uint8 uint32"),
        ("comment SplatRenderMode: triangles\n", ""),
    ] {
        assert_eq!(edited(from, to).unwrap().gaussians, mesh.vertices, "{from}");
    }
    let window = |from: &str| edited(from, "comment ").unwrap().triangles.unwrap().window;
    assert_eq!(window("comment SplatWindowExponent: ").exponent, StoredWindow::SOLID.exponent);
    assert_eq!(window("comment SplatOpacityFloor: ").opacity_floor, 0.9999);
    // A number before the list and one behind it, as tools for meshes keep them.
    let bytes = bytes_of(&mesh);
    let line = "property list uchar int vertex_indices\n";
    let end = bytes.windows(11).position(|window| window == b"end_header\n").unwrap() + 11;
    let header = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let header = header.replace(line, &format!("property short a\n{line}property float b\n"));
    let faces = bytes.len() - 5 * 13;
    let mut file = [header.as_bytes(), &bytes[end..faces]].concat();
    for face in bytes[faces..].chunks_exact(13) {
        file.extend([&[9; 2], face, &[9; 4]].concat());
    }
    let read = read_bytes(&file).unwrap();
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
fn a_broken_header_is_named(#[case] from: &str, #[case] to: &str, #[case] said: &[&str]) {
    let message = edited(from, to).unwrap_err().to_string();
    assert!(message.contains("a.ply"), "{message}");
    assert!(said.iter().all(|part| message.contains(part)), "{message}");
}

#[rstest]
// The file ends with five faces of 13 bytes.
#[case::quad(3 * 13, 4, "face 2 has 4 corners")]
#[case::line(5 * 13, 2, "face 0 has 2 corners")]
#[case::behind_the_last(2 * 13 - 5, 7, "face 3 names vertex 7, and there are 7")]
#[case::below_zero(13 - 4, 0xff, "face 4 names vertex")]
fn a_broken_face_is_named(#[case] before_end: usize, #[case] value: u8, #[case] said: &str) {
    let mut bytes = bytes_of(&strip(7, 0));
    let at = bytes.len() - before_end;
    bytes[at] = value;
    if value == 0xff {
        bytes[at..at + 4].fill(0xff);
    }
    let message = read_bytes(&bytes).unwrap_err().to_string();
    assert!(message.contains(said) && message.contains("a.ply"), "{message}");
}

#[test]
fn gaussians_with_faces_stay_gaussians() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ply");
    let gaussians = strip(4, 1).vertices;
    write_ply(&path, &gaussians).unwrap();
    let bytes = fs::read(&path).unwrap();
    let text = b"element face 0\nproperty list uchar int vertex_indices\n";
    let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
    let model = read_bytes(&[&bytes[..end], text, &bytes[end..]].concat()).unwrap();
    assert_eq!(model, PlyModel { gaussians, primitive: PrimitiveName::Gaussians, triangles: None });
}

/// A file that is there, and what is there after a failure to write it anew.
fn failed(write: impl FnOnce(&Path) -> Result<(), OutputError>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("a.ply");
    fs::write(&path, "old").unwrap();
    let error = write(&path).unwrap_err().to_string();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    error
}

#[test]
fn triangles_that_are_not_what_was_announced_leave_the_old_file() {
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
fn room_is_kept_for_faces_and_the_file_is_the_same_however_rows_are_cut() {
    let mesh = strip(9001, 2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ply");
    let mode = RenderMode::Triangles { window: WINDOW, faces: mesh.faces.len() };
    let file = NewPly::with_room::<Gaussians>(&path, mode, 2, 9001).unwrap();
    // Some file systems keep no room.
    let Some(file) = file else { return };
    let whole = bytes_of(&mesh);
    #[cfg(target_os = "linux")]
    {
        let kept = tests::bytes_of_unnamed(folder.path());
        let needed = whole.len() as u64;
        assert!(kept >= needed && kept < needed + (1 << 16), "{kept} of {needed}");
    }
    let chunks = (0..9001).step_by(1000).map(|first| Ok(mesh.vertices.rows(first..first + 1000)));
    file.write_triangles::<Gaussians, _, OutputError>(chunks, &mesh.faces).unwrap();
    assert!(fs::read(&path).unwrap() == whole);
}

proptest! {
    #[test]
    fn a_truncated_file_is_an_error(cut in 0usize..2000) {
        let bytes = bytes_of(&strip(7, 2));
        let cut = cut.min(bytes.len() - 1);
        prop_assert!(read_bytes(&bytes[..cut]).is_err());
    }

    #[test]
    fn flipped_bits_never_panic_nor_give_a_face_without_a_vertex(
        flips in prop::collection::vec((0usize..4000, 0u8..8), 1..20),
    ) {
        let mut bytes = bytes_of(&strip(7, 1));
        let length = bytes.len();
        for (at, bit) in flips {
            bytes[at % length] ^= 1 << bit;
        }
        if let Ok(PlyModel { gaussians, triangles: Some(triangles), .. }) = read_bytes(&bytes) {
            let corners = triangles.faces.as_flattened();
            prop_assert!(corners.iter().all(|&vertex| (vertex as usize) < gaussians.len()));
        }
    }
}
