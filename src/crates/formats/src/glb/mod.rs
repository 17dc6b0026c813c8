//! GLB, the binary container of glTF 2.0, with the extension `KHR_gaussian_splatting` (Khronos Group,
//! ratified in 2026).
//!
//! Values are floats and lose nothing but what logarithms and logits lose. glTF has y upwards, so a
//! scene in COLMAP's axes is turned by half a turn about z when it is written and turned back when it
//! is read, as `PlayCanvas`' converter does.

mod accessor;
mod document;
mod nodes;
mod read;
mod write;

use crate::place::ScenePlacement;

pub use read::parse_glb;
pub use write::{GlbError, write_glb};

/// The extension, and what its attributes begin with.
const EXTENSION: &str = "KHR_gaussian_splatting";

/// Between the scene's axes and those of glTF, in either direction.
const TURN: ScenePlacement =
    ScenePlacement { rotation: [0.0, 0.0, 0.0, 1.0], scale: 1.0, translation: [0.0; 3] };

/// The attribute of a coefficient of this number among those above degree 0.
fn rest_name(number: usize) -> String {
    let degree = [1, 2, 3].into_iter().find(|degree| number < (degree + 1) * (degree + 1) - 1);
    let degree = degree.unwrap_or(3);
    format!("{EXTENSION}:SH_DEGREE_{degree}_COEF_{}", number + 1 - degree * degree)
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use splat_mesh::file::GLB_MAGIC;

    use super::*;
    use crate::known_splats::{hard_splats, random_splats};
    use crate::splats::Splats;
    use crate::worst::WorstErrors;

    fn written(splats: &Splats) -> (Vec<u8>, WorstErrors) {
        let mut bytes = Vec::new();
        let worst = write_glb(splats, &mut bytes).unwrap();
        (bytes, worst)
    }

    fn json_of(bytes: &[u8]) -> Value {
        let length = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize;
        serde_json::from_slice(&bytes[20..20 + length]).unwrap()
    }

    /// The file with another JSON.
    fn with_json(bytes: &[u8], json: &Value) -> Vec<u8> {
        let length = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize;
        let mut text = json.to_string().into_bytes();
        text.resize(text.len().next_multiple_of(4), b' ');
        let rest = &bytes[20 + length..];
        let total = u32::try_from(20 + text.len() + rest.len()).unwrap();
        let text_length = u32::try_from(text.len()).unwrap();
        [&bytes[..8], &total.to_le_bytes(), &text_length.to_le_bytes(), &bytes[16..20], &text, rest]
            .concat()
    }

    #[rstest]
    fn what_was_written_is_read_again(
        #[values(0, 1, 2, 3)] sh_degree: u32,
        #[values(1, 257)] count: usize,
    ) {
        let splats = random_splats(count, sh_degree, 1);
        let (bytes, worst) = written(&splats);
        let read = parse_glb(&bytes).unwrap();
        assert_eq!((read.splats.len(), read.splats.sh_degree()), (count, sh_degree));
        assert_eq!(read.notes, Vec::<String>::new());
        assert_eq!(read.splats.columns().means, splats.columns().means);
        assert_eq!(worst, WorstErrors::between(&splats, &read.splats));
        // Roundings of f32: of a scale, of a share near 1.
        assert!(worst.log_scale < 1e-6 && worst.opacity < 1e-7, "{worst:?}");
        assert!(worst.rotation_degrees < 1e-4 && worst.sh < 1e-7, "{worst:?}");
        assert_eq!(worst.color, 0.0);
    }

    #[test]
    fn extreme_sizes_and_opacities_are_kept() {
        let mut splats = hard_splats(30, 0);
        splats.columns_mut().log_scales[0] = [-200.0, 100.0, 0.0];
        let (bytes, worst) = written(&splats);
        let read = parse_glb(&bytes).unwrap();
        assert_eq!((read.splats.len(), read.dropped), (30, 0));
        assert!(worst.opacity < 1e-7, "{worst:?}");
        let kept = read.splats.columns().log_scales[0];
        assert!(kept[0] < -80.0 && kept[1] > 88.0, "{kept:?}");
    }

    #[test]
    fn the_file_is_what_the_extension_asks_for() {
        let (bytes, _) = written(&random_splats(5, 2, 2));
        assert_eq!((&bytes[..4], bytes.len() % 4), (GLB_MAGIC.as_slice(), 0));
        let json = json_of(&bytes);
        assert_eq!(json["extensionsUsed"], json!([EXTENSION]));
        let primitive = &json["meshes"][0]["primitives"][0];
        assert_eq!(primitive["mode"], json!(0));
        assert_eq!(primitive["extensions"][EXTENSION]["kernel"], json!("ellipse"));
        let attributes = primitive["attributes"].as_object().unwrap();
        // Position, colour, rotation, scale, opacity, and nine coefficients.
        assert_eq!(attributes.len(), 5 + 9);
        let last = format!("{EXTENSION}:SH_DEGREE_2_COEF_4");
        assert!(attributes.contains_key(&last));
        let position = &json["accessors"][attributes["POSITION"].as_u64().unwrap() as usize];
        assert!(position["min"].is_array() && position["max"].is_array());
    }

    #[test]
    fn y_is_up_in_the_file() {
        let splats = crate::known_splats::splats_at(&[[1.0, 2.0, 3.0]]);
        let (bytes, _) = written(&splats);
        let json = json_of(&bytes);
        let position = json["meshes"][0]["primitives"][0]["attributes"]["POSITION"].as_u64();
        let accessor = &json["accessors"][position.unwrap() as usize];
        assert_eq!(accessor["min"], json!([-1.0, -2.0, 3.0]));
    }

    #[test]
    fn logarithms_of_the_draft_are_known_by_their_sign() {
        let splats = random_splats(9, 0, 3);
        let (mut bytes, _) = written(&splats);
        let json = json_of(&bytes);
        let name = format!("{EXTENSION}:SCALE");
        let number = json["meshes"][0]["primitives"][0]["attributes"][name].as_u64().unwrap();
        let view = &json["bufferViews"][number as usize];
        let binary = 28 + u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize;
        let start = binary + view["byteOffset"].as_u64().unwrap() as usize;
        let scales = splats.columns().log_scales.as_flattened();
        for (to, scale) in bytes[start..].as_chunks_mut::<4>().0.iter_mut().zip(scales) {
            *to = scale.to_le_bytes();
        }
        let read = parse_glb(&bytes).unwrap();
        assert_eq!(read.splats.columns().log_scales, splats.columns().log_scales);
        assert!(read.notes[0].contains("draft"), "{:?}", read.notes);
    }

    #[test]
    fn bytes_and_strides_of_other_writers_are_read() {
        let (bytes, _) = written(&random_splats(4, 0, 4));
        let mut json = json_of(&bytes);
        let attributes = json["meshes"][0]["primitives"][0]["attributes"].clone();
        // Opacity from the alpha of the colours: a byte in each four.
        let color = attributes["COLOR_0"].as_u64().unwrap() as usize;
        let opacity = attributes[format!("{EXTENSION}:OPACITY")].as_u64().unwrap() as usize;
        json["accessors"][opacity] = json!({
            "bufferView": color, "byteOffset": 3, "componentType": 5121, "normalized": true,
            "count": 4, "type": "SCALAR",
        });
        json["bufferViews"][color]["byteStride"] = json!(4);
        let read = parse_glb(&with_json(&bytes, &json)).unwrap().splats;
        let exact = parse_glb(&bytes).unwrap().splats;
        let worst = WorstErrors::between(&exact, &read);
        assert!(worst.opacity > 0.0 && worst.opacity < 0.51 / 255.0, "{worst:?}");
    }

    /// The file with other nodes.
    fn with_nodes(
        bytes: &[u8],
        nodes: Value,
    ) -> Result<crate::splats::CheckedSplats, crate::fault::FormatFault> {
        let mut json = json_of(bytes);
        json["nodes"] = nodes;
        parse_glb(&with_json(bytes, &json))
    }

    #[rstest]
    #[case::translation(json!([{"mesh": 0, "translation": [1, 2, 3]}]), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 1.0, [1.0, 2.0, 3.0])]
    #[case::rotation(json!([{"mesh": 0, "rotation": [0, 0, 0.5_f64.sqrt(), 0.5_f64.sqrt()]}]), [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], 1.0, [0.0; 3])]
    #[case::scale(json!([{"mesh": 0, "scale": [2, 2, 2], "translation": [0, 0, 1]}]), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 2.0, [0.0, 0.0, 1.0])]
    #[case::matrix(json!([{"mesh": 0, "matrix": [0, 3, 0, 0, -3, 0, 0, 0, 0, 0, 3, 0, 5, 6, 7, 1]}]), [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], 3.0, [5.0, 6.0, 7.0])]
    #[case::mirrored(json!([{"mesh": 0, "scale": [1, -1, 1]}]), [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]], 1.0, [0.0; 3])]
    #[case::tree(json!([{"children": [1], "translation": [1, 0, 0], "scale": [2, 2, 2]}, {"mesh": 0, "translation": [0, 1, 0], "rotation": [1, 0, 0, 0]}]), [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]], 2.0, [1.0, 2.0, 0.0])]
    fn nodes_place_their_gaussians(
        #[case] nodes: Value,
        #[case] rotation: [[f64; 3]; 3],
        #[case] scale: f64,
        #[case] translation: [f64; 3],
    ) {
        let splats = random_splats(20, 3, 9);
        let (bytes, _) = written(&splats);
        let placed = with_nodes(&bytes, nodes).unwrap().splats;
        let (before, after) = (splats.columns(), placed.columns());
        // In the axes of glTF: x and y are those of the scene turned by half a turn.
        let turned = |[x, y, z]: [f64; 3]| [-x, -y, z];
        let linear =
            |v: [f64; 3]| rotation.map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum::<f64>());
        let shape = |columns: &crate::splats::SplatColumns, row: usize, direction: [f64; 3]| {
            let axes = crate::quaternion::matrix(columns.rotations[row].map(f64::from));
            (0..3)
                .map(|k| {
                    let along: f64 = (0..3).map(|i| axes[i][k] * direction[i]).sum();
                    (along * f64::from(columns.log_scales[row][k]).exp()).powi(2)
                })
                .sum::<f64>()
        };
        let color = |columns: &crate::splats::SplatColumns, row: usize, direction: [f64; 3]| {
            let values = crate::harmonics::harmonics(direction);
            columns
                .rest(row)
                .iter()
                .zip(&values[1..])
                .map(|(c, y)| f64::from(c[0]) * y)
                .sum::<f64>()
        };
        let direction = [0.36, 0.48, -0.8];
        let seen = turned(linear(turned(direction)));
        for row in 0..20 {
            let mean = linear(turned(before.means[row].map(f64::from)));
            let expected = turned(std::array::from_fn(|i| scale * mean[i] + translation[i]));
            for (found, expected) in after.means[row].iter().zip(expected) {
                assert!((f64::from(*found) - expected).abs() < 1e-4, "{found} {expected}");
            }
            let (a, b) = (shape(before, row, direction), shape(after, row, seen));
            assert!((b / (scale * scale * a) - 1.0).abs() < 1e-3, "{a} {b}");
            let (a, b) = (color(before, row, direction), color(after, row, seen));
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
    }

    #[test]
    fn all_sets_of_gaussians_are_read_where_they_are() {
        let splats = random_splats(6, 1, 9);
        let (bytes, _) = written(&splats);
        let mut json = json_of(&bytes);
        // A second set without harmonics in the mesh, and the mesh in two places.
        let mut plain = json["meshes"][0]["primitives"][0].clone();
        let attributes = plain["attributes"].as_object_mut().unwrap();
        attributes.retain(|name, _| !name.contains("DEGREE_1"));
        json["meshes"][0]["primitives"].as_array_mut().unwrap().push(plain);
        json["nodes"] = json!([{"mesh": 0}, {"mesh": 0, "translation": [0, 0, 4]}, {"mesh": 0}]);
        json["scenes"] = json!([{"nodes": []}, {"nodes": [0, 1]}]);
        json["scene"] = json!(1);
        let read = parse_glb(&with_json(&bytes, &json)).unwrap();
        let columns = read.splats.columns();
        assert_eq!((columns.len(), columns.sh_degree), (24, 1));
        assert_eq!(columns.rest(5), splats.columns().rest(5));
        assert_eq!(columns.rest(6), [[0.0; 3]; 3]);
        let [x, y, z] = splats.columns().means[0];
        assert_eq!((columns.means[0], columns.means[18]), ([x, y, z], [x, y, z + 4.0]));
    }

    #[rstest]
    #[case(json!([{"mesh": 0, "scale": [1, 2, 1]}]), "stretches")]
    #[case(json!([{"mesh": 0, "scale": [0, 0, 0]}]), "stretches")]
    #[case(json!([{"mesh": 0, "children": [0]}]), "twice")]
    #[case(json!([{"mesh": 9}]), "mesh 9")]
    #[case(json!([{"mesh": 0, "children": [4]}]), "node 4")]
    fn broken_nodes_are_named(#[case] nodes: Value, #[case] said: &str) {
        let (bytes, _) = written(&random_splats(4, 0, 5));
        let message = with_nodes(&bytes, nodes).unwrap_err().to_string();
        assert!(message.contains(said), "{message}");
    }

    #[rstest]
    #[case("/meshes/0/primitives/0/extensions", json!({}), "no Gaussians")]
    #[case("/accessors/0/count", json!(4_000_000_000_u32), "past its end")]
    #[case("/accessors/0/bufferView", json!(77), "bufferView 77")]
    #[case("/bufferViews/0/byteOffset", json!(4_000_000_000_u32), "truncated")]
    #[case("/accessors/0/componentType", json!(5125), "5125")]
    #[case("/buffers/0/uri", json!("scene.bin"), "scene.bin")]
    fn broken_documents_are_named(#[case] at: &str, #[case] value: Value, #[case] said: &str) {
        let (bytes, _) = written(&random_splats(4, 0, 5));
        let mut json = json_of(&bytes);
        match json.pointer_mut(at) {
            Some(place) => *place = value,
            None => json["buffers"][0]["uri"] = value,
        }
        let message = parse_glb(&with_json(&bytes, &json)).unwrap_err().to_string();
        assert!(message.contains(said), "{message}");
    }
}
