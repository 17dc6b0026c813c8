//! HTML: a self-contained page that shows the Gaussians in any browser.
//!
//! `src/viewer/` builds the page, its program and their licences, which are embedded in this crate. A written page
//! holds the Gaussians as base64 SPZ, and a JSON about the Gaussians and the cameras. The page works offline, and its
//! policy (CSP) runs the built program only. A served page ([`served_page`]) has that program but loads data from its
//! server.

use std::io::{self, Write};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::place::{SceneCamera, UpAxis};
use crate::save::WorstErrors;
use crate::splats::{Antialiasing, Splats};
use crate::spz::{SpzOptions, SpzOptionsError, encode_spz};

/// Content of a page besides the Gaussians.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HtmlOptions {
    /// Title of the page; "Gaussians" if empty.
    pub title: String,
    /// Cameras to jump to, in this order. The page starts at the first one.
    pub cameras: Vec<SceneCamera>,
    /// Up axis of the scene, used if there are no cameras.
    pub up: UpAxis,
}

/// Largest sample of Gaussians for the centre and the radius.
const SAMPLES: usize = 100_000;

/// Percentage of the Gaussians within the radius. The others are background and outliers.
const INNER_PERCENT: usize = 90;

const DEFAULT_TITLE: &str = "Gaussians";

/// JSON of a page; `src/viewer/src` reads it by these names.
#[derive(Serialize)]
struct PageFacts<'a> {
    title: &'a str,
    splats: usize,
    sh_degree: u32,
    antialiased: bool,
    /// Median of the centres, scene units.
    center: [f32; 3],
    /// Distance from the centre within which most Gaussians are, scene units; above 0.
    radius: f32,
    /// Up direction, used if there are no cameras.
    up: [f64; 3],
    cameras: &'a [SceneCamera],
}

impl<'a> PageFacts<'a> {
    fn of(splats: &Splats, options: &'a HtmlOptions) -> Self {
        let columns = splats.columns();
        let (center, radius) = middle_and_radius(&columns.means);
        Self {
            title: if options.title.is_empty() { DEFAULT_TITLE } else { &options.title },
            splats: columns.len(),
            sh_degree: columns.sh_degree,
            antialiased: columns.antialiasing == Antialiasing::On,
            center,
            radius,
            up: options.up.direction(),
            cameras: &options.cameras,
        }
    }
}

/// Returns the median of points, and a radius above 0 that contains most of them. Samples large sets.
pub fn middle_and_radius(places: &[[f32; 3]]) -> ([f32; 3], f32) {
    let step = places.len().div_ceil(SAMPLES).max(1);
    let places: Vec<[f32; 3]> = places.iter().step_by(step).copied().collect();
    let center = [0, 1, 2].map(|axis| {
        percentile(places.iter().map(|place| place[axis]).collect(), 50).unwrap_or(0.0)
    });
    let distances = places
        .iter()
        .map(|place| place.iter().zip(center).map(|(x, c)| (x - c).powi(2)).sum::<f32>().sqrt());
    let radius = percentile(distances.collect(), INNER_PERCENT);
    (center, radius.filter(|radius| radius.is_normal()).unwrap_or(1.0))
}

/// Returns a percentile of the values; `None` without values.
fn percentile(mut values: Vec<f32>, percent: usize) -> Option<f32> {
    let at = values.len() * percent / 100;
    (at < values.len()).then(|| *values.select_nth_unstable_by(at, f32::total_cmp).1)
}

// The page that a server sends, which loads its data from that server.

/// Page of `src/viewer/rebuild`, with a slot for the program.
const SERVED_PAGE: &str = include_str!("../../../viewer/dist/served.html");

/// Text around the page's policy.
const POLICY: [&str; 2] = ["http-equiv=\"Content-Security-Policy\" content=\"", "\""];

/// A page with program and style but no data.
///
/// `src/viewer/README.md` documents its requests below `/api/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPage {
    /// The page.
    pub html: String,
    /// Value of the header `Content-Security-Policy`. Allows only the program and requests to the server, and no
    /// framing by other pages.
    pub policy: String,
}

/// Returns the page, which is constant.
pub fn served_page() -> ServedPage {
    let bundle = Base64Display::new(BUNDLE, &STANDARD).to_string();
    let html = SERVED_PAGE.replace("{{bundle}}", &bundle);
    let [before, behind] = POLICY;
    let own = SERVED_PAGE.split_once(before).and_then(|(_, rest)| rest.split_once(behind));
    let own = own.map_or("default-src 'none'", |(policy, _)| policy);
    ServedPage { html, policy: format!("{own}; frame-ancestors 'none'") }
}

// The written page.

/// Page of `src/viewer/rebuild`, with slots, and its program as gzip.
const PAGE: &str = include_str!("../../../viewer/dist/page.html");
const BUNDLE: &[u8] = include_bytes!("../../../viewer/dist/viewer.js.gz");

/// Error of making a page.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum HtmlError {
    #[error(transparent)]
    Spz(#[from] SpzOptionsError),
    #[error(
        "the camera `{0}` has a value that is not finite, or no size or focal length: leave it out"
    )]
    Camera(String),
    #[error("the page's JSON cannot be made: {0}. Export another format, such as .spz")]
    Json(#[from] serde_json::Error),
    #[error(
        "the page cannot be written: {0}. Check the free space and the permissions of the folder"
    )]
    Write(#[from] io::Error),
}

/// Writes a page with the Gaussians as SPZ 3 with 8-bit harmonics. Returns the errors of the SPZ.
///
/// Equal inputs make equal bytes. Fails if SPZ cannot hold the Gaussians, a camera is not usable, or `out` fails.
pub fn write_html(
    splats: &Splats,
    options: &HtmlOptions,
    out: &mut (impl Write + ?Sized),
) -> Result<WorstErrors, HtmlError> {
    if let Some(camera) = options.cameras.iter().find(|camera| !camera.is_usable()) {
        return Err(HtmlError::Camera(camera.name.clone()));
    }
    let file = encode_spz(splats, &SpzOptions::for_page())?;
    let facts = PageFacts::of(splats, options);
    // Inserted text is never searched for slots: a title may look like one.
    for (at, part) in PAGE.split("{{").enumerate() {
        let Some((slot, text)) = part.split_once("}}").filter(|_| at > 0) else {
            out.write_all(part.as_bytes())?;
            continue;
        };
        match slot {
            "title" => out.write_all(html_text(facts.title).as_bytes())?,
            "scene" => out.write_all(script_json(&serde_json::to_string(&facts)?).as_bytes())?,
            "splats" => write!(out, "{}", Base64Display::new(&file.bytes, &STANDARD))?,
            "bundle" => write!(out, "{}", Base64Display::new(BUNDLE, &STANDARD))?,
            unknown => {
                let message = format!("the page has a slot `{unknown}` that nothing fills");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message).into());
            }
        }
        out.write_all(text.as_bytes())?;
    }
    Ok(file.worst)
}

/// Escapes text for the content of an element.
fn html_text(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// Escapes JSON for the content of a script: no tags and no line terminators.
fn script_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use base64::Engine;
    use rstest::rstest;
    use serde_json::Value;

    use super::*;
    use crate::place::{CameraSplit, ScenePlacement};
    use crate::splats::known_splats::{camera, random_splats, splats_at};

    /// Names that end a script, open a comment, break a line of JavaScript or look like a slot.
    const HOSTILE: [&str; 5] = [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "a\u{2028}b\u{2029}c\"d\\",
        "{{splats}} {{bundle}}",
        "&lt;b&gt; & 'c'",
    ];

    fn page(splats: &Splats, title: &str, cameras: &[SceneCamera]) -> String {
        let mut bytes = Vec::new();
        let (title, cameras) = (title.to_owned(), cameras.to_vec());
        let options = HtmlOptions { title, cameras, up: UpAxis::Z };
        write_html(splats, &options, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Returns the text of the only element that starts with `start`.
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
    fn page_contains_the_encoded_spz(
        #[values(0, 3)] sh_degree: u32,
        #[values(0, 1, 300)] count: usize,
    ) {
        let splats = random_splats(count, sh_degree, 1);
        let mut bytes = Vec::new();
        let worst = write_html(&splats, &HtmlOptions::default(), &mut bytes).unwrap();
        let page = String::from_utf8(bytes).unwrap();
        let file = encode_spz(&splats, &SpzOptions::for_page()).unwrap();
        assert_eq!(STANDARD.decode(carried(&page, "splats")).unwrap(), file.bytes);
        assert_eq!(worst, file.worst);
        assert_eq!(scene(&page)["splats"], count);
        assert_eq!(scene(&page)["sh_degree"], sh_degree);
    }

    #[test]
    fn page_contains_the_program_with_licences() {
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
            // A browser unescapes the title.
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
        let cameras = [camera("a"), SceneCamera { split: CameraSplit::Training, ..camera("b") }];
        let page = page(&splats, "", &cameras);
        let scene = scene(&page);
        assert_eq!((&scene["antialiased"], &scene["title"]), (&true.into(), &"Gaussians".into()));
        assert_eq!(scene["up"], serde_json::json!([0.0, 0.0, 1.0]));
        assert_eq!(scene["cameras"][0]["split"], "held_out");
        let back: Vec<SceneCamera> = serde_json::from_value(scene["cameras"].clone()).unwrap();
        assert_eq!(back, cameras);
    }

    #[test]
    fn placing_camera_and_scene_keeps_the_view() {
        let to = ScenePlacement {
            rotation: [2.0, 0.5, -1.0, 0.25],
            scale: 3.0,
            translation: [10.0, 20.0, 30.0],
        };
        let mut splats = splats_at(&[[0.5, 1.0, 4.0]]);
        let mut camera = camera("view");
        camera.rotation = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
        // Returns the first Gaussian in camera axes.
        let seen = |splats: &Splats, camera: &SceneCamera| -> [f64; 3] {
            let place = splats.columns().means[0].map(f64::from);
            let away: [f64; 3] = std::array::from_fn(|i| place[i] - camera.position[i]);
            std::array::from_fn(|k| (0..3).map(|i| camera.rotation[i][k] * away[i]).sum())
        };
        let before = seen(&splats, &camera);
        splats.place(&to).unwrap();
        camera.place(&to).unwrap();
        for (before, after) in before.into_iter().zip(seen(&splats, &camera)) {
            // Positions are f32: 2^-24 of the 40 units to the farthest.
            assert!((3.0 * before - after).abs() < 1e-5, "{before} {after}");
        }
        let none = ScenePlacement { scale: 0.0, ..to };
        assert!(camera.place(&none).is_err());
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
    #[case(SceneCamera { position: [f64::NAN, 0.0, 0.0], ..camera("bad") })]
    #[case(SceneCamera { focal_px: [0.0, 1.0], ..camera("bad") })]
    #[case(SceneCamera { size_px: [640, 0], ..camera("bad") })]
    fn unusable_cameras_are_named(#[case] bad: SceneCamera) {
        let cameras = vec![camera("good"), bad];
        let options = HtmlOptions { cameras, ..HtmlOptions::default() };
        let error = write_html(&random_splats(1, 0, 1), &options, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("`bad`"), "{error}");
    }

    #[test]
    fn served_page_is_complete_and_allows_its_server_only() {
        let ServedPage { html, policy } = served_page();
        assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
        assert!(!html.contains("{{") && html.contains("{\"served\":true}"));
        let parts: Vec<&str> = policy.split("; ").collect();
        for part in
            ["default-src 'none'", "connect-src 'self' data: blob:", "frame-ancestors 'none'"]
        {
            assert!(parts.contains(&part), "{policy}");
        }
        assert!(!policy.contains("unsafe-inline") && !policy.contains("http"), "{policy}");
    }
}
