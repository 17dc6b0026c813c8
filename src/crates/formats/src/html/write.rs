//! A page, written.

use std::io::{self, Write};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;

use super::HtmlOptions;
use super::facts::PageFacts;
use crate::splats::Splats;
use crate::spz::{SpzOptions, SpzOptionsError, encode_spz};
use crate::worst::WorstErrors;

/// Page of `src/viewer/rebuild`, with slots, and its program as gzip.
const PAGE: &str = include_str!("../../../../viewer/dist/page.html");
pub(super) const BUNDLE: &[u8] = include_bytes!("../../../../viewer/dist/viewer.js.gz");

/// Why no page is made.
#[derive(Debug, thiserror::Error)]
pub enum HtmlError {
    /// The Gaussians cannot be packed.
    #[error(transparent)]
    Spz(#[from] SpzOptionsError),
    /// A camera from which nothing can be seen.
    #[error(
        "the camera `{0}` has a value that is not finite, or no size or focal length: leave it out"
    )]
    Camera(String),
    /// The facts cannot be written as JSON.
    #[error("the page's JSON cannot be made: {0}. Export another format, such as .spz")]
    Json(#[from] serde_json::Error),
    /// The system refuses to write.
    #[error(
        "the page cannot be written: {0}. Check the free space and the permissions of the folder"
    )]
    Write(#[from] io::Error),
}

/// Writes a page with the Gaussians as SPZ 3 with 8 bits for all harmonics; how far from them it is.
///
/// Equal input makes equal bytes. Fails where SPZ cannot hold the Gaussians, a camera has values that
/// are not finite, or `out` refuses.
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
    // What is filled in is never searched for slots: a title may look like one.
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
                let said = format!("the page has a slot `{unknown}` that nothing fills");
                return Err(io::Error::new(io::ErrorKind::InvalidData, said).into());
            }
        }
        out.write_all(text.as_bytes())?;
    }
    Ok(file.worst)
}

/// A text as the content of an element.
fn html_text(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// A JSON as the content of a script: no tag can begin in it, and no line of JavaScript end.
fn script_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}
