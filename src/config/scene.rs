//! Options of the scene: its files, its size and which of its views are trained.

use std::path::PathBuf;

use super::declare::{ADVANCED, Idle, options, when};
use super::splits::TestList;
use super::values::{count, holds, path, positive, share};
use super::{Color, Offset};

/// Largest width of a JPEG image, px.
const MAX_WIDTH: i32 = 65_535;

options! {
    /// Options of the scene and its views.
    #[command(next_help_heading = "Scene")]
    pub struct SceneOptions in "scene" of SceneOptions {
        /// Scene folder (COLMAP or transforms.json)
        ///
        /// COLMAP: `images/` and `sparse/0`. Blender and nerfstudio: `transforms*.json`. The default
        /// is the folder in which the program is run, if it is one.
        #[arg(short, alias = "scene-path", value_name = "SCENE")]
        source_path: Option<PathBuf>, is path;

        /// Folder of the photographs, relative to the scene
        #[arg(short, value_name = "DIR")]
        images: String = "images".to_owned();

        /// Divide by 1, 2, 4, 8, or width in px
        ///
        /// 1, 2, 4 or 8 divides the size of the photographs. -1 caps the width at 1600 px. Any other
        /// number is the width in px.
        #[arg(
            short, value_name = "R", allow_negative_numbers = true, value_parser = parse_resolution
        )]
        resolution: i32 = -1,
            is |r| holds(*r == -1 || (1..=MAX_WIDTH).contains(r), r, "-1, or 1 to 65535");

        /// Scale the photographs further, 0.1 to 1
        ///
        /// The factor multiplies the size that --resolution leaves.
        #[arg(value_name = "X")]
        resolution_scale: f64 = 1.0, is |scale| {
            holds((0.1..=1.0).contains(scale), scale, "0.1 to 1")
        };

        /// Folder of inverse depth maps
        ///
        /// The folder is relative to the scene. The maps have the format of 3DGS: 16-bit PNGs with the names of the
        /// photographs, and scales in `sparse/0/depth_params.json`.
        #[arg(short, value_name = "DIR")]
        depths: Option<String>, is path;

        /// White background instead of black
        #[arg(short)]
        white_background: bool = false;

        /// Background colour: red, green and blue from 0 to 1
        #[arg(value_name = "R,G,B")]
        background: Option<Color>;

        /// Near plane, as a share of the viewing distance
        ///
        /// The viewing distance is the median distance of the cameras to the scene's middle, or the cameras' extent if that
        /// is less. A Gaussian right before one camera costs its view nothing and covers the views of its neighbours. The
        /// depth is at least a hundredth of the cameras' extent, and else at most half of that of the nearest hundredth of
        /// the scene's points. Evaluations and every second training image draw nothing nearer. Unless SHARE is 0, these
        /// training images also leave out Gaussians whose centres lie more than the image's width or height outside the
        /// image. The projection of such Gaussians is inaccurate, and large ones would cover held-out views as haze. The
        /// other training images have a near plane at a hundredth of the cameras' extent. They and evaluations draw all
        /// Gaussians beside the image. Surfels and triangles beside an image are always drawn. Other commands that draw
        /// take the model's value by default.
        #[arg(value_name = "SHARE", help_heading = ADVANCED)]
        near_share: f64 = 0.0, is share;

        /// Hold out every 8th view for evaluation
        ///
        /// --test-every sets another interval.
        eval: bool = false;

        /// With --eval, hold out every Nth view
        ///
        /// View i in the order of names is held out if i % N == 0.
        #[arg(alias = "llffhold", value_name = "N")]
        test_every: u32 = 8,
            idle when(SceneOptions::chooses_views, "with --test-views or --test-list");

        /// Hold out N views, evenly spread
        ///
        /// The views are chosen in the order of names, from the first on. Implies --eval.
        #[arg(value_name = "N")]
        test_views: Option<u32>, is count,
            idle when(|scene| scene.test_list.is_some(), "with --test-list");

        /// Hold out the views that a file lists
        ///
        /// One name a line, with or without its extension. The run stores the names. Implies --eval.
        #[arg(value_name = "FILE")]
        test_list: Option<TestList>, is |list| match list {
            TestList::File(file) => path(file),
            TestList::Names(names) => holds(!names.is_empty(), "[]", "a name at least"),
        };

        /// Origin of training and of the files, in scene coordinates
        ///
        /// Without it, scenes that stand far from the origin, for instance in UTM or ECEF coordinates, are
        /// trained around a rounded point between their cameras, and others around 0,0,0. Files of 32-bit
        /// numbers hold coordinates minus this offset and name it. A trained model keeps its offset.
        #[arg(value_name = "X,Y,Z", allow_hyphen_values = true)]
        offset: Option<Offset>;

        /// Length of a unit of training, in scene units
        ///
        /// Without it, a power of two for scenes that are very small or very large, and 1 for others. Files are in
        /// scene units.
        #[arg(value_name = "LENGTH")]
        unit: Option<f64>, is positive;
    }
}

/// Parses the number of `-r`. Other text may be meant as the terms of SuGaR's `-r`.
fn parse_resolution(text: &str) -> Result<i32, &'static str> {
    text.parse().ok().ok_or(
        "write 1, 2, 4 or 8, a width in px, or -1; `splat train` also takes the terms density, sdf, \
         dn_consistency and median_normal",
    )
}

impl SceneOptions {
    /// True if views are held out by another rule than every nth view.
    pub(super) fn chooses_views(&self) -> bool {
        self.test_views.is_some() || self.test_list.is_some()
    }

    /// Stores the coordinates of the run unless they are those of the scene.
    pub fn keep_frame(&mut self, offset: [f64; 3], unit: f64) {
        self.offset = (offset != [0.0; 3]).then_some(Offset(offset));
        self.unit = (unit != 1.0).then_some(unit);
    }

    /// Uses the stored coordinates instead of those that the scene suggests now.
    pub fn take_kept_frame(&mut self) {
        self.offset.get_or_insert_default();
        self.unit.get_or_insert(1.0);
    }

    /// Returns the background: the given colour, or else white or black.
    pub fn background_color(&self) -> Color {
        let plain = if self.white_background { Color::WHITE } else { Color::BLACK };
        self.background.unwrap_or(plain)
    }
}
