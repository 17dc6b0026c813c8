//! `refine.json`: settings and results of a refinement.

use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use clap::builder::TypedValueParser;
use serde::{Deserialize, Serialize};
use splat_mesh::Mesh;

use crate::cli::exit::{DataError, UsageError};
use crate::cli::folder;
use crate::cli::parser::named_values;
use crate::cli::scene::{ModelArgs, ReadModel};
use crate::config::SceneOptions;
use crate::files::OutputError;
use crate::math::bound::{PerTriangle, crease};
use crate::mesh::{MeshFormat, TextureOptions};
use crate::model::{BoundColumns, BoundTopology};
use crate::telemetry::{ProgressStyle, fnv_1a};
use crate::train::event::Evaluation;

const RECORD: &str = "refine.json";

/// Name of the refined mesh without its extension.
pub(super) const MESH_NAME: &str = "mesh";

/// Inputs that determine the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefineSettings {
    mesh: PathBuf,
    /// Hash of the vertices, faces and colours after decimation.
    mesh_hash: String,
    gaussians_per_triangle: usize,
    iterations: u32,
    normal_consistency: f64,
    vertices: Option<usize>,
    seed: u64,
    /// Hash of the scene options without the scene's path, and of the names of the training views.
    scene_hash: String,
}

impl RefineSettings {
    /// Collects the settings of a refinement. `mesh` is already decimated.
    pub(super) fn new(
        options: &RefineOptions,
        path: &Path,
        mesh: &Mesh,
        model: &ReadModel,
    ) -> Self {
        let of_mesh = [
            bytemuck::cast_slice(mesh.vertices.as_flattened()),
            bytemuck::cast_slice(mesh.faces.as_flattened()),
            bytemuck::cast_slice(mesh.colors.as_flattened()),
        ];
        let ReadModel { config, dataset, .. } = model;
        let scene = SceneOptions { source_path: None, ..config.scene.clone() };
        // Records from before this option existed stay valid for runs without it.
        let scene = serde_json::to_string(&scene).unwrap_or_default();
        let scene = scene.replace("\"near_share\":0.0,", "");
        let names = dataset.train.iter().map(|&view| dataset.views[view].name.as_bytes());
        Self {
            mesh: path.to_owned(),
            mesh_hash: hash_of(of_mesh.into_iter()),
            gaussians_per_triangle: options.per_triangle.count(),
            iterations: options.iterations,
            normal_consistency: options.normal_consistency,
            vertices: options.vertices,
            seed: config.run.seed,
            scene_hash: hash_of([scene.as_bytes()].into_iter().chain(names)),
        }
    }

    /// Describes the differences between two settings.
    fn differences(&self, other: &Self) -> Vec<String> {
        let number =
            |value: Option<usize>| value.map_or("of the mesh".to_owned(), |n| n.to_string());
        let figures = |it: &Self| {
            [
                ("--gaussians-per-triangle", it.gaussians_per_triangle.to_string()),
                ("--iterations", it.iterations.to_string()),
                ("--normal-consistency", it.normal_consistency.to_string()),
                ("--vertices", number(it.vertices)),
                ("--seed", it.seed.to_string()),
            ]
        };
        let both = figures(self).into_iter().zip(figures(other));
        let changed = both.filter(|(before, now)| before != now);
        let mut found: Vec<String> = changed
            .map(|((flag, before), (_, now))| format!("{flag} {before}, now {now}"))
            .collect();
        if self.mesh_hash != other.mesh_hash {
            found.push("another mesh".to_owned());
        }
        if self.scene_hash != other.scene_hash {
            found.push("other options of the scene".to_owned());
        }
        found
    }
}

/// Mean figures of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measurement {
    split: String,
    views: usize,
    psnr: f64,
    ssim: f64,
    l1: f64,
}

impl Measurement {
    pub(super) fn of(evaluation: &Evaluation) -> Self {
        let Evaluation { split, mean, views, .. } = evaluation;
        Self {
            split: split.name().to_owned(),
            views: views.len(),
            psnr: mean.psnr,
            ssim: mean.ssim,
            l1: mean.l1,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Results {
    triangles: usize,
    vertices: usize,
    gaussians: usize,
    /// Means of 1 - cos of the angle over all pairs of neighbouring triangles.
    creases_before: f64,
    creases_after: f64,
    seconds: f64,
    /// Texture options of the refined mesh.
    texture: TextureOptions,
    /// Names of the files, relative to the folder.
    files: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RefineRecord {
    settings: RefineSettings,
    /// Figures of the model that the mesh was made of.
    pub(super) model: Option<Measurement>,
    /// Figures of the bound Gaussians before the first iteration.
    pub(super) before: Option<Measurement>,
    /// Figures of the bound Gaussians after the last iteration.
    pub(super) after: Option<Measurement>,
    /// Results, if the refinement is complete.
    results: Option<Results>,
}

impl RefineRecord {
    pub(super) fn new(settings: RefineSettings) -> Self {
        Self { settings, model: None, before: None, after: None, results: None }
    }

    /// Reads the record of a folder, if it has one.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, DataError> {
        folder::read_record(&folder.join(RECORD), |problem| {
            format!(
                "the record of the refinement cannot be used: {problem}. Remove its folder to refine again"
            )
        })
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), OutputError> {
        folder::write_record(&folder.join(RECORD), self)
    }

    /// Returns an error if the settings differ from the record's.
    pub(super) fn check_same_settings(
        &self,
        settings: &RefineSettings,
        folder: &Path,
    ) -> Result<(), UsageError> {
        let differences = self.settings.differences(settings);
        if differences.is_empty() {
            return Ok(());
        }
        Err(UsageError(format!(
            "{} holds a refinement that was asked for otherwise: {}. Use --overwrite to refine again, \
             which keeps it beside the new one",
            folder.display(),
            differences.join("; ")
        )))
    }

    /// True if the settings differ from the record's.
    pub(super) fn is_other(&self, settings: &RefineSettings) -> bool {
        !self.settings.differences(settings).is_empty()
    }

    /// True if all files are in the folder, with the mesh in these formats and this texture.
    pub(super) fn is_complete(
        &self,
        folder: &Path,
        formats: &[MeshFormat],
        texture: &TextureOptions,
    ) -> bool {
        let Some(results) = &self.results else { return false };
        let is_listed = |format: &MeshFormat| {
            results.files.contains(&Path::new(MESH_NAME).with_extension(format.extension()))
        };
        results.texture == *texture
            && formats.iter().all(is_listed)
            && results.files.iter().all(|file| folder.join(file).is_file())
    }

    /// Sets the results. `files`: names of the written files, relative to the folder.
    pub(super) fn complete(
        &mut self,
        topology: &BoundTopology,
        before: &BoundColumns,
        after: &BoundColumns,
        texture: &TextureOptions,
        files: Vec<PathBuf>,
        began: Instant,
    ) {
        self.results = Some(Results {
            triangles: topology.faces.len(),
            vertices: topology.vertices(),
            gaussians: topology.gaussians(),
            creases_before: mean_crease(topology, &before.vertices),
            creases_after: mean_crease(topology, &after.vertices),
            seconds: began.elapsed().as_secs_f64(),
            texture: texture.clone(),
            files,
        });
    }

    pub(super) fn files(&self, folder: &Path) -> Vec<PathBuf> {
        let files = self.results.iter().flat_map(|results| &results.files);
        files.map(|file| folder.join(file)).collect()
    }

    /// Describes the result in one line.
    pub(super) fn described(&self) -> String {
        let mut text = String::from("refined");
        if let Some(results) = &self.results {
            let Results { triangles, gaussians, seconds, .. } = results;
            write!(text, ": {triangles} triangles, {gaussians} Gaussians, {seconds:.1} s").ok();
        }
        if let (Some(before), Some(after)) = (&self.before, &self.after) {
            let Measurement { split, views, psnr, .. } = after;
            write!(
                text,
                "; PSNR {:.2} dB before, {psnr:.2} dB after on {views} {split} views",
                before.psnr
            )
            .ok();
        }
        if let Some(model) = &self.model {
            write!(text, " (the model's own Gaussians: {:.2} dB)", model.psnr).ok();
        }
        text
    }
}

/// Returns the mean of 1 - cos of the angle over all pairs of neighbouring triangles.
fn mean_crease(topology: &BoundTopology, vertices: &[f32]) -> f64 {
    let (places, _) = vertices.as_chunks::<3>();
    let place = |vertex: u32| places[vertex as usize].map(f64::from);
    let creases = topology.hinges.iter().map(|hinge| crease(&hinge.map(place)));
    creases.sum::<f64>() / topology.hinges.len().max(1) as f64
}

/// Returns the hash of some parts and their lengths.
fn hash_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
    let with_length =
        |part: &'a [u8]| (part.len() as u64).to_le_bytes().into_iter().chain(part.iter().copied());
    format!("{:016x}", fnv_1a(parts.flat_map(with_length)))
}

/// Parses the length of a refinement, named as in the reference, to iterations.
fn refinement_time() -> impl TypedValueParser<Value = u32> {
    named_values([
        ("short", "2,000 iterations", 2_000),
        ("medium", "7,000 iterations", 7_000),
        ("long", "15,000 iterations", 15_000),
    ])
}

#[derive(Args)]
pub(in crate::cli) struct RefineArgs {
    #[command(flatten)]
    pub(in crate::cli) model: ModelArgs,

    /// Mesh to bind Gaussians to (PLY or OBJ) [default: the newest]
    ///
    /// Without it the newest mesh is taken that splat mesh wrote of this iteration of the model. One without vertex colours takes those of the nearest Gaussians.
    #[arg(long, visible_alias = "mesh-path", value_name = "FILE", help_heading = "Refinement")]
    pub(super) mesh: Option<PathBuf>,

    #[command(flatten)]
    bound: BoundOptions,

    /// Iterations, whatever --refinement-time says
    #[arg(short = 'f', long, visible_alias = "refinement-iterations", value_name = "N")]
    #[arg(help_heading = "Refinement")]
    iterations: Option<u32>,

    /// Decimate the mesh to about N vertices first
    #[arg(long, visible_alias = "n-vertices-in-fg", alias = "n-vertices-in-mesh")]
    #[arg(value_name = "N", help_heading = "Refinement")]
    vertices: Option<usize>,

    /// Iterations between two checkpoints
    #[arg(long, value_name = "N", help_heading = "Refinement", default_value_t = 1000)]
    checkpoint_interval: u32,

    /// Refine again what is complete, or with other options
    ///
    /// The earlier refinement is kept beside the new one, as `MESH.previous_1`.
    #[arg(long, help_heading = "Refinement")]
    pub(super) overwrite: bool,

    /// Files of the refined mesh
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FORMATS")]
    #[arg(help_heading = "Refinement", default_values_t = [MeshFormat::Ply, MeshFormat::Glb])]
    pub(super) formats: Vec<MeshFormat>,

    #[command(flatten)]
    pub(super) texture: TextureOptions,

    /// A refinement with other options is moved aside, as with --overwrite.
    #[arg(skip)]
    pub(in crate::cli) replaces_other: bool,

    /// Form of the progress on stderr
    #[arg(long, value_enum, value_name = "STYLE", default_value_t = ProgressStyle::Bar)]
    progress: ProgressStyle,
}

/// Options of the bound Gaussians and their training.
#[derive(Args)]
#[command(next_help_heading = "Refinement")]
pub(in crate::cli) struct BoundOptions {
    /// Gaussians on each triangle: 1, 3, 4 or 6 [default: 1]
    #[arg(short = 'g', long, value_name = "N")]
    gaussians_per_triangle: Option<u32>,

    /// Length: 2,000, 7,000 or 15,000 iterations
    #[arg(long, value_name = "TIME", default_value = "long", value_parser = refinement_time())]
    refinement_time: u32,

    /// Few triangles: 200,000 vertices, 6 Gaussians on each triangle
    ///
    /// --vertices and --gaussians-per-triangle win over it.
    #[arg(long, conflicts_with = "high_poly")]
    low_poly: bool,

    /// Many triangles: 1,000,000 vertices, 1 Gaussian on each triangle
    ///
    /// --vertices and --gaussians-per-triangle win over it.
    #[arg(long)]
    high_poly: bool,

    /// Weight of the angles between neighbouring triangles in the loss
    #[arg(short = 'n', long, visible_alias = "normal-consistency-factor", value_name = "WEIGHT")]
    #[arg(default_value_t = 0.1)]
    normal_consistency: f64,
}

/// Resolved options of a refinement.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct RefineOptions {
    pub(super) per_triangle: PerTriangle,
    pub(super) iterations: u32,
    /// Approximate number of vertices after decimation.
    pub(super) vertices: Option<usize>,
    pub(super) normal_consistency: f64,
    pub(super) checkpoint_interval: u32,
}

impl BoundOptions {
    /// Returns the number of vertices of a preset, and the Gaussians per triangle.
    pub(in crate::cli) fn bound(&self) -> Result<(Option<usize>, PerTriangle), UsageError> {
        let (vertices, each) = match (self.low_poly, self.high_poly) {
            (true, _) => (Some(200_000), 6),
            (_, true) => (Some(1_000_000), 1),
            _ => (None, 1),
        };
        let each = self.gaussians_per_triangle.unwrap_or(each);
        let found = PerTriangle::ALL.into_iter().find(|one| one.count() == each as usize);
        match found {
            Some(per_triangle) => Ok((vertices, per_triangle)),
            None => Err(refused("gaussians-per-triangle", &each, "1, 3, 4 and 6")),
        }
    }
}

impl RefineArgs {
    pub(in crate::cli) fn style(&self) -> ProgressStyle {
        if self.model.quiet { ProgressStyle::None } else { self.progress }
    }

    /// Resolves and checks the flags.
    pub(in crate::cli) fn resolved(&self) -> Result<RefineOptions, UsageError> {
        let bound = &self.bound;
        let (vertices, per_triangle) = bound.bound()?;
        let iterations = self.iterations.unwrap_or(bound.refinement_time);
        let vertices = self.vertices.or(vertices);
        let weight = bound.normal_consistency;
        let few = vertices.unwrap_or(usize::MAX);
        let rules: [(bool, &str, &dyn Display, &str); 4] = [
            (iterations == 0, "iterations", &iterations, "1 and more"),
            (self.checkpoint_interval == 0, "checkpoint-interval", &0, "1 and more"),
            (few < 4, "vertices", &few, "4 and more"),
            (!(weight.is_finite() && weight >= 0.0), "normal-consistency", &weight, "0 and more"),
        ];
        if let Some((_, flag, value, allowed)) = rules.into_iter().find(|(applies, ..)| *applies) {
            return Err(refused(flag, value, allowed));
        }
        Ok(RefineOptions {
            per_triangle,
            iterations,
            vertices,
            normal_consistency: weight,
            checkpoint_interval: self.checkpoint_interval,
        })
    }
}

/// Returns the error of a value outside of the allowed range.
fn refused(flag: &str, value: &dyn Display, allowed: &str) -> UsageError {
    UsageError(format!("--{flag} is {value}; allowed: {allowed}"))
}
