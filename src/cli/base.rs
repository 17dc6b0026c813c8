//! Options beneath all that are given: of the demonstration, and of several ranks.

use super::folder::ConfigText;

/// What differs from the defaults in the demonstration. Beneath the usual preset, only what that does not say counts,
/// and the length.
const DEMO: &str = "\
[scene]
eval = true

[optimize]
iterations = 1500
sh_degree_interval = 400
position_lr_max_steps = 1500

[densify]
densify_from_iter = 200
densify_until_iter = 1000

[sugar]
sugar_iterations = 400
n_samples_for_sdf = 10000
";

/// Folder of the demonstration's scene inside the model folder.
pub(super) const DEMO_SCENE: &str = "scene";

/// Most views of a step.
const MOST_VIEWS: u32 = 8;

/// The lowest layer of options, where there is one: a step of several ranks takes a view of each.
pub(super) fn base_text(is_demo: bool, ranks: u32) -> Option<ConfigText> {
    let views = format!("[optimize]\nbatch_views = {}\n", ranks.min(MOST_VIEWS));
    let (origin, text) = match (is_demo, ranks > 1) {
        (true, _) => ("the demonstration", DEMO.replace("[optimize]\n", &views)),
        (false, true) => ("--ranks", views),
        (false, false) => return None,
    };
    Some(ConfigText { origin: origin.to_owned(), text })
}
