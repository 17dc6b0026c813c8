//! Options beneath all that are given: of the demonstration, and of several ranks.

use super::config_text::ConfigText;
use crate::config::{Config, PrimitiveName, StrategyName};

/// What differs from the defaults in the demonstration. Beneath the usual preset, only what that does not say counts,
/// the length and the weight of opacities. With more Gaussians it takes over two minutes on two cores.
const DEMO: &str = "\
[scene]
eval = true

[optimize]
iterations = 1500
sh_degree_interval = 400
position_lr_max_steps = 1500
opacity_reg = 0

[densify]
densify_from_iter = 200
densify_until_iter = 1000
max_points = 15000

[sugar]
sugar_iterations = 400
n_samples_for_sdf = 10000
";

/// The same of triangles, whose schedules follow the length, and whose iterations take longer.
const DEMO_OF_TRIANGLES: &str = "\
[scene]
eval = true

[optimize]
iterations = 600
";

/// Folder of the demonstration's scene inside the model folder.
pub(super) const DEMO_SCENE: &str = "scene";

/// Most views of a step.
const MOST_VIEWS: u32 = 8;

/// The lowest layer of options, where there is one: a step of several ranks takes a view of each. `demo` is what
/// is given for a demonstration.
pub(super) fn base_text(demo: Option<&Config>, ranks: u32) -> Option<ConfigText> {
    let views = format!("[optimize]\nbatch_views = {}\n", ranks.min(MOST_VIEWS));
    let (origin, text) = match demo {
        Some(config) => {
            let is_triangles = config.optimize.primitive == PrimitiveName::Triangles;
            let mut text = if is_triangles { DEMO_OF_TRIANGLES } else { DEMO }.to_owned();
            if config.densify.strategy != StrategyName::Budget {
                // The others need theirs.
                text = text.replace("opacity_reg = 0\n", "");
            }
            if config.optimize.primitive == PrimitiveName::Surfels {
                // They take longer.
                text = text.replace("max_points = 15000\n", "max_points = 11000\n");
            }
            ("the demonstration", text.replace("[optimize]\n", &views))
        }
        None if ranks > 1 => ("--ranks", views),
        None => return None,
    };
    Some(ConfigText { origin: origin.to_owned(), text })
}
