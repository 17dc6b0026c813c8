//! SOG with levels of detail (`PlayCanvas`, version 1 of the streamed format): a tree of boxes. Each leaf and level
//! refers to a run of Gaussians in one of several SOG folders.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use splat_mesh::narrow::{to_f32, to_f64s, to_u32};
use splat_mesh::place::{Bounds, cross, dot};

use crate::error::{FormatFault, damaged};
use crate::folder::{PartSink, PartSource, check_name, parse_json};
use crate::geometry::{logit, matrix, morton_order, quaternion, sigmoid};
use crate::save::WorstErrors;
use crate::sog::{SeenFrom, SogAsset, SogError, SogOptions, SogTools, read_sog, write_in_order};
use crate::splats::{CheckedSplats, LEAST_LOG_SCALE, SH_C0, SplatColumns, Splats, sh_rest_count};

// `lod-meta.json` of a streamed SOG.

pub(crate) const LOD_META_NAME: &str = "lod-meta.json";

const VERSION: u32 = 1;

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct StreamedMeta {
    /// Missing in files of 2025.
    #[serde(default = "first_version")]
    version: u32,
    asset: Option<SogAsset>,
    #[serde(default)]
    count: u64,
    #[serde(default)]
    counts: Vec<u64>,
    lod_levels: u32,
    filenames: Vec<String>,
    tree: StreamedNode,
}

const fn first_version() -> u32 {
    VERSION
}

/// A box with either two children or a run of Gaussians per level.
#[derive(Debug, Deserialize, Serialize)]
struct StreamedNode {
    bound: StreamedBound,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    children: Vec<Self>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    lods: BTreeMap<u32, StreamedRun>,
}

/// Bounding box of a node's ellipsoids at three standard deviations.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct StreamedBound {
    min: [f32; 3],
    max: [f32; 3],
}

/// Consecutive rows of a file.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct StreamedRun {
    file: usize,
    offset: usize,
    count: usize,
}

// Reading streamed SOG: the finest level.

/// Largest `lod-meta.json`: a tree of 10,000 boxes, more than the largest scenes have.
const MAX_META_BYTES: u64 = 4 << 20;

/// Reads the finest level of a streamed SOG from its parts. Skips an environment scene.
pub fn read_streamed(parts: &mut dyn PartSource) -> Result<CheckedSplats, FormatFault> {
    let meta: StreamedMeta = parse_json(LOD_META_NAME, &parts.get(LOD_META_NAME, MAX_META_BYTES)?)?;
    if meta.version != VERSION {
        return Err(FormatFault::Unsupported(format!(
            "is of version {} of streamed SOG; {VERSION} is read: export it again",
            meta.version
        )));
    }
    let mut runs = vec![Vec::new(); meta.filenames.len()];
    collect_finest(&meta.tree, &mut runs)?;
    let mut all = CheckedSplats::default();
    let mut columns: Option<SplatColumns> = None;
    for (name, runs) in meta.filenames.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty()) {
        let folder = name.strip_suffix("/meta.json").unwrap_or(name);
        check_name(folder)?;
        let found = read_sog(&mut ChunkSource { folder, parts })?;
        if found.dropped > 0 {
            return damaged(format!("has rows in {name} that cannot be drawn"));
        }
        let more = chosen(name, &found.splats, runs)?.into_columns();
        match &mut columns {
            None => columns = Some(more),
            Some(to) if to.sh_degree == more.sh_degree => to.append(&more),
            Some(to) => {
                let degrees = format!("{} and {}", to.sh_degree, more.sh_degree);
                return damaged(format!("has files of SH degree {degrees}"));
            }
        }
    }
    all.splats = Splats::from_columns(columns.unwrap_or_default())?.splats;
    if let Some(&expected) = meta.counts.first()
        && expected != all.splats.len() as u64
    {
        return damaged(format!(
            "announces {expected} Gaussians in its finest level, but names {}",
            all.splats.len()
        ));
    }
    if meta.lod_levels > 1 {
        all.notes.push(format!("of {} levels of detail the finest is read", meta.lod_levels));
    }
    Ok(all)
}

/// Collects the runs of level 0 by file. JSON parsing limits the recursion depth.
fn collect_finest(node: &StreamedNode, runs: &mut [Vec<StreamedRun>]) -> Result<(), FormatFault> {
    if let Some(run) = node.lods.get(&0) {
        let file = runs.get_mut(run.file).ok_or_else(|| {
            FormatFault::damaged(format!("names file {}, which is not in its list", run.file))
        })?;
        file.push(*run);
    }
    node.children.iter().try_for_each(|child| collect_finest(child, runs))
}

/// Returns the rows of runs, which must not overlap.
fn chosen(name: &str, splats: &Splats, runs: &[StreamedRun]) -> Result<Splats, FormatFault> {
    let mut order = Vec::new();
    for run in runs {
        let end = run.offset.checked_add(run.count).filter(|&end| end <= splats.len());
        let Some(end) = end.filter(|_| order.len() + run.count <= splats.len()) else {
            return damaged(format!(
                "names {} rows from {} of {name}, which has {}",
                run.count,
                run.offset,
                splats.len()
            ));
        };
        order.extend(to_u32(run.offset)..to_u32(end));
    }
    Ok(splats.rows(&order))
}

struct ChunkSource<'a> {
    folder: &'a str,
    parts: &'a mut dyn PartSource,
}

impl PartSource for ChunkSource<'_> {
    fn get(&mut self, name: &str, most_bytes: u64) -> Result<Vec<u8>, FormatFault> {
        self.parts.get(&format!("{}/{name}", self.folder), most_bytes)
    }

    fn total_bytes(&self) -> u64 {
        self.parts.total_bytes()
    }
}

// Boxes into which a scene of several levels is split.

/// Number of standard deviations that a box covers.
const DEVIATIONS: f64 = 3.0;

/// Minimum number of rows per thread.
const ROWS_AT_A_TIME: usize = 65_536;

/// A row of a level and its centre.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LevelRow {
    level: u32,
    row: u32,
    place: [f32; 3],
}

#[derive(Debug)]
enum SplitNode {
    Inner(Box<[Self; 2]>),
    Leaf(LeafRuns),
}

/// Splits recursively at the median along the longest axis of the centres: nodes of more Gaussians of all levels than a
/// file holds, or of a larger extent and at least [`MIN_SPLIT`] Gaussians.
fn split(
    rows: &mut [LevelRow],
    levels: &[Cow<'_, Splats>],
    options: &StreamedOptions,
) -> SplitNode {
    let boxes = rows.par_iter().with_min_len(ROWS_AT_A_TIME);
    let boxes = boxes.map(|row| Bounds::of([to_f64s(row.place)]));
    let extents = boxes.reduce(|| Bounds::EMPTY, Bounds::joined).sides();
    let longest = (1..3).fold(0, |best, i| if extents[i] > extents[best] { i } else { best });
    let is_wide = extents[longest] > options.extent && rows.len() >= MIN_SPLIT;
    if rows.len() <= options.chunk_splats.max(1) && !is_wide {
        return SplitNode::Leaf(LeafRuns::of(rows, levels));
    }
    let middle = rows.len() / 2;
    rows.select_nth_unstable_by(middle, |a, b| {
        let order = a.place[longest].total_cmp(&b.place[longest]);
        order.then(a.level.cmp(&b.level)).then(a.row.cmp(&b.row))
    });
    let (left, right) = rows.split_at_mut(middle);
    let part = |rows| move || split(rows, levels, options);
    let (left, right) = rayon::join(part(left), part(right));
    SplitNode::Inner(Box::new([left, right]))
}

/// Returns the bounding box of a row's ellipsoid.
fn bound_of(columns: &SplatColumns, row: usize) -> StreamedBound {
    let r = matrix(columns.rotations[row].map(f64::from));
    let scales = columns.log_scales[row].map(|scale| f64::from(scale).exp());
    let mean = columns.means[row].map(f64::from);
    let half: [f64; 3] = std::array::from_fn(|i| {
        let squares = (0..3).map(|k| (r[i][k] * scales[k]).powi(2));
        (DEVIATIONS * squares.sum::<f64>().sqrt()).min(1e30)
    });
    StreamedBound {
        min: std::array::from_fn(|i| to_f32(mean[i] - half[i])),
        max: std::array::from_fn(|i| to_f32(mean[i] + half[i])),
    }
}

fn union(a: StreamedBound, b: StreamedBound) -> StreamedBound {
    StreamedBound {
        min: std::array::from_fn(|i| a.min[i].min(b.min[i])),
        max: std::array::from_fn(|i| a.max[i].max(b.max[i])),
    }
}

// Writing streamed SOG.

/// Nodes with fewer Gaussians are not split for their extent.
const MIN_SPLIT: usize = 1024;

/// Largest number of levels. The coarsest has one of 32,768 Gaussians.
const MAX_LEVELS: u32 = 16;

/// Number of files that are encoded together, each with several threads. Takes about 600 bytes per Gaussian.
const FILES_AT_A_TIME: usize = 8;

/// Options of a streamed SOG.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamedOptions {
    /// Number of levels of detail, each with half the Gaussians of the one below; clamped to 1..16.
    pub levels: u32,
    /// Approximate number of Gaussians per file; at least 1.
    pub chunk_splats: usize,
    /// Largest extent of a box, scene units, above 0.
    pub extent: f64,
    /// Options of the files.
    pub sog: SogOptions,
}

impl Default for StreamedOptions {
    fn default() -> Self {
        Self { levels: 4, chunk_splats: 512 * 1024, extent: 16.0, sog: SogOptions::default() }
    }
}

/// Writes the parts of a streamed SOG, `lod-meta.json` last. Returns the errors of the finest level.
pub fn write_streamed(
    splats: &Splats,
    options: &StreamedOptions,
    tools: &SogTools<'_>,
    sink: &mut dyn PartSink,
) -> Result<WorstErrors, SogError> {
    let mut levels = vec![Cow::Borrowed(splats)];
    for level in 1..options.levels.clamp(1, MAX_LEVELS) as usize {
        levels.push(Cow::Owned(coarser(&levels[level - 1])));
    }
    let mut rows: Vec<LevelRow> = (0..)
        .zip(&levels)
        .flat_map(|(level, splats)| {
            let places = (0..).zip(&splats.columns().means);
            places.map(move |(row, &place)| LevelRow { level, row, place })
        })
        .collect();
    let tree = split(&mut rows, &levels, options);
    drop(rows);
    let mut chunks = ChunkLists { most_rows: options.chunk_splats, files: Vec::new() };
    let tree = chunks.describe(tree);
    let files = chunks.files;
    let mut worst = WorstErrors::default();
    for files in files.chunks(FILES_AT_A_TIME) {
        let encoded: Vec<_> = files
            .par_iter()
            .map(|file| encoded(file, &levels, &options.sog, tools))
            .collect::<Result<_, _>>()?;
        for (file, (parts, errors)) in files.iter().zip(encoded) {
            let folder = file.name.trim_end_matches("meta.json");
            for (name, bytes) in parts {
                sink.put(&format!("{folder}{name}"), &bytes)?;
            }
            if file.level == 0 {
                worst = worst.or(errors);
            }
        }
    }
    let counts: Vec<u64> = levels.iter().map(|level| level.len() as u64).collect();
    let meta = StreamedMeta {
        version: VERSION,
        asset: Some(SogAsset { generator: "splat".to_owned() }),
        count: counts.iter().sum(),
        counts,
        lod_levels: to_u32(levels.len()),
        filenames: files.into_iter().map(|file| file.name).collect(),
        tree,
    };
    sink.put(LOD_META_NAME, &serde_json::to_vec(&meta).map_err(io::Error::other)?)?;
    Ok(worst)
}

/// A file to write: rows of one level.
struct ChunkFile {
    name: String,
    level: u32,
    rows: Vec<u32>,
}

/// Rows of a leaf by level, without empty levels, in Z-order.
#[derive(Debug)]
struct LeafRuns {
    bound: StreamedBound,
    levels: Vec<(u32, Vec<u32>)>,
}

impl LeafRuns {
    fn of(rows: &[LevelRow], levels: &[Cow<'_, Splats>]) -> Self {
        let bounds = rows
            .par_iter()
            .map(|it| bound_of(levels[it.level as usize].columns(), it.row as usize));
        let bound = bounds.reduce_with(union).unwrap_or(NOWHERE);
        let run = |level: u32| {
            let of_level = || rows.iter().filter(move |it| it.level == level);
            let numbers: Vec<u32> = of_level().map(|it| it.row).collect();
            let places: Vec<[f32; 3]> = of_level().map(|it| it.place).collect();
            let order = morton_order(&places);
            (level, order.into_iter().map(|at| numbers[at as usize]).collect::<Vec<_>>())
        };
        let runs = (0..to_u32(levels.len())).map(run);
        Self { bound, levels: runs.filter(|(_, rows)| !rows.is_empty()).collect() }
    }
}

/// Files, filled leaf by leaf.
struct ChunkLists {
    most_rows: usize,
    files: Vec<ChunkFile>,
}

impl ChunkLists {
    fn describe(&mut self, node: SplitNode) -> StreamedNode {
        match node {
            SplitNode::Inner(children) => {
                let children: Vec<_> =
                    children.into_iter().map(|child| self.describe(child)).collect();
                let bounds = children.iter().map(|child| child.bound);
                let bound = bounds.reduce(union).unwrap_or(NOWHERE);
                StreamedNode { bound, children, lods: BTreeMap::new() }
            }
            SplitNode::Leaf(LeafRuns { bound, levels }) => {
                let lods = levels.into_iter().map(|(level, rows)| (level, self.add(level, rows)));
                StreamedNode { bound, children: Vec::new(), lods: lods.collect() }
            }
        }
    }

    /// Appends a run to the last file of its level, or to a new one if the file would be too long.
    fn add(&mut self, level: u32, rows: Vec<u32>) -> StreamedRun {
        let of_level = |file: &ChunkFile| file.level == level;
        let last = self.files.iter().rposition(of_level);
        let fits = |file: usize| self.files[file].rows.len() + rows.len() <= self.most_rows;
        let file = last.filter(|&file| fits(file)).unwrap_or_else(|| {
            let number = self.files.iter().filter(|file| of_level(file)).count();
            let name = format!("{level}_{number}/meta.json");
            self.files.push(ChunkFile { name, level, rows: Vec::new() });
            self.files.len() - 1
        });
        let (offset, count) = (self.files[file].rows.len(), rows.len());
        self.files[file].rows.extend(rows);
        StreamedRun { file, offset, count }
    }
}

const NOWHERE: StreamedBound = StreamedBound { min: [0.0; 3], max: [0.0; 3] };

/// Names and contents of the parts of a file, in the order of writing.
type Parts = Vec<(String, Vec<u8>)>;

impl PartSink for Parts {
    fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.push((name.to_owned(), bytes.to_vec()));
        Ok(())
    }
}

/// Returns the parts of a file and their errors.
fn encoded(
    file: &ChunkFile,
    levels: &[Cow<'_, Splats>],
    options: &SogOptions,
    tools: &SogTools<'_>,
) -> Result<(Parts, WorstErrors), SogError> {
    let chunk = levels[file.level as usize].rows(&file.rows);
    // Observations of the finest level do not apply to merged Gaussians.
    let seen = match file.level {
        0 => tools.seen_of(&file.rows, chunk.columns(), options),
        _ => SeenFrom::of_cameras(chunk.columns(), &options.cameras),
    };
    let mut parts = Parts::new();
    let errors = write_in_order(chunk, &seen, options.seed, tools, &mut parts)?;
    Ok((parts, errors))
}

// Halves the number of Gaussians by merging similar neighbours.
//
// Passes pair clusters by approximate moments. Each cluster is merged at the end, from all members at once.

/// Number of neighbours in Z-order that each cluster considers.
const NEIGHBOURS: usize = 16;

/// Largest number of passes. One pass pairs a third of the clusters, since several share a best neighbour.
const ROUNDS: usize = 12;

/// Number of clusters that one thread merges.
const CLUSTERS_AT_A_TIME: usize = 4096;

/// Marks the last member of a cluster.
const NO_ROW: u32 = u32::MAX;

/// Gaussians that will be merged, and their approximate moments.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    mean: [f32; 3],
    /// Sum of the variances along the axes, squared units.
    spread: f32,
    /// Sum of opacity times area.
    weight: f32,
    color: [f32; 3],
    /// Ends of the linked list of members.
    first: u32,
    last: u32,
}

impl Cluster {
    fn of(columns: &SplatColumns, row: usize) -> Self {
        let moments = Moments3::of(columns, row);
        Self {
            mean: columns.means[row],
            spread: to_f32(moments.spread()),
            weight: to_f32(moments.weight),
            color: moments.color.map(to_f32),
            first: to_u32(row),
            last: to_u32(row),
        }
    }

    /// Returns the visual cost of merging two clusters, in units of weight: from their distance relative to their size,
    /// and from the difference of their colours.
    fn cost(&self, other: &Self) -> f32 {
        let size = (self.spread + other.spread).max(f32::MIN_POSITIVE);
        let shared =
            self.weight * other.weight / (self.weight + other.weight).max(f32::MIN_POSITIVE);
        shared * (squared(self.mean, other.mean) / size + squared(self.color, other.color))
    }

    /// Merges the moments and the member lists, which must be linked already.
    fn with(&self, other: &Self) -> Self {
        let total = (self.weight + other.weight).max(f32::MIN_POSITIVE);
        let share = if total > f32::MIN_POSITIVE { self.weight / total } else { 0.5 };
        let mixed = |a: f32, b: f32| share * a + (1.0 - share) * b;
        let triple = |a: [f32; 3], b: [f32; 3]| std::array::from_fn(|i| mixed(a[i], b[i]));
        let apart = share * (1.0 - share) * squared(self.mean, other.mean);
        Self {
            mean: triple(self.mean, other.mean),
            spread: mixed(self.spread, other.spread) + apart,
            weight: total,
            color: triple(self.color, other.color),
            first: self.first,
            last: other.last,
        }
    }
}

fn squared(a: [f32; 3], b: [f32; 3]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

#[derive(Clone, Copy, Debug)]
struct MergePair {
    cost: f32,
    clusters: [u32; 2],
}

/// Returns about half the Gaussians. Repeatedly merges the cheapest pairs.
fn coarser(splats: &Splats) -> Splats {
    let target = splats.len().div_ceil(2);
    let columns = splats.columns();
    let mut clusters: Vec<Cluster> =
        (0..splats.len()).into_par_iter().map(|row| Cluster::of(columns, row)).collect();
    let mut next_member = vec![NO_ROW; splats.len()];
    for _ in 0..ROUNDS {
        if clusters.len() <= target {
            break;
        }
        clusters = paired(&clusters, target, &mut next_member);
    }
    let parts: Vec<SplatColumns> = clusters
        .par_chunks(CLUSTERS_AT_A_TIME)
        .map(|clusters| {
            let mut part = SplatColumns::with_capacity(columns.sh_degree, clusters.len());
            for cluster in clusters {
                push_merged(columns, &members(cluster, &next_member), &mut part);
            }
            part
        })
        .collect();
    let mut to = SplatColumns::with_capacity(columns.sh_degree, clusters.len());
    (to.antialiasing, to.primitive) = (columns.antialiasing, columns.primitive);
    parts.iter().for_each(|part| to.append(part));
    // The columns are consistent and finite. If they were not, the finer level is a valid substitute.
    Splats::from_columns(to).map_or_else(|_error| splats.clone(), |checked| checked.splats)
}

fn members(cluster: &Cluster, next_member: &[u32]) -> Vec<usize> {
    let next = |&row: &u32| (row != cluster.last).then(|| next_member[row as usize]);
    std::iter::successors(Some(cluster.first), next).map(|row| row as usize).collect()
}

/// Merges pairs by rising cost while at least `target` clusters remain.
fn paired(clusters: &[Cluster], target: usize, next_member: &mut [u32]) -> Vec<Cluster> {
    let places: Vec<[f32; 3]> = clusters.par_iter().map(|cluster| cluster.mean).collect();
    let order = morton_order(&places);
    let clusters: Vec<Cluster> = order.par_iter().map(|&at| clusters[at as usize]).collect();
    let mut pairs: Vec<MergePair> = (0..clusters.len())
        .into_par_iter()
        .filter_map(|one| {
            let others = one + 1..(one + 1 + NEIGHBOURS).min(clusters.len());
            let pairs = others.map(|other| MergePair {
                cost: clusters[one].cost(&clusters[other]),
                clusters: [to_u32(one), to_u32(other)],
            });
            pairs.min_by(|a, b| a.cost.total_cmp(&b.cost))
        })
        .collect();
    pairs.par_sort_unstable_by(|a, b| a.cost.total_cmp(&b.cost).then(a.clusters.cmp(&b.clusters)));
    let mut is_merged = vec![false; clusters.len()];
    let mut left = clusters.len();
    let mut chosen = Vec::with_capacity(clusters.len() - target);
    for pair in pairs {
        if left <= target {
            break;
        }
        let [a, b] = pair.clusters.map(|cluster| cluster as usize);
        if is_merged[a] || is_merged[b] {
            continue;
        }
        (is_merged[a], is_merged[b]) = (true, true);
        next_member[clusters[a].last as usize] = clusters[b].first;
        chosen.push([a, b]);
        left -= 1;
    }
    let mut merged: Vec<Cluster> =
        chosen.par_iter().map(|&[a, b]| clusters[a].with(&clusters[b])).collect();
    let alone = clusters.iter().zip(&is_merged).filter(|(_, is_merged)| !**is_merged);
    merged.extend(alone.map(|(cluster, _)| *cluster));
    merged
}

// Decomposition of a covariance into rotation and scales.

/// Symmetric matrix, by rows.
type Symmetric3 = [[f64; 3]; 3];

/// Number of sweeps of Jacobi's method. Five make a 3x3 matrix diagonal to the last bit.
const SWEEPS: usize = 8;

/// Eigenvalues, and eigenvectors as the columns of an orthogonal matrix.
#[derive(Clone, Copy, Debug)]
struct Axes {
    squares: [f64; 3],
    columns: [[f64; 3]; 3],
}

/// Computes eigenvalues and eigenvectors by Jacobi rotations (Golub and Van Loan, "Matrix computations", 8.5).
fn axes_of(mut m: Symmetric3) -> Axes {
    let mut v = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    for [p, q] in [[0, 1], [0, 2], [1, 2]].repeat(SWEEPS) {
        if m[p][q] == 0.0 {
            continue;
        }
        let theta = (m[q][q] - m[p][p]) / (2.0 * m[p][q]);
        let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
        let t = if theta == 0.0 { 1.0 } else { t };
        let c = 1.0 / t.hypot(1.0);
        let s = t * c;
        for row in &mut m {
            let [a, b] = [row[p], row[q]];
            (row[p], row[q]) = (c * a - s * b, s * a + c * b);
        }
        let [a, b] = [m[p], m[q]];
        m[p] = std::array::from_fn(|k| c * a[k] - s * b[k]);
        m[q] = std::array::from_fn(|k| s * a[k] + c * b[k]);
        for row in &mut v {
            let [a, b] = [row[p], row[q]];
            (row[p], row[q]) = (c * a - s * b, s * a + c * b);
        }
    }
    Axes { squares: [m[0][0], m[1][1], m[2][2]], columns: v }
}

// Merging of Gaussians.

/// Largest opacity of a merged Gaussian.
const MAX_OPACITY: f64 = 0.99;

#[derive(Clone, Copy, Debug)]
struct Moments3 {
    mean: [f64; 3],
    covariance: Symmetric3,
    /// Opacity times area.
    weight: f64,
    color: [f64; 3],
}

/// Returns the product of the two larger scales.
fn area(scales: [f64; 3]) -> f64 {
    let least = scales.into_iter().fold(f64::INFINITY, f64::min);
    scales.iter().product::<f64>() / least.max(f64::MIN_POSITIVE)
}

impl Moments3 {
    fn of(columns: &SplatColumns, row: usize) -> Self {
        let scales = columns.log_scales[row].map(|scale| f64::from(scale).clamp(-40.0, 40.0).exp());
        let r = matrix(columns.rotations[row].map(f64::from));
        let entry =
            |i: usize, j: usize| (0..3).map(|k| r[i][k] * scales[k] * scales[k] * r[j][k]).sum();
        Self {
            mean: columns.means[row].map(f64::from),
            covariance: std::array::from_fn(|i| std::array::from_fn(|j| entry(i, j))),
            weight: sigmoid(columns.opacity_logits[row]) * area(scales),
            color: columns.sh_dc[row].map(|c| SH_C0 * f64::from(c)),
        }
    }

    /// Returns the sum of the variances along the axes, squared units.
    fn spread(&self) -> f64 {
        self.covariance[0][0] + self.covariance[1][1] + self.covariance[2][2]
    }
}

/// Appends one Gaussian with the mean, covariance and harmonics of several, weighted by opacity times area, and with
/// their total weight. Copies a single Gaussian unchanged.
fn push_merged(from: &SplatColumns, rows: &[usize], to: &mut SplatColumns) {
    if let &[row] = rows {
        to.means.push(from.means[row]);
        to.log_scales.push(from.log_scales[row]);
        to.rotations.push(from.rotations[row]);
        to.opacity_logits.push(from.opacity_logits[row]);
        to.sh_dc.push(from.sh_dc[row]);
        to.sh_rest.extend_from_slice(from.rest(row));
        return;
    }
    let all: Vec<Moments3> = rows.iter().map(|&row| Moments3::of(from, row)).collect();
    let total: f64 = all.iter().map(|one| one.weight).sum();
    let even = 1.0 / rows.len() as f64;
    let shares: Vec<f64> =
        all.iter().map(|one| if total > 0.0 { one.weight / total } else { even }).collect();
    let mixed = |value: &dyn Fn(usize) -> f64| -> f64 {
        shares.iter().enumerate().map(|(k, share)| share * value(k)).sum()
    };
    let mean: [f64; 3] = std::array::from_fn(|i| mixed(&|k| all[k].mean[i]));
    let covariance = std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            let apart = |k: usize, axis: usize| all[k].mean[axis] - mean[axis];
            mixed(&|k| all[k].covariance[i][j] + apart(k, i) * apart(k, j))
        })
    });
    let mut axes = axes_of(covariance);
    // Flip an axis if the axes form a reflection.
    let [a, b, c] = [0, 1, 2].map(|k| [0, 1, 2].map(|i| axes.columns[i][k]));
    if dot(cross(a, b), c) < 0.0 {
        axes.columns.iter_mut().for_each(|row| row[2] = -row[2]);
    }
    let scales = axes.squares.map(|square| square.max(0.0).sqrt());
    let opacity = (total / area(scales).max(f64::MIN_POSITIVE)).clamp(1e-6, MAX_OPACITY);
    let mixed_triple = |of: &dyn Fn(usize) -> [f32; 3]| -> [f32; 3] {
        std::array::from_fn(|i| to_f32(mixed(&|k| f64::from(of(k)[i]))))
    };
    to.means.push(mean.map(to_f32));
    to.log_scales.push(scales.map(|scale| to_f32(scale.ln()).max(LEAST_LOG_SCALE)));
    to.rotations.push(quaternion(axes.columns).map(to_f32));
    to.opacity_logits.push(logit(opacity));
    to.sh_dc.push(mixed_triple(&|k| from.sh_dc[rows[k]]));
    for harmonic in 0..sh_rest_count(from.sh_degree) {
        to.sh_rest.push(mixed_triple(&|k| from.rest(rows[k])[harmonic]));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::splats::known_splats::{on_threads, random_splats, splats_at};

    fn parts(options: &StreamedOptions, count: usize) -> (BTreeMap<String, Vec<u8>>, WorstErrors) {
        let (splats, mut parts) = (random_splats(count, 1, 1), BTreeMap::new());
        let worst = write_streamed(&splats, options, &SogTools::default(), &mut parts).unwrap();
        (parts, worst)
    }

    fn small() -> StreamedOptions {
        StreamedOptions { chunk_splats: 1500, levels: 3, ..StreamedOptions::default() }
    }

    #[test]
    fn finest_level_is_the_scene() {
        let (mut parts, worst) = parts(&small(), 4000);
        assert!(worst.position < 1e-3 && worst.rotation_degrees < 1.2, "{worst:?}");
        let read = read_streamed(&mut parts).unwrap().splats;
        assert_eq!(read.len(), 4000);
        let sum = |splats: &Splats| -> f64 {
            splats.columns().means.iter().map(|mean| f64::from(mean[0])).sum()
        };
        let sums = [&read, &random_splats(4000, 1, 1)].map(sum);
        assert!((sums[0] - sums[1]).abs() < 0.5, "{sums:?}");
    }

    #[test]
    fn runs_cover_their_files() {
        let (mut parts, _) = parts(&small(), 4000);
        let meta: serde_json::Value = serde_json::from_slice(&parts[LOD_META_NAME]).unwrap();
        assert_eq!((&meta["version"], &meta["lodLevels"]), (&1.into(), &3.into()));
        assert_eq!(meta["counts"], serde_json::json!([4000, 2000, 1000]));
        assert_eq!(meta["count"], 7000);
        let names = meta["filenames"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|name| name.as_str().unwrap()).collect();
        assert!(names.contains(&"0_0/meta.json") && names.contains(&"2_0/meta.json"));
        let mut ends = vec![0; names.len()];
        let mut open = vec![&meta["tree"]];
        let mut leaves = 0;
        // In tree order, each run begins where the previous run ends.
        while let Some(node) = open.pop() {
            if let Some(children) = node["children"].as_array() {
                assert_eq!(children.len(), 2);
                open.extend(children.iter().rev());
                continue;
            }
            leaves += 1;
            for run in node["lods"].as_object().unwrap().values() {
                let [file, offset, count] =
                    ["file", "offset", "count"].map(|key| run[key].as_u64().unwrap());
                let end = &mut ends[usize::try_from(file).unwrap()];
                assert_eq!(*end, offset);
                *end += count;
            }
        }
        assert!(leaves >= 4, "{leaves}");
        for (name, end) in names.iter().zip(ends) {
            let meta: serde_json::Value = serde_json::from_slice(&parts[*name]).unwrap();
            assert_eq!(meta["count"].as_u64().unwrap(), end, "{name}");
        }
        assert!(read_streamed(&mut parts).is_ok());
    }

    #[test]
    fn wide_scenes_are_split_above_a_minimum_count() {
        let options = StreamedOptions { extent: 5.0, levels: 1, ..StreamedOptions::default() };
        let (parts, _) = parts(&options, 5000);
        let meta = String::from_utf8(parts[LOD_META_NAME].clone()).unwrap();
        // 20 units wide; nodes need 1,024 Gaussians to be split.
        assert_eq!(meta.matches("\"lods\"").count(), 8, "{meta}");
    }

    #[rstest]
    #[case(r#""version":1"#, r#""version":7"#, "version 7")]
    #[case("0_0/meta.json", "../0_0/meta.json", "no name")]
    #[case(r#""file":0"#, r#""file":99"#, "file 99")]
    #[case(r#""offset":0"#, r#""offset":4000000000"#, "rows")]
    #[case(r#""counts":[4000"#, r#""counts":[4001"#, "4001")]
    fn broken_trees_are_named(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
        let (mut parts, _) = parts(&small(), 4000);
        let meta = String::from_utf8(parts[LOD_META_NAME].clone()).unwrap();
        assert!(meta.contains(from), "{meta}");
        parts.insert(LOD_META_NAME.to_owned(), meta.replacen(from, to, 1).into_bytes());
        let message = read_streamed(&mut parts).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn each_level_halves_the_count_and_keeps_the_weight() {
        let fine = random_splats(3001, 1, 2);
        let coarse = coarser(&fine);
        assert_eq!((coarse.len(), coarse.sh_degree()), (1501, 1));
        let weight = |splats: &Splats| -> f64 {
            (0..splats.len()).map(|row| Moments3::of(splats.columns(), row).weight).sum()
        };
        // The opacity limit of 0.99 loses some weight.
        let [fine, coarse] = [&fine, &coarse].map(weight);
        assert!(coarse <= 1.001 * fine && coarse > 0.5 * fine, "{fine} {coarse}");
    }

    #[test]
    fn nearest_of_equal_colour_are_merged() {
        let mut splats = splats_at(&[[0.0; 3], [0.1, 0.0, 0.0], [5.0, 0.0, 0.0], [5.1, 0.0, 0.0]]);
        splats.columns_mut().log_scales = vec![[-3.0; 3]; 4];
        splats.columns_mut().sh_dc = vec![[0.5; 3]; 4];
        splats.columns_mut().opacity_logits = vec![0.0; 4];
        let mut xs: Vec<f32> =
            coarser(&splats).columns().means.iter().map(|mean| mean[0]).collect();
        xs.sort_by(f32::total_cmp);
        assert!((xs[0] - 0.05).abs() < 1e-6 && (xs[1] - 5.05).abs() < 1e-6, "{xs:?}");
    }

    #[test]
    fn result_does_not_depend_on_the_thread_count() {
        let splats = random_splats(9000, 1, 4);
        let made = |threads| on_threads(threads, || coarser(&splats));
        assert!(made(1) == made(3));
    }

    #[test]
    fn one_gaussian_does_not_change() {
        assert_eq!(coarser(&random_splats(1, 0, 3)).len(), 1);
        assert!(coarser(&random_splats(0, 0, 3)).is_empty());
    }

    #[test]
    fn axes_restore_the_matrix() {
        for q in [[0.5, 0.5, -0.5, 0.5], [0.1, 0.7, 0.7, 0.1], [1.0, 0.0, 0.0, 0.0]] {
            let r = matrix(q);
            let squares = [4.0, 0.25, 1e-6];
            let build = |r: [[f64; 3]; 3], s: [f64; 3]| -> Symmetric3 {
                std::array::from_fn(|i| {
                    std::array::from_fn(|j| (0..3).map(|k| r[i][k] * s[k] * r[j][k]).sum())
                })
            };
            let m = build(r, squares);
            let axes = axes_of(m);
            let again = build(matrix(quaternion(axes.columns)), axes.squares);
            for (a, b) in m.as_flattened().iter().zip(again.as_flattened()) {
                assert!((a - b).abs() < 1e-12, "{q:?}: {m:?} {again:?}");
            }
        }
    }

    #[test]
    fn merging_with_itself_changes_opacity_only() {
        let splats = random_splats(6, 2, 1);
        for row in 0..6 {
            let mut merged = SplatColumns::with_capacity(2, 1);
            push_merged(splats.columns(), &[row, row], &mut merged);
            let (a, b) = (Moments3::of(splats.columns(), row), Moments3::of(&merged, 0));
            for (a, b) in a.covariance.as_flattened().iter().zip(b.covariance.as_flattened()) {
                // Scales and rotations are rounded to f32.
                assert!((a - b).abs() < 1e-6, "{a} {b}");
            }
            assert_eq!(merged.rest(0), splats.columns().rest(row));
            let doubled = (2.0 * sigmoid(splats.columns().opacity_logits[row])).min(0.99);
            assert!((sigmoid(merged.opacity_logits[0]) - doubled).abs() < 1e-5);
        }
    }

    #[test]
    fn two_distant_gaussians_become_a_long_one_between_them() {
        let mut splats = splats_at(&[[0.0; 3], [2.0, 0.0, 0.0]]);
        splats.columns_mut().log_scales = vec![[-3.0; 3]; 2];
        splats.columns_mut().opacity_logits = vec![0.0; 2];
        let mut merged = SplatColumns::with_capacity(0, 1);
        push_merged(splats.columns(), &[0, 1], &mut merged);
        assert!((merged.means[0][0] - 1.0).abs() < 1e-6);
        let moments = Moments3::of(&merged, 0);
        assert!((moments.covariance[0][0] - (1.0 + (-6.0_f64).exp())).abs() < 1e-5);
        assert!((moments.covariance[1][1] - (-6.0_f64).exp()).abs() < 1e-6);
    }
}
