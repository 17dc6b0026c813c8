//! Lenses against those of COLMAP, and straightened images at the limits.

use proptest::prelude::*;

use super::*;

fn lens(focal_px: [f64; 2], distortion: Distortion) -> Lens {
    let camera = Camera { width: 1280, height: 960, focal_px, centre_px: [651.25, 467.75] };
    Lens::new(camera, distortion).unwrap()
}

const PLANE: [[f64; 2]; 4] = [[0.31, -0.17], [-0.62, 0.45], [0.05, 0.52], [-0.7, -0.5]];

/// What pycolmap 4.2.1's `Camera.img_from_cam` answers for `PLANE`, for `SIMPLE_RADIAL`, RADIAL,
/// OPENCV, `FULL_OPENCV` and `OPENCV_FISHEYE`.
fn recorded() -> Vec<(Lens, [[f64; 2]; 4])> {
    let brown = |k, p| Distortion::brown(k, p);
    vec![
        (
            lens([900.5; 2], brown([-0.11, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2])),
            [
                [926.56661875, 316.76991875],
                [128.9839352900001, 846.814079225],
                [694.923394525, 921.95330306],
                [72.21049000000005, 54.15035],
            ],
        ),
        (
            lens([900.5; 2], brown([-0.21, 0.043, 0.0, 0.0, 0.0, 0.0], [0.0; 2])),
            [
                [923.2647385156249, 318.580627265625],
                [153.48178571969868, 829.0333813324768],
                [693.8388503183407, 910.6740433107439],
                [104.01366461999999, 76.86690329999999],
            ],
        ),
        (
            lens([901.5, 905.25], brown([-0.21, 0.043, 0.0, 0.0, 0.0, 0.0], [0.0021, -0.0013])),
            [
                [922.995528746875, 318.26532632656244],
                [150.28382670477612, 833.4813910510809],
                [693.6589038833223, 914.49606915033],
                [102.71541286000001, 76.33854814999995],
            ],
        ),
        (
            lens(
                [901.5, 905.25],
                brown([-0.21, 0.043, 0.011, 0.023, -0.017, 0.0031], [0.0021, -0.0013]),
            ),
            [
                [922.291149664258, 318.65320551705736],
                [153.1382755825872, 831.40099559729],
                [693.4537017501217, 912.3530896680999],
                [104.79638456326518, 77.83113957253443],
            ],
        ),
        (
            lens([501.5, 505.25], Distortion::Fisheye([0.043, -0.021, 0.0113, -0.0037])),
            [
                [801.3863088156829, 384.80153632681925],
                [381.86848755900866, 664.7308449566298],
                [674.564556346124, 712.0344821063677],
                [356.2506781125446, 255.4605720215969],
            ],
        ),
    ]
}

#[test]
fn rays_fall_where_colmap_says_and_come_back() {
    for (lens, expected) in recorded() {
        for (plane, expected) in PLANE.into_iter().zip(expected) {
            let px = lens.px_from_plane(plane);
            let back = lens.plane_from_px(expected).unwrap();
            for i in 0..2 {
                // Rounding of numbers near 1000 in double precision, a few operations long.
                assert!((px[i] - expected[i]).abs() < 1e-11, "{lens:?}: {px:?}");
                assert!((back[i] - plane[i]).abs() < 1e-13, "{lens:?}: {back:?}");
            }
        }
    }
}

/// Every pixel corner on the rim of the straightened image has its source in the photograph.
fn assert_covered(lens: &Lens) -> Camera {
    let (straight, undistortion) = lens.straighten().unwrap();
    let undistortion = undistortion.unwrap();
    let target = [straight.width, straight.height].map(f64::from);
    let photograph = lens.size().map(f64::from);
    for step in 0..=1000 {
        let along = f64::from(step) / 1000.0;
        for px in [
            [along * target[0], 0.0],
            [along * target[0], target[1]],
            [0.0, along * target[1]],
            [target[0], along * target[1]],
        ] {
            let source = undistortion.source_px(px);
            for i in 0..2 {
                // The border is sampled, not solved: a hundredth of a pixel may be missing.
                let inside = source[i] > -0.01 && source[i] < photograph[i] + 0.01;
                assert!(inside, "{lens:?}: {px:?} comes from {source:?}");
            }
        }
    }
    straight
}

#[test]
fn straightened_images_keep_the_focal_length_and_have_no_blank_pixels() {
    for (lens, _) in recorded() {
        let straight = assert_covered(&lens);
        assert_eq!(straight.focal_px, lens.camera.focal_px);
        // These lenses pull the rim inwards, so the straightened image is the larger one.
        assert!(straight.width > 1280 && straight.height > 960, "{straight:?}");
    }
    let pincushion = Distortion::brown([0.1, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
    let straight = assert_covered(&lens([900.0; 2], pincushion));
    assert!(straight.width < 1280 && straight.height < 960, "{straight:?}");
}

#[test]
fn a_fisheye_that_sees_half_the_world_is_cropped_to_sixty_degrees() {
    // 180° across the diagonal and more: the corners see behind the camera.
    let fisheye = lens([420.0; 2], Distortion::Fisheye([0.01, 0.002, -0.001, 0.0001]));
    let straight = assert_covered(&fisheye);
    let half = f64::from(straight.width) / 2.0 / straight.focal_px[0];
    assert!(half <= WIDEST && half > 1.5, "{straight:?}");
}

#[test]
fn a_lens_that_folds_is_cropped_before_the_fold() {
    // r (1 - 0.6 r²) grows up to r = 0.745 only, and the corners lie at 0.89.
    let folding = Distortion::brown([-0.6, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
    let lens = lens([900.0; 2], folding);
    assert!((lens.reach - (1.0_f64 / 1.8).sqrt()).abs() < 0.003, "{}", lens.reach);
    let straight = assert_covered(&lens);
    let corner = f64::from(straight.width).hypot(f64::from(straight.height)) / 2.0 / 900.0;
    assert!(corner < lens.reach + 0.02, "{straight:?}");
}

#[test]
fn an_undistorted_lens_is_used_as_it_is() {
    let lens = lens([900.0, 901.0], Distortion::NONE);
    assert_eq!(lens.straighten().unwrap(), (lens.camera, None));
}

#[test]
fn a_distortion_that_vanishes_leaves_the_camera_as_it_was() {
    let nothing = Distortion::brown([1e-15, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
    let lens = lens([900.0, 901.0], nothing);
    let (straight, _) = lens.straighten().unwrap();
    assert_eq!([straight.width, straight.height], lens.size());
    // 1e-15 of a ray's length of 1, times the focal length, and the slack of 1e-6.
    for i in 0..2 {
        assert!((straight.centre_px[i] - lens.camera.centre_px[i]).abs() < 1e-6);
    }
}

#[test]
fn impossible_parameters_are_named() {
    let camera = Camera { width: 10, height: 9, focal_px: [0.0, 5.0], centre_px: [5.0, 4.0] };
    let error = Lens::new(camera, Distortion::NONE).unwrap_err().to_string();
    assert!(error.contains("focal length is 0"), "{error}");
    let camera = Camera { focal_px: [5.0; 2], ..camera };
    let nan = Distortion::Fisheye([0.0, f64::NAN, 0.0, 0.0]);
    assert!(Lens::new(camera, nan).unwrap_err().to_string().contains("NaN"));
}

proptest! {
    #[test]
    fn bending_and_unbending_agree(
        k in prop::array::uniform4(-0.3_f64..0.3),
        rational in prop::array::uniform2(-0.1_f64..0.1),
        tangential in prop::array::uniform2(-0.005_f64..0.005),
        plane in prop::array::uniform2(-1.0_f64..1.0),
    ) {
        let [k4, k5] = rational;
        let brown = Distortion::brown([k[0], k[1], k[2], k4, k5, 0.0], tangential);
        for distortion in [brown, Distortion::Fisheye(k.map(|k| k / 3.0))] {
            let reach = distortion.reach();
            // Near the fold the inverse is ill conditioned, and beyond it there are two.
            prop_assume!(plane[0].hypot(plane[1]) < 0.8 * reach);
            let back = distortion.unbend(distortion.bend(plane), reach);
            let back = back.expect("a ray within reach has an inverse");
            for i in 0..2 {
                prop_assert!((back[i] - plane[i]).abs() < 1e-9, "{distortion}: {back:?}");
            }
        }
    }

    #[test]
    fn no_parameters_make_straightening_panic(
        k in prop::array::uniform8(prop::num::f64::ANY),
        focal in prop::array::uniform2(prop::num::f64::ANY),
        centre in prop::array::uniform2(-1e4_f64..1e4),
        size in prop::array::uniform2(0_u32..5000),
    ) {
        let [width, height] = size;
        let camera = Camera { width, height, focal_px: focal, centre_px: centre };
        let fisheye = Distortion::Fisheye([k[0], k[1], k[2], k[3]]);
        for distortion in [Distortion::Brown(k), fisheye] {
            if let Ok(lens) = Lens::new(camera, distortion) {
                lens.straighten().ok();
            }
        }
    }
}
