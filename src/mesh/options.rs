//! Options of a mesh, and axis-aligned boxes in world space.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::Serialize;
use splat_mesh::clean::MinComponent;
use splat_mesh::narrow::floor_u32;
use splat_mesh::poisson::Trim;

use super::texture::TextureSource;
use super::{ExtractionError, TextureOptions};
use crate::dataset::Frame;
use crate::math::linalg::Vec3;

/// Maximum number of voxels along a box in a plan. The fusion refuses more.
const MAX_VOXELS: f64 = 2_097_152.0;

/// Method of surface extraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MeshMethod {
    /// Fuse the depths that the training views show into signed distances
    Tsdf,
    /// Follow rays to where the density of the Gaussians passes a level, and fit a closed surface
    Poisson,
    /// Cut a closed surface from tetrahedra over the Gaussians, between places that light passes to
    Tetrahedra,
}

impl MeshMethod {
    /// Returns the name of the option's value and of output files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsdf => "tsdf",
            Self::Poisson => "poisson",
            Self::Tetrahedra => "tetrahedra",
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
    /// Returns the extension of the format's files.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Ply => "ply",
            Self::Glb => "glb",
            Self::Obj => "obj",
        }
    }
}

/// Smallest component that is kept, as text: `1%` of the triangles of the largest component, or a number of
/// triangles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeastComponent(pub MinComponent);

impl FromStr for LeastComponent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = text.strip_suffix('%').map(|percent| percent.trim().parse::<f64>());
        let read = match share {
            Some(Ok(percent)) if (0.0..=100.0).contains(&percent) => {
                Some(MinComponent::FaceShare(percent / 100.0))
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
            MinComponent::FaceShare(share) => write!(f, "{}%", 100.0 * share),
            MinComponent::Faces(faces) => write!(f, "{faces}"),
            MinComponent::Largest(count) => write!(f, "the {count} largest"),
        }
    }
}

/// Options of a mesh extraction.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Mesh")]
pub struct MeshOptions {
    /// Method that finds the surface
    #[arg(long, value_enum, default_value_t = Self::default().method)]
    pub method: MeshMethod,

    /// Corner of the box that is meshed, with the least coordinates
    ///
    /// Without a box the command finds one from the cameras and prints it.
    #[arg(long, value_name = "X,Y,Z", alias = "bboxmin", allow_hyphen_values = true)]
    pub bbox_min: Option<Corner>,

    /// Corner with the greatest coordinates
    #[arg(long, value_name = "X,Y,Z", alias = "bboxmax", allow_hyphen_values = true)]
    pub bbox_max: Option<Corner>,

    /// Put the box that is found where the cameras look
    ///
    /// Without it the box stands around the world's origin. A box that is given by --bbox-min and
    /// --bbox-max is never moved.
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, default_value_t = true)]
    pub center_bbox: bool,

    /// Smallest connected piece that stays
    ///
    /// A share of the triangles of the largest piece, such as 1%, or a number of triangles; both before decimation.
    #[arg(long, value_name = "SHARE%|N", default_value_t = Self::default().min_component)]
    pub min_component: LeastComponent,

    /// Keep the N largest pieces, not those of --min-component
    #[arg(long, value_name = "N", conflicts_with = "min_component", value_parser = clap::value_parser!(u32).range(1..))]
    pub num_cluster: Option<u32>,

    /// Close holes of at most N edges
    #[arg(long, value_name = "EDGES", default_value_t = Self::default().fill_holes)]
    pub fill_holes: usize,

    /// Most triangles of the mesh; 0 leaves all
    #[arg(long, value_name = "N", alias = "n-vertices-in-mesh", default_value_t = Self::default().decimation_target)]
    pub decimation_target: usize,

    /// Mesh Gaussians whose normals disagree, too
    #[arg(long)]
    pub force: bool,

    /// Files to write
    #[arg(long, value_enum, value_name = "FORMAT,..", value_delimiter = ',', default_values_t = Self::default().formats)]
    pub formats: Vec<MeshFormat>,

    /// Options of the method `tsdf`.
    #[command(flatten)]
    pub tsdf: TsdfOptions,

    /// Options of the method `poisson`.
    #[command(flatten)]
    pub poisson: PoissonOptions,

    /// Options of the method `tetrahedra`.
    #[command(flatten)]
    pub tetrahedra: TetrahedraOptions,

    /// Options of the border's post-processing.
    #[command(flatten)]
    pub postprocess: PostprocessOptions,

    /// Options of the texture.
    #[command(flatten)]
    pub texture: TextureOptions,
}

/// Options of the method `tetrahedra`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Mesh by tetrahedra (--method tetrahedra)")]
pub struct TetrahedraOptions {
    /// Drop triangles on long edges, which close what no view has seen
    #[arg(long)]
    pub open: bool,

    /// Longest edge that keeps a triangle, scene units
    ///
    /// By default 20 times the median.
    #[arg(long, value_name = "LENGTH", requires = "open")]
    pub max_edge: Option<f64>,
}

/// Options of the method `tsdf`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Mesh by depths (--method tsdf)")]
pub struct TsdfOptions {
    /// Mesh everything, not only a box
    ///
    /// Voxels grow with the distance from the cameras.
    #[arg(long, conflicts_with_all = ["bbox_min", "bbox_max"])]
    pub unbounded: bool,

    /// Voxels along the longest side [default: 1024; on the CPU 512]
    #[arg(long, value_name = "N", alias = "mesh-res")]
    pub mesh_resolution: Option<u32>,

    /// Side of a voxel, scene units, in place of --mesh-resolution
    #[arg(long, value_name = "LENGTH", alias = "voxel-size", conflicts_with = "unbounded")]
    pub voxel: Option<f64>,
}

/// Options of the method `poisson`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Mesh by points (--method poisson)")]
pub struct PoissonOptions {
    /// Density at which the surface lies, above 0 and below 1
    #[arg(long, value_name = "DENSITY", default_value_t = Self::default().surface_level)]
    pub surface_level: f64,

    /// Points to find, over all training views
    #[arg(long, value_name = "N", default_value_t = Self::default().surface_points)]
    pub surface_points: u64,

    /// Also mesh what lies around the box, up to four times as far out
    #[arg(long)]
    pub mesh_background: bool,

    /// Rule for outliers among the points
    #[arg(long, value_enum, default_value_t = Self::default().outliers)]
    pub outliers: Outliers,

    /// Finest level of the equations: 2^N cells along the box
    ///
    /// A coarser one is taken where there are too few points for it.
    #[arg(long, value_name = "N", default_value_t = Self::default().poisson_depth)]
    pub poisson_depth: u32,

    /// Share of the vertices to cut off, those with the fewest points around
    ///
    /// Before that, triangles far from all points go where more training views look through them than
    /// show a surface. With 0 nothing is cut off: the surface stays closed.
    #[arg(long, value_name = "SHARE", default_value_t = Self::default().density_trim)]
    pub density_trim: f64,

    /// Cut off vertices with fewer points a cell around
    ///
    /// It takes the place of --density-trim; with 0 the surface stays closed, too.
    #[arg(long, value_name = "POINTS", conflicts_with = "density_trim")]
    pub density_min: Option<f64>,
}

/// Points that are left out before a surface is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Outliers {
    /// Points in nearly empty cells with nearly empty cells around
    Cells,
    /// Points far from their 20 nearest, by 20 standard deviations, as the reference has it
    Knn,
    /// None
    Keep,
}

/// Rule for Gaussians whose normals disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Error.
    Required,
    /// No check.
    NotRequired,
}

impl MeshOptions {
    pub(super) fn least_component(&self) -> LeastComponent {
        match self.num_cluster {
            Some(count) => LeastComponent(MinComponent::Largest(count as usize)),
            None => self.min_component,
        }
    }

    /// Returns the options with the resolution that `--voxel` implies for this box, for a memory plan.
    #[must_use]
    pub fn fitted_to(&self, world_box: &WorldBox) -> Self {
        let mut fitted = self.clone();
        if let Some(voxel) = self.tsdf.voxel {
            let along = (world_box.longest_side() / voxel).ceil().min(MAX_VOXELS);
            fitted.tsdf.mesh_resolution = Some(floor_u32(along));
        }
        fitted
    }

    /// Returns the rule for Gaussians whose normals disagree.
    pub fn consistency(&self) -> Consistency {
        if self.force { Consistency::NotRequired } else { Consistency::Required }
    }

    /// Returns an error if a value is out of range.
    pub fn check(&self) -> Result<(), ExtractionError> {
        self.texture.check()?;
        let has_texture = self.texture.texture != TextureSource::None;
        if has_texture && self.formats.iter().all(|&format| format == MeshFormat::Ply) {
            return Err(ExtractionError::NoTexturedFormat);
        }
        let PoissonOptions { surface_level, density_trim, density_min, .. } = self.poisson;
        let density_min = density_min.unwrap_or(0.0);
        let max_edge = self.tetrahedra.max_edge.unwrap_or(f64::INFINITY);
        let threshold = self.postprocess.postprocess_density_threshold;
        let resolution = f64::from(self.tsdf.resolution());
        let rules = [
            (
                "surface-level",
                surface_level,
                0.0 < surface_level && surface_level < 1.0,
                "above 0 and below 1",
            ),
            ("density-trim", density_trim, (0.0..1.0).contains(&density_trim), "from 0 to below 1"),
            ("density-min", density_min, density_min >= 0.0, "0 and more"),
            ("max-edge", max_edge, max_edge > 0.0, "above 0"),
            ("postprocess-density-threshold", threshold, threshold >= 0.0, "0 and more"),
            ("mesh-resolution", resolution, resolution >= 8.0, "8 and more"),
        ];
        let broken = rules.into_iter().find(|&(_, _, holds, _)| !holds);
        broken.map_or(Ok(()), |(flag, value, _, allowed)| {
            Err(ExtractionError::OutOfRange { flag, value, allowed })
        })
    }
}

impl TsdfOptions {
    /// Default of the voxels along the longest side.
    const RESOLUTION: u32 = 1024;
    const RESOLUTION_ON_PROCESSOR: u32 = 512;

    /// Returns the voxels along the longest side.
    pub fn resolution(&self) -> u32 {
        self.mesh_resolution.unwrap_or(Self::RESOLUTION)
    }

    /// Sets the processor's default resolution unless one is given.
    pub fn fit_processor(&mut self) {
        self.mesh_resolution.get_or_insert(Self::RESOLUTION_ON_PROCESSOR);
    }
}

impl PoissonOptions {
    /// Returns the rule for trimming a closed surface.
    pub(super) fn trim(&self) -> Trim {
        match self.density_min {
            Some(least) if least > 0.0 => Trim::PointsACell(least),
            None if self.density_trim > 0.0 => Trim::Quantile(self.density_trim),
            Some(_) | None => Trim::Nothing,
        }
    }
}

impl Default for PoissonOptions {
    fn default() -> Self {
        Self {
            surface_level: 0.3,
            surface_points: 2_000_000,
            mesh_background: false,
            outliers: Outliers::Cells,
            poisson_depth: 10,
            density_trim: 0.1,
            density_min: None,
        }
    }
}

impl Default for MeshOptions {
    fn default() -> Self {
        Self {
            method: MeshMethod::Tsdf,
            bbox_min: None,
            bbox_max: None,
            center_bbox: true,
            min_component: LeastComponent(MinComponent::FaceShare(0.001)),
            num_cluster: None,
            fill_holes: 0,
            decimation_target: 1_000_000,
            force: false,
            formats: vec![MeshFormat::Ply, MeshFormat::Glb],
            tsdf: TsdfOptions::default(),
            poisson: PoissonOptions::default(),
            tetrahedra: TetrahedraOptions::default(),
            postprocess: PostprocessOptions::default(),
            texture: TextureOptions::default(),
        }
    }
}

/// Options of the border's post-processing.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Mesh")]
pub struct PostprocessOptions {
    /// Take off triangles at the border where there are few Gaussians
    #[arg(long)]
    pub postprocess_mesh: bool,

    /// Number of triangle rings that --postprocess-mesh checks
    #[arg(long, value_name = "N", requires = "postprocess_mesh", default_value_t = Self::default().postprocess_iterations)]
    pub postprocess_iterations: u32,

    /// Density in a triangle's middle above which it stays, 0 and more
    #[arg(long, value_name = "DENSITY", requires = "postprocess_mesh", default_value_t = Self::default().postprocess_density_threshold)]
    pub postprocess_density_threshold: f64,
}

impl Default for PostprocessOptions {
    fn default() -> Self {
        Self {
            postprocess_mesh: false,
            postprocess_iterations: 5,
            postprocess_density_threshold: 0.1,
        }
    }
}

// Axis-aligned boxes in world space.

/// Corner of a box, world space, with the text form `X,Y,Z` or `(X, Y, Z)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corner(pub Vec3<f64>);

/// Error of a text that is no corner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place. Give three finite numbers: X,Y,Z")]
pub struct ParseCornerError(String);

impl FromStr for Corner {
    type Err = ParseCornerError;

    fn from_str(text: &str) -> Result<Self, ParseCornerError> {
        let fail = || ParseCornerError(text.to_owned());
        let bare = text.trim();
        let bare = bare.strip_prefix('(').and_then(|b| b.strip_suffix(')')).unwrap_or(bare);
        let numbers: Vec<f64> = bare
            .split(',')
            .map(|number| number.trim().parse().ok().filter(|n: &f64| n.is_finite()))
            .collect::<Option<_>>()
            .ok_or_else(fail)?;
        numbers.try_into().map(Self).map_err(|_other_count| fail())
    }
}

impl fmt::Display for Corner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        let digits = f.precision().unwrap_or(4);
        write!(f, "{x:.digits$},{y:.digits$},{z:.digits$}")
    }
}

/// Axis-aligned box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorldBox {
    /// Least coordinates.
    pub low: Vec3<f64>,
    /// Greatest coordinates.
    pub high: Vec3<f64>,
}

impl WorldBox {
    /// Returns the box in other coordinates.
    #[must_use]
    pub fn converted(&self, from: &Frame, to: &Frame) -> Self {
        Self { low: from.to(to, self.low), high: from.to(to, self.high) }
    }

    /// Returns the cube with this centre and half side.
    pub fn cube(centre: Vec3<f64>, half_side: f64) -> Self {
        Self { low: centre.map(|x| x - half_side), high: centre.map(|x| x + half_side) }
    }

    /// Returns the box scaled about its centre.
    pub fn scaled(&self, factor: f64) -> Self {
        let centre = |axis: usize| 0.5 * (self.low[axis] + self.high[axis]);
        let half = |axis: usize| 0.5 * factor * (self.high[axis] - self.low[axis]);
        Self {
            low: std::array::from_fn(|axis| centre(axis) - half(axis)),
            high: std::array::from_fn(|axis| centre(axis) + half(axis)),
        }
    }

    /// Returns true if a point is strictly inside.
    pub fn holds(&self, place: Vec3<f64>) -> bool {
        (0..3).all(|axis| self.low[axis] < place[axis] && place[axis] < self.high[axis])
    }

    /// Returns the longest side.
    pub fn longest_side(&self) -> f64 {
        (0..3).map(|axis| self.high[axis] - self.low[axis]).fold(0.0, f64::max)
    }
}

impl fmt::Display for WorldBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (Corner(self.low), Corner(self.high));
        // At least four digits of the longest side.
        let side = self.longest_side();
        let mut digits = 4;
        while digits < 30 && side * 10_f64.powi(digits - 4) < 1.0 {
            digits += 1;
        }
        let digits = digits.unsigned_abs() as usize;
        write!(f, "--bbox-min {low:.digits$} --bbox-max {high:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_least_component_is_a_share_or_a_number() {
        let read = |text: &str| text.parse::<LeastComponent>().map(|least| least.0);
        assert_eq!(read("1%"), Ok(MinComponent::FaceShare(0.01)));
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

    #[test]
    fn corners_are_read_with_and_without_parentheses() {
        for text in ["1,-2,3.5", "(1, -2, 3.5)", " 1 , -2,3.5 "] {
            assert_eq!(text.parse(), Ok(Corner([1.0, -2.0, 3.5])), "{text}");
        }
        for text in ["", "1,2", "1,2,3,4", "1,2,x", "1,2,inf", "(1,2,3"] {
            assert!(text.parse::<Corner>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_box_is_shown_as_options() {
        let world_box = WorldBox::cube([0.5, 0.0, -1.0], 2.0);
        assert_eq!(
            world_box.to_string(),
            "--bbox-min -1.5000,-2.0000,-3.0000 --bbox-max 2.5000,2.0000,1.0000"
        );
        let tiny = WorldBox::cube([0.0; 3], 0.000_2);
        assert!(tiny.to_string().starts_with("--bbox-min -0.00020000,"), "{tiny}");
        assert!(world_box.holds([0.0; 3]) && !world_box.holds([2.5, 0.0, 0.0]));
        assert_eq!(world_box.longest_side(), 4.0);
    }
}
