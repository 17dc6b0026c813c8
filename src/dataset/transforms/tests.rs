use serde_json::json;

use super::*;
use crate::dataset::lens::Distortion;
use crate::dataset::shot::{Focal, SizelessLens};

fn keys(value: &Value) -> CameraKeys {
    CameraKeys::read(value.as_object().unwrap()).unwrap()
}

/// The camera of these keys for a photograph of 100x80 px: focal lengths, principal point, distortion.
fn camera(value: &Value) -> Result<([f64; 2], [f64; 2], Distortion), String> {
    let read = CameraKeys::read(value.as_object().unwrap())?;
    let (straight, _) = match read.optics().map_err(|fault| format!("{fault:?}"))? {
        Optics::Lens(lens) => (lens, ()),
        Optics::Sizeless(lens) => (lens.of_size([100, 80]).unwrap(), ()),
    };
    let text = format!("{straight:?}");
    assert!(text.contains("width: 100, height: 80"), "{text}");
    let middle = straight.px_from_plane([0.0; 2]);
    // Far below what the distortion changes.
    let step = 1e-7;
    let right = straight.px_from_plane([step, 0.0])[0] - middle[0];
    let below = straight.px_from_plane([0.0, step])[1] - middle[1];
    let Optics::Sizeless(SizelessLens { distortion, .. }) =
        keys(&without_size(value)).optics().map_err(|fault| format!("{fault:?}"))?
    else {
        return Err("has a size".to_owned());
    };
    Ok(([right / step, below / step], middle, distortion))
}

fn without_size(value: &Value) -> Value {
    let mut value = value.clone();
    for key in ["w", "h", "width", "height"] {
        value.as_object_mut().unwrap().remove(key);
    }
    value
}

#[test]
fn opengl_axes_become_opencv_axes() {
    // At (1, 2, 3), looking along world -z with y up: OpenGL's identity.
    let matrix = json!([[1.0, 0, 0, 1], [0, "1.0", 0, 2], [0, 0, 1, 3.0], [0, 0, 0, 1]]);
    let pose = pose(&matrix).unwrap();
    assert_eq!(pose.centre_world(), [1.0, 2.0, 3.0]);
    // A point ahead, to the right and above lies at positive x, negative y, positive z.
    let seen = mul(&pose.rotation, [1.5, 2.25, -1.0]);
    let seen: [f64; 3] = std::array::from_fn(|i| seen[i] + pose.translation[i]);
    assert_eq!(seen, [0.5, -0.25, 4.0]);
}

#[test]
fn matrices_that_are_no_poses_are_refused() {
    let row = [1, 0, 0, 0];
    for matrix in [
        json!([]),
        json!([row, row]),
        json!([row, row, row, row]),
        json!([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]),
        json!([[-1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]),
        json!([[1, 0, 0, "nan"], [0, 1, 0, 0], [0, 0, 1, 0]]),
        json!("identity"),
    ] {
        assert!(pose(&matrix).is_err(), "{matrix:?}");
    }
}

#[test]
fn the_same_camera_is_written_in_many_ways() {
    let angle = |focal: f64, size: f64| 2.0 * (size / 2.0 / focal).atan();
    let (x, y) = (angle(90.0, 100.0), angle(95.0, 80.0));
    for value in [
        json!({"fl_x": 90, "fl_y": 95, "cx": 52, "cy": 39, "w": 100, "h": 80}),
        json!({"fl_x": "90", "fl_y": " 95.0", "cx": "52", "cy": "39", "w": "100", "h": "80"}),
        json!({"fx": 90, "fy": 95, "cx": 52, "cy": 39, "width": 100, "height": 80}),
        json!({"fl_x": 90, "fl_y": 95, "cx": 52, "cy": 39}),
        json!({"camera_angle_x": x, "camera_angle_y": y, "cx": 52, "cy": 39, "w": 100, "h": 80}),
        json!({"camera_angle_x": x, "camera_angle_y": y, "cx": 52, "cy": 39}),
        json!({"camera_angle_x": x, "fl_y": 95, "cx": 52, "cy": 39}),
        json!({"x_fov": x.to_degrees(), "y_fov": y.to_degrees(), "cx": 52, "cy": 39}),
        json!({"camera_angle_x": 0.3, "fl_x": 90, "fl_y": 95, "cx": 52, "cy": 39}),
        json!({"K": [[90, 0, 52], [0, 95, 39], [0, 0, 1]], "w": 100, "h": 80}),
        json!({"K": [90, 0, 52, 0, 95, 39, 0, 0, 1]}),
        json!({"intrinsic_matrix": [[90, 0, 52, 0], [0, 95, 39, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}),
    ] {
        let (focal, centre, distortion) = camera(&value).unwrap();
        for (found, expected) in [(focal, [90.0, 95.0]), (centre, [52.0, 39.0])] {
            let is_near = |(a, b): (&f64, f64)| (a - b).abs() < 1e-4;
            assert!(found.iter().zip(expected).all(is_near), "{value}: {focal:?} {centre:?}");
        }
        assert_eq!(distortion, Distortion::NONE);
    }
    // One focal length: square pixels, the middle.
    for value in [
        json!({"fl_x": 90}),
        json!({"fl_y": 90}),
        json!({"camera_angle_x": x}),
        json!({"camera_angle_y": angle(90.0, 80.0)}),
    ] {
        let (focal, centre, _) = camera(&value).unwrap();
        assert!(focal.iter().all(|focal| (focal - 90.0).abs() < 1e-4), "{value}: {focal:?}");
        assert_eq!(centre, [50.0, 40.0]);
    }
}

#[test]
fn a_frame_overrides_the_file() {
    let file = keys(&json!({"fl_x": 1, "fl_y": 2, "k1": 0.1, "w": 8, "is_fisheye": true}));
    let merged = keys(&json!({"fl_x": 3})).or(&file);
    let same = json!({"fl_x": 3, "fl_y": 2, "k1": 0.1, "w": 8, "is_fisheye": true});
    assert_eq!(merged, keys(&same));
    // Angles and pixels are not mixed.
    let merged = keys(&json!({"camera_angle_x": 1.0})).or(&keys(&json!({"fl_x": 9, "fl_y": 9})));
    assert_eq!(merged, keys(&json!({"camera_angle_x": 1.0})));
    let merged = keys(&json!({"K": [[3, 0, 1], [0, 4, 2], [0, 0, 1]]})).or(&file);
    let focal = [3.0, 4.0].map(|focal| Some(Focal::Px(focal)));
    assert!(format!("{merged:?}").contains(&format!("focal: {focal:?}")), "{merged:?}");
    assert!(keys(&json!({"is_fisheye": false})).or(&file).optics().is_err(), "w alone");
}

#[test]
fn names_of_lenses_choose_the_distortion() {
    let brown = Distortion::brown([0.1, 0.0, 0.3, 0.0, 0.0, 0.0], [0.0, 0.02]);
    let rational = Distortion::brown([0.1, 0.0, 0.3, 0.05, 0.0, 0.0], [0.0, 0.02]);
    let fisheye = Distortion::Fisheye([0.1, 0.0, 0.3, 0.05]);
    let with = |extra: Value, k4: f64, p2: f64| {
        let mut value = json!({"fl_x": 90, "k1": 0.1, "k3": "0.3", "k4": k4, "p2": p2});
        for (key, extra) in extra.as_object().unwrap() {
            value[key] = extra.clone();
        }
        camera(&value).map(|(_, _, distortion)| distortion)
    };
    for extra in [
        json!({}),
        json!({"camera_model": "OPENCV"}),
        json!({"camera_model": "PERSPECTIVE"}),
        json!({"camera_model": "pinhole"}),
        json!({"is_fisheye": false}),
        json!({"ortho": false, "ftheta_p0": 0, "k5": 0, "skew": 0.0}),
    ] {
        assert_eq!(with(extra.clone(), 0.0, 0.02), Ok(brown), "{extra}");
    }
    assert_eq!(with(json!({"camera_model": "FULL_OPENCV"}), 0.05, 0.02), Ok(rational));
    for extra in [
        json!({"camera_model": "OPENCV_FISHEYE"}),
        json!({"camera_model": "FISHEYE"}),
        json!({"is_fisheye": true}),
        json!({"is_fisheye": 1}),
        json!({"is_fisheye": "True"}),
    ] {
        assert_eq!(with(extra.clone(), 0.05, 0.0), Ok(fisheye), "{extra}");
    }
    for (extra, named) in [
        (json!({"k4": 0.4}), "k4"),
        (json!({"k5": 0.4}), "k5"),
        (json!({"k7": 0.4}), "k7"),
        (json!({"ortho": true}), "ortho"),
        (json!({"ortho_scale": 2.0}), "ortho_scale"),
        (json!({"ftheta_p1": 0.4}), "ftheta_p1"),
        (json!({"is_equirectangular": true}), "is_equirectangular"),
        (json!({"latlong": true}), "latlong"),
        (json!({"s1": 0.1}), "s1"),
        (json!({"skew": 1.5}), "skew"),
        (json!({"shift_x": 0.1}), "shift_x"),
        (json!({"distortion_params": [0.1, 0.2]}), "distortion_params"),
        (json!({"camera_model": "EQUIRECTANGULAR"}), "EQUIRECTANGULAR"),
        (json!({"camera_model": "ORTHOPHOTO"}), "ORTHOPHOTO"),
        (json!({"camera_model": "FISHEYE624"}), "FISHEYE624"),
        (json!({"camera_model": "OPENCV", "is_fisheye": true}), "is_fisheye"),
        (json!({"is_fisheye": "perhaps"}), "is_fisheye"),
        (json!({"fl_x": "wide"}), "fl_x"),
        (json!({"fl_x": null, "focal_length": 35}), "focal_length"),
        (json!({"fl_x": null, "camera_angle_x": 3.2}), "camera_angle_x"),
        (json!({"cx": [1, 2]}), "cx"),
        (json!({"w": 100}), "no h"),
        (json!({"K": [[3, 1, 1], [0, 4, 2], [0, 0, 1]]}), "skew"),
        (json!({"K": [[3, 1], [0, 4]]}), "K"),
    ] {
        let error = with(extra.clone(), 0.0, 0.02).unwrap_err();
        assert!(error.contains(named), "{extra}: {error}");
    }
    // Redundant where the focal length is known.
    assert_eq!(with(json!({"focal_length": 35, "fov": 50}), 0.0, 0.02), Ok(brown));
}

#[test]
fn fields_of_view_of_pixels_that_are_not_square_are_noticed() {
    let stretch = |y: f64| {
        keys(&json!({"camera_angle_x": 1.0, "camera_angle_y": y, "w": 100, "h": 80})).stretch()
    };
    assert_eq!(stretch(2.0 * (0.8 * 0.5_f64.tan()).atan()), None);
    assert!(stretch(1.0).unwrap() < 0.9);
}
