//! HTML: a page that shows the Gaussians in any browser, with all it needs inside.
//!
//! The page, its program and their licences are built in `viewer/` and embedded in this crate. A
//! written page holds the Gaussians as SPZ in base64 and a JSON about them and the cameras. It asks no
//! network and opens from a disk. Its policy (CSP) runs nothing but the program that was built.

mod facts;
mod write;

use serde::{Deserialize, Serialize};

pub use write::{HtmlError, write_html};

/// What a page shows besides the Gaussians.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HtmlOptions {
    /// Title of the page; "Gaussians" where it is empty.
    pub title: String,
    /// Cameras to jump to, in this order. The page starts at the first.
    pub cameras: Vec<HtmlCamera>,
}

/// A camera of a page, in COLMAP's axes: x right, y down, z forward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HtmlCamera {
    /// Name, such as that of the photograph.
    pub name: String,
    /// Centre, scene units.
    pub position: [f64; 3],
    /// Rotation from the camera to the scene, row by row, as in Inria's `cameras.json`.
    pub rotation: [[f64; 3]; 3],
    /// Focal lengths along x and y, pixels.
    pub focal_px: [f64; 2],
    /// Principal point from the upper left corner, pixels.
    pub principal_px: [f64; 2],
    /// Width and height of the picture, pixels.
    pub size_px: [u32; 2],
    /// What the camera was for.
    pub split: CameraSplit,
}

/// What a camera was for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CameraSplit {
    /// The model was trained with it.
    #[default]
    Training,
    /// It was kept for evaluation.
    HeldOut,
}

impl HtmlCamera {
    /// Whether a picture can be drawn from it.
    fn is_usable(&self) -> bool {
        let values = [self.position.as_slice(), self.rotation.as_flattened(), &self.principal_px];
        values.into_iter().flatten().all(|value| value.is_finite())
            && self.focal_px.iter().all(|&focal| focal.is_finite() && focal > 0.0)
            && self.size_px.iter().all(|&size| size > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rstest::rstest;
    use serde_json::Value;

    use super::*;
    use crate::known_splats::{random_splats, splats_at};
    use crate::splats::{Antialiasing, Splats};
    use crate::spz::{SpzOptions, encode_spz};

    /// Names that end a script, open a comment, break a line of JavaScript or look like a slot.
    const HOSTILE: [&str; 5] = [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "a\u{2028}b\u{2029}c\"d\\",
        "{{splats}} {{bundle}}",
        "&lt;b&gt; & 'c'",
    ];

    fn camera(name: &str) -> HtmlCamera {
        HtmlCamera {
            name: name.to_owned(),
            position: [1.0, 2.0, -3.0],
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            focal_px: [500.0, 510.0],
            principal_px: [320.5, 240.25],
            size_px: [640, 480],
            split: CameraSplit::HeldOut,
        }
    }

    fn page(splats: &Splats, title: &str, cameras: &[HtmlCamera]) -> String {
        let mut bytes = Vec::new();
        let options = HtmlOptions { title: title.to_owned(), cameras: cameras.to_vec() };
        write_html(splats, &options, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// The text of the only element that starts like this.
    fn text_of<'a>(page: &'a str, start: &str, end: &str) -> &'a str {
        let (before, rest) = page.split_once(start).unwrap();
        assert!(!before.contains(start) && !rest.contains(start), "{start} stands twice");
        rest.split_once(end).unwrap().0
    }

    fn carried<'a>(page: &'a str, id: &str) -> &'a str {
        let kind = if id == "scene" { "application/json" } else { "text/plain" };
        text_of(page, &format!("<script type=\"{kind}\" id=\"{id}\">"), "</script>")
    }

    fn scene(page: &str) -> Value {
        serde_json::from_str(carried(page, "scene")).unwrap()
    }

    #[rstest]
    fn the_spz_in_the_page_is_the_one_that_is_encoded(
        #[values(0, 3)] sh_degree: u32,
        #[values(0, 1, 300)] count: usize,
    ) {
        let splats = random_splats(count, sh_degree, 1);
        let mut bytes = Vec::new();
        let worst = write_html(&splats, &HtmlOptions::default(), &mut bytes).unwrap();
        let page = String::from_utf8(bytes).unwrap();
        let file = encode_spz(&splats, &SpzOptions::default()).unwrap();
        assert_eq!(STANDARD.decode(carried(&page, "splats")).unwrap(), file.bytes);
        assert_eq!(worst, file.worst);
        assert_eq!(scene(&page)["splats"], count);
        assert_eq!(scene(&page)["sh_degree"], sh_degree);
    }

    #[test]
    fn the_program_in_the_page_unpacks_to_text_with_its_licences() {
        let page = page(&random_splats(2, 0, 1), "scene", &[]);
        let packed = STANDARD.decode(carried(&page, "bundle")).unwrap();
        let mut program = String::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut program).unwrap();
        for holder in ["WORLD LABS TECHNOLOGIES", "three.js authors", "Arjun Barrett", "zlib-rs"] {
            assert!(program.contains(holder), "{holder}");
        }
    }

    #[test]
    fn titles_and_names_stay_text() {
        let harmless = page(&random_splats(3, 1, 2), "scene", &[camera("view")]);
        let parts = |page: &str| page.matches('<').count();
        for text in HOSTILE {
            let page = page(&random_splats(3, 1, 2), text, &[camera(text)]);
            assert_eq!(parts(&page), parts(&harmless), "{text}");
            let raw = carried(&page, "scene");
            assert!(!raw.contains(['<', '\u{2028}', '\u{2029}']), "{raw}");
            let scene = scene(&page);
            assert_eq!(scene["title"], text);
            assert_eq!(scene["cameras"][0]["name"], text);
            assert_eq!(carried(&page, "splats"), carried(&harmless, "splats"));
            // What a browser makes of the title.
            let shown =
                [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
                    .iter()
                    .fold(text_of(&page, "<title>", "</title>").to_owned(), |shown, (from, to)| {
                        shown.replace(from, to)
                    });
            assert_eq!(shown, text);
        }
    }

    #[test]
    fn cameras_and_the_mode_reach_the_page() {
        let mut splats = random_splats(3, 0, 2);
        splats.columns_mut().antialiasing = Antialiasing::On;
        let cameras = [camera("a"), HtmlCamera { split: CameraSplit::Training, ..camera("b") }];
        let page = page(&splats, "", &cameras);
        let scene = scene(&page);
        assert_eq!((&scene["antialiased"], &scene["title"]), (&true.into(), &"Gaussians".into()));
        assert_eq!(scene["cameras"][0]["split"], "held_out");
        let back: Vec<HtmlCamera> = serde_json::from_value(scene["cameras"].clone()).unwrap();
        assert_eq!(back, cameras);
    }

    #[test]
    fn equal_input_makes_equal_bytes() {
        let splats = random_splats(300, 2, 5);
        let [first, second] = [0, 1].map(|_| page(&splats, "scene", &[camera("view")]));
        assert!(first == second);
    }

    #[test]
    fn stray_gaussians_do_not_move_the_middle() {
        let mut places = vec![[1.0, 2.0, 3.0]; 80];
        places.extend([[2.0, 2.0, 3.0]; 15]);
        places.extend([[1e9, -1e9, 1e9]; 4]);
        let scene = scene(&page(&splats_at(&places), "", &[]));
        assert_eq!(scene["center"], serde_json::json!([1.0, 2.0, 3.0]));
        assert_eq!(scene["radius"], 1.0);
    }

    #[rstest]
    #[case(HtmlCamera { position: [f64::NAN, 0.0, 0.0], ..camera("bad") })]
    #[case(HtmlCamera { focal_px: [0.0, 1.0], ..camera("bad") })]
    #[case(HtmlCamera { size_px: [640, 0], ..camera("bad") })]
    fn cameras_that_see_nothing_are_named(#[case] bad: HtmlCamera) {
        let options = HtmlOptions { title: String::new(), cameras: vec![camera("good"), bad] };
        let error = write_html(&random_splats(1, 0, 1), &options, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("`bad`"), "{error}");
    }
}
