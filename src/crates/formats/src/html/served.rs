//! The page that a server gives to browsers, which asks the server for all it shows.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;

use super::write::BUNDLE;

/// Page of `src/viewer/rebuild`, with a slot for the program.
const PAGE: &str = include_str!("../../../../viewer/dist/served.html");

/// Where the page names its policy.
const POLICY: [&str; 2] = ["http-equiv=\"Content-Security-Policy\" content=\"", "\""];

/// A page with its program and style inside, and no data.
///
/// `src/viewer/README.md` says what it asks of the server, by paths below `/api/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPage {
    /// The page.
    pub html: String,
    /// The value of the header `Content-Security-Policy`: nothing runs but the program, nothing is asked but
    /// the server, and no other page holds this one in a frame.
    pub policy: String,
}

/// The page. It is the same each time.
pub fn served_page() -> ServedPage {
    let bundle = Base64Display::new(BUNDLE, &STANDARD).to_string();
    let html = PAGE.replace("{{bundle}}", &bundle);
    let [before, behind] = POLICY;
    let own = PAGE.split_once(before).and_then(|(_, rest)| rest.split_once(behind));
    let own = own.map_or("default-src 'none'", |(policy, _)| policy);
    ServedPage { html, policy: format!("{own}; frame-ancestors 'none'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_served_page_is_whole_and_its_policy_names_the_server_alone() {
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
