//! What may be chosen of a mesh.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::Serialize;
use splat_mesh::clean::MinComponent;

use super::Corner;

/// How a surface is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MeshMethod {
    /// Fuse the depths that the training views show into signed distances
    Tsdf,
}

impl MeshMethod {
    /// The name that is typed, and that files have.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsdf => "tsdf",
        }
    }
}

/// A file format of meshes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MeshFormat {
    /// Binary PLY with normals and colours
    Ply,
    /// glTF in one file, for game engines and browsers
    Glb,
    /// Wavefront OBJ with colours behind the places
    Obj,
}

impl MeshFormat {
    /// The ending of its files.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Ply => "ply",
            Self::Glb => "glb",
            Self::Obj => "obj",
        }
    }
}

/// The smallest connected piece that stays, as it is typed: `1%` of the largest one's area, or a number
/// of triangles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeastComponent(pub MinComponent);

impl FromStr for LeastComponent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = text.strip_suffix('%').map(|percent| percent.trim().parse::<f64>());
        let read = match share {
            Some(Ok(percent)) if (0.0..=100.0).contains(&percent) => {
                Some(MinComponent::AreaShare(percent / 100.0))
            }
            Some(_) => None,
            None => text.trim().parse().ok().map(MinComponent::Faces),
        };
        read.map(Self).ok_or_else(|| {
            format!("{text:?} is neither a share such as 1% nor a number of triangles")
        })
    }
}

impl fmt::Display for LeastComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            MinComponent::AreaShare(share) => write!(f, "{}%", 100.0 * share),
            MinComponent::Faces(faces) => write!(f, "{faces}"),
            MinComponent::Largest(count) => write!(f, "the {count} largest"),
        }
    }
}

/// How a mesh is extracted.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Mesh")]
pub struct MeshOptions {
    /// How the surface is found
    #[arg(long, value_enum, default_value_t = Self::default().method)]
    pub method: MeshMethod,

    /// Corner of the box that is meshed, with the least coordinates [default: found from the cameras]
    #[arg(long, value_name = "X,Y,Z", alias = "bboxmin", allow_hyphen_values = true)]
    pub bbox_min: Option<Corner>,

    /// Corner with the greatest coordinates
    #[arg(long, value_name = "X,Y,Z", alias = "bboxmax", allow_hyphen_values = true)]
    pub bbox_max: Option<Corner>,

    /// Put the box that is found where the cameras look, not around the world's origin
    ///
    /// A box that is given by --bbox-min and --bbox-max is never moved.
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, default_value_t = true)]
    pub center_bbox: bool,

    /// Mesh everything, not only a box: voxels grow with the distance from the cameras
    #[arg(long, conflicts_with_all = ["bbox_min", "bbox_max"])]
    pub unbounded: bool,

    /// Voxels along the longest side
    #[arg(long, value_name = "N", alias = "mesh-res", default_value_t = Self::default().mesh_resolution)]
    pub mesh_resolution: u32,

    /// Side of a voxel, scene units, in place of --mesh-resolution
    #[arg(long, value_name = "LENGTH", alias = "voxel-size", conflicts_with = "unbounded")]
    pub voxel: Option<f64>,

    /// Smallest connected piece that stays: a share of the largest one's area, or triangles
    #[arg(long, value_name = "SHARE%|N", default_value_t = Self::default().min_component)]
    pub min_component: LeastComponent,

    /// Close holes of at most so many edges
    #[arg(long, value_name = "EDGES", default_value_t = Self::default().fill_holes)]
    pub fill_holes: usize,

    /// Most triangles of the mesh; 0 leaves all
    #[arg(long, value_name = "N", alias = "n-vertices-in-mesh", default_value_t = Self::default().decimation_target)]
    pub decimation_target: usize,

    /// Files to write
    #[arg(long, value_enum, value_name = "FORMAT,..", value_delimiter = ',', default_values_t = Self::default().formats)]
    pub formats: Vec<MeshFormat>,
}

impl Default for MeshOptions {
    fn default() -> Self {
        Self {
            method: MeshMethod::Tsdf,
            bbox_min: None,
            bbox_max: None,
            center_bbox: true,
            unbounded: false,
            mesh_resolution: 1024,
            voxel: None,
            min_component: LeastComponent(MinComponent::AreaShare(0.01)),
            fill_holes: 0,
            decimation_target: 1_000_000,
            formats: vec![MeshFormat::Ply, MeshFormat::Glb],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_least_component_is_a_share_or_a_number() {
        let read = |text: &str| text.parse::<LeastComponent>().map(|least| least.0);
        assert_eq!(read("1%"), Ok(MinComponent::AreaShare(0.01)));
        assert_eq!(read("100"), Ok(MinComponent::Faces(100)));
        for text in ["", "%", "-1%", "101%", "1.5", "many"] {
            assert!(read(text).is_err(), "{text}");
        }
        for text in ["1%", "250"] {
            assert_eq!(
                text.parse::<LeastComponent>().map(|least| least.to_string()),
                Ok(text.to_owned())
            );
        }
    }
}
