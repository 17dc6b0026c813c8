//! What the buffers of the device are for.

use serde::Serialize;

/// What memory is for, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// What is trained.
    Parameters,
    /// Moments of the gradients, and what density control counts.
    Optimizer,
    /// Photographs.
    Photographs,
    /// What an iteration needs while it lasts.
    Scratch,
    /// The driver's own, and code.
    Context,
    /// Anything else, the rest of the last granule of each buffer included.
    Other,
}

impl Category {
    /// All of them, in the order of the report.
    pub(super) const ALL: [Self; 6] = [
        Self::Parameters,
        Self::Optimizer,
        Self::Photographs,
        Self::Scratch,
        Self::Context,
        Self::Other,
    ];

    /// Of memory that is taken from the device: the buffers of an iteration lie in the arena, which
    /// is what takes it.
    pub(super) fn of(label: &str, kind: &str) -> Option<Self> {
        match kind {
            "context" => Some(Self::Context),
            "photographs" => Some(Self::Photographs),
            "arena" => Some(Self::Scratch),
            "block" | "pinned" => None,
            _ => Some(match label {
                "geometry" | "sh" | "3d filter" | "colour tables" => Self::Parameters,
                _ if STATE.iter().any(|part| label.contains(part)) => Self::Optimizer,
                _ => Self::Other,
            }),
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Optimizer => "optimizer",
            Self::Photographs => "photographs",
            Self::Scratch => "scratch",
            Self::Context => "context and code",
            Self::Other => "other",
        }
    }
}

/// Parts of labels of the state that training adds to the parameters.
const STATE: [&str; 3] = ["moments", "steps taken", "density statistics"];

/// Labels, and what lies there.
const PURPOSES: &[(&str, &str)] = &[
    ("context and code", "what the driver needs, and the kernels"),
    ("status", "what kernels report in"),
    ("geometry", "centres, scales, rotations and opacities"),
    ("geometry, first moments", "means of their gradients (Adam)"),
    ("geometry, second moments", "means of the squares of their gradients (Adam)"),
    ("sh", "colours"),
    ("sh, first moments", "means of their gradients (Adam)"),
    ("sh, second moments", "means of the squares of their gradients (Adam)"),
    ("sh, steps taken", "which step the colours of each 32 Gaussians are at"),
    ("density statistics, gradients", "what density control decides by"),
    ("density statistics, views", "what density control decides by"),
    ("density statistics, absolute gradients", "what density control decides by"),
    ("3d filter", "how far each Gaussian is smoothed"),
    ("photographs", "photographs that stay on the GPU"),
    ("photographs in turn", "photographs that are sent anew for each iteration"),
    ("photographs on their way", "photographs on their way to the GPU"),
    ("counts", "numbers that kernels report"),
    ("reports", "numbers that kernels report"),
    ("staging of the model", "the model on its way to and from files"),
    ("rows to pack", "the model on its way to and from files"),
    ("state on its way", "the model while it goes over to fewer bits"),
    ("scratch", "what the buffers of an iteration lie in"),
    ("splats", "Gaussians in view, projected"),
    ("gradients of splats", "gradients of Gaussians in view"),
    ("splat of each Gaussian", "which Gaussians are in view"),
    ("slots front to back", "the order of Gaussians in view"),
    ("tiles of splats", "which tiles each splat reaches"),
    ("instances of splats", "how many tiles each splat reaches"),
    ("first instances", "where the tiles of each splat begin"),
    ("instances of rows", "how many splats each row of tiles blends"),
    ("instances", "which splats each tile blends"),
    ("instances while sorting", "the same while it is sorted"),
    ("keys of instances", "tiles to sort by"),
    ("sort", "sorting"),
    ("tiles", "where the splats of each tile begin"),
    ("parts of tiles", "how far each tile was blended"),
    ("states of pixels", "where the backward pass begins"),
    ("hits", "which splats the backward pass looks at"),
    ("chunks", "pieces of work of the backward pass"),
    ("image", "the drawn view"),
    ("gradient of the image", "gradient of the drawn view"),
    ("inverse depths", "inverse depths of the drawn view"),
    ("gradient of inverse depths", "gradient of the inverse depths"),
    ("features of splats", "depths and normals of Gaussians in view"),
    ("gradients of features", "gradients of depths and normals of Gaussians in view"),
    ("surface maps", "depths and normals of the drawn view"),
    ("gradient of surface maps", "gradients of the depths and normals"),
    ("pixels", "Gaussians blended in each pixel"),
    ("surface gradients", "gradients of what surfaces should be like"),
    ("shown depths", "depths that samples of surfaces are compared with"),
    ("surface rows", "which Gaussians surfaces are sampled at"),
    ("surface counts", "which Gaussians surfaces are sampled at"),
    ("lpips weights", "a network that compares views with photographs"),
    ("lpips features", "what it sees of them"),
    ("lpips sums", "what it sees of them"),
    ("colour tables", "what the photographs' cameras did to colours"),
    ("compensated image", "the drawn view as its camera changed the colours"),
    ("sums of colours", "gradients of a colour table, in parts"),
    ("map of colours", "gradients of a colour table"),
    ("density counts", "a round of density control"),
    ("density flags", "a round of density control"),
    ("density ranks", "a round of density control"),
    ("density rows", "a round of density control"),
    ("density keys", "a round of density control"),
    ("density digits", "a round of density control"),
    ("density weights", "a round of density control"),
    ("density copies", "a round of density control"),
    ("density sources", "a round of density control"),
    ("candidates", "a round of density control"),
    ("morton keys", "putting the Gaussians in order"),
    ("reordered rows", "putting the Gaussians in order"),
    ("moved columns", "putting the Gaussians in order"),
    ("views to smooth for", "how far each Gaussian is smoothed"),
    ("farthest depth", "how far each Gaussian is smoothed"),
    ("neighbours", "which Gaussians are nearest to each"),
    ("neighbour rows", "finding the nearest Gaussians"),
    ("neighbour keys", "finding the nearest Gaussians"),
    ("neighbour extents", "finding the nearest Gaussians"),
    ("neighbour centres", "finding the nearest Gaussians"),
    ("neighbour boxes", "finding the nearest Gaussians"),
    ("sampled rows", "samples for the histograms"),
    ("sample", "samples for the histograms"),
];

/// What a buffer is for, in words.
pub(super) fn purpose(label: &str, kind: &str) -> &'static str {
    let known = PURPOSES.iter().find(|(known, _)| *known == label);
    known.map_or_else(
        || match kind {
            "photographs" => "photographs",
            "region" => "lives as long as the model",
            "pinned" => "page-locked memory of the host",
            _ => "an iteration",
        },
        |(_, purpose)| purpose,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_is_named_once() {
        for (at, (label, _)) in PURPOSES.iter().enumerate() {
            assert!(PURPOSES[at + 1..].iter().all(|(other, _)| other != label), "{label}");
        }
        assert_eq!(purpose("sh", "region"), "colours");
        assert_eq!(purpose("something new", "pinned"), "page-locked memory of the host");
    }

    #[test]
    fn what_takes_memory_has_a_category() {
        for (label, kind, category) in [
            ("geometry", "region", Some(Category::Parameters)),
            ("sh, second moments", "region", Some(Category::Optimizer)),
            ("sh, steps taken", "region", Some(Category::Optimizer)),
            ("density statistics, views", "region", Some(Category::Optimizer)),
            ("photographs in turn", "photographs", Some(Category::Photographs)),
            ("scratch", "arena", Some(Category::Scratch)),
            ("splats", "block", None),
            ("staging of the model", "pinned", None),
            ("context and code", "context", Some(Category::Context)),
            ("status", "region", Some(Category::Other)),
        ] {
            assert_eq!(Category::of(label, kind), category, "{label}");
        }
    }
}
