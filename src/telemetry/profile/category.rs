//! What memory is for, in a few categories and in words.

use serde::Serialize;

use crate::layout::{self, Purpose};

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
            _ => Some(match layout::named(label).map(|slot| slot.purpose) {
                Some(Purpose::Parameters) => Self::Parameters,
                Some(Purpose::Moments | Purpose::Statistics) => Self::Optimizer,
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

/// What a buffer is for, in words.
pub(super) fn words(label: &str, kind: &str) -> &'static str {
    layout::named(label).map_or_else(
        || match kind {
            "photographs" => "photographs",
            "region" => "lives as long as the model",
            "pinned" => "page-locked memory of the host",
            _ => "an iteration",
        },
        |slot| slot.words,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_described_by_its_slot() {
        assert_eq!(words("sh", "region"), "colours");
        assert_eq!(words("something new", "pinned"), "page-locked memory of the host");
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
