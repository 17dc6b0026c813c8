//! Why a layout is another one than was asked for.

use std::fmt;

use super::check::AtlasCheck;

/// Why there are boxes in place of charts.
#[derive(Clone, Debug, PartialEq)]
pub enum Instead {
    /// The unwrapper fails; what it says.
    Refused(String),
    /// The unwrapper needs so many pictures.
    Pages(u32),
    /// What it made claims texels twice or turns faces over.
    Faulty(AtlasCheck),
    /// The surface is crumpled: this is the median angle between neighbours, in degrees.
    Crumpled(f64),
    /// So many faces would take too long.
    TooMany(usize),
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "the surface cannot be unwrapped: {error}"),
            Self::Pages(pages) => write!(f, "charts would need {pages} textures"),
            Self::Faulty(AtlasCheck { claimed_twice, flipped, outside, .. }) => {
                write!(
                    f,
                    "charts overlap at {claimed_twice} texels, {flipped} faces are turned over, \
                     {outside} lie beside the texture"
                )
            }
            Self::Crumpled(degrees) => {
                write!(
                    f,
                    "the surface is crumpled: {degrees:.0} degrees between neighbouring faces"
                )
            }
            Self::TooMany(faces) => write!(f, "charts of {faces} faces would take over a minute"),
        }
    }
}
