//! Streamed SOG, written.

use std::collections::BTreeMap;
use std::io;

use super::coarsen::coarser;
use super::meta::{
    LOD_META_NAME, StreamedAsset, StreamedBound, StreamedMeta, StreamedNode, StreamedRun, VERSION,
};
use super::tree::{LevelRow, SplitNode, SplitRule, bound_of, split, union};
use crate::folder::PartSink;
use crate::morton::morton_order;
use crate::narrow::to_u32;
use crate::sog::{SogError, SogOptions, areas, write_in_order};
use crate::splats::Splats;
use crate::worst::WorstErrors;

/// Wide nodes with fewer Gaussians than these are not split.
const LEAST_SPLIT: usize = 1024;

/// The coarsest level of 16 holds one of 32,768 Gaussians.
const MOST_LEVELS: u32 = 16;

/// How a scene is cut and thinned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamedOptions {
    /// Levels of detail, each half of the one below: 1 to 16, others are taken as these.
    pub levels: u32,
    /// Gaussians of a file, about; at least 1.
    pub chunk_splats: usize,
    /// Widest box, scene units, above 0.
    pub extent: f64,
    /// Of the files.
    pub sog: SogOptions,
}

impl Default for StreamedOptions {
    fn default() -> Self {
        Self { levels: 4, chunk_splats: 512 * 1024, extent: 16.0, sog: SogOptions::default() }
    }
}

/// Writes the parts of a streamed SOG, `lod-meta.json` last. Returns how far from the argument the
/// finest level is.
pub fn write_streamed(
    splats: &Splats,
    options: &StreamedOptions,
    sink: &mut dyn PartSink,
) -> Result<WorstErrors, SogError> {
    let mut levels = vec![splats.clone()];
    for level in 1..options.levels.clamp(1, MOST_LEVELS) as usize {
        levels.push(coarser(&levels[level - 1]));
    }
    let mut rows: Vec<LevelRow> = (0..)
        .zip(&levels)
        .flat_map(|(level, splats)| {
            (0..to_u32(splats.len())).map(move |row| LevelRow { level, row })
        })
        .collect();
    let rule = SplitRule {
        most_rows: options.chunk_splats,
        most_extent: options.extent,
        least_rows: LEAST_SPLIT,
    };
    let tree = split(&levels, &mut rows, &rule);
    drop(rows);
    let mut chunks =
        ChunkLists { levels: &levels, most_rows: options.chunk_splats, files: Vec::new() };
    let tree = chunks.describe(&tree);
    let files = chunks.files;
    let mut worst = WorstErrors::default();
    for file in &files {
        let chunk = levels[file.level as usize].rows(&file.rows);
        let folder = file.name.trim_end_matches("meta.json");
        let mut inside = PrefixedSink { prefix: folder, sink };
        let weights = areas(chunk.columns());
        let errors = write_in_order(&chunk, &weights, &options.sog, &mut inside)?;
        if file.level == 0 {
            worst = worst.or(errors);
        }
    }
    let counts: Vec<u64> = levels.iter().map(|level| level.len() as u64).collect();
    let meta = StreamedMeta {
        version: VERSION,
        asset: Some(StreamedAsset { generator: "splat".to_owned() }),
        count: counts.iter().sum(),
        counts,
        lod_levels: to_u32(levels.len()),
        filenames: files.into_iter().map(|file| file.name).collect(),
        tree,
    };
    sink.put(LOD_META_NAME, &serde_json::to_vec(&meta).map_err(io::Error::other)?)?;
    Ok(worst)
}

/// A file to be written: rows of one level.
struct ChunkFile {
    name: String,
    level: u32,
    rows: Vec<u32>,
}

/// The files, filled leaf by leaf.
struct ChunkLists<'a> {
    levels: &'a [Splats],
    most_rows: usize,
    files: Vec<ChunkFile>,
}

impl ChunkLists<'_> {
    fn describe(&mut self, node: &SplitNode) -> StreamedNode {
        match node {
            SplitNode::Inner(children) => {
                let children: Vec<_> = children.iter().map(|child| self.describe(child)).collect();
                let bounds = children.iter().map(|child| child.bound);
                let bound = bounds.reduce(union).unwrap_or(NOWHERE);
                StreamedNode { bound, children, lods: BTreeMap::new() }
            }
            SplitNode::Leaf(rows) => {
                let bounds = rows
                    .iter()
                    .map(|it| bound_of(self.levels[it.level as usize].columns(), it.row as usize));
                let bound = bounds.reduce(union).unwrap_or(NOWHERE);
                let mut lods = BTreeMap::new();
                for level in 0..to_u32(self.levels.len()) {
                    let rows: Vec<u32> =
                        rows.iter().filter(|it| it.level == level).map(|it| it.row).collect();
                    if !rows.is_empty() {
                        lods.insert(level, self.add(level, &rows));
                    }
                }
                StreamedNode { bound, children: Vec::new(), lods }
            }
        }
    }

    /// Puts a run behind those of its level, or into a new file where that would be too long.
    fn add(&mut self, level: u32, rows: &[u32]) -> StreamedRun {
        let of_level = |file: &ChunkFile| file.level == level;
        let last = self.files.iter().rposition(of_level);
        let fits = |file: usize| self.files[file].rows.len() + rows.len() <= self.most_rows;
        let file = last.filter(|&file| fits(file)).unwrap_or_else(|| {
            let number = self.files.iter().filter(|file| of_level(file)).count();
            let name = format!("{level}_{number}/meta.json");
            self.files.push(ChunkFile { name, level, rows: Vec::new() });
            self.files.len() - 1
        });
        let means = &self.levels[level as usize].columns().means;
        let places: Vec<[f32; 3]> = rows.iter().map(|&row| means[row as usize]).collect();
        let sorted = morton_order(&places).into_iter().map(|at| rows[at as usize]);
        let offset = self.files[file].rows.len();
        self.files[file].rows.extend(sorted);
        StreamedRun { file, offset, count: rows.len() }
    }
}

/// The box of nothing.
const NOWHERE: StreamedBound = StreamedBound { min: [0.0; 3], max: [0.0; 3] };

/// A folder in another place for parts.
struct PrefixedSink<'a> {
    prefix: &'a str,
    sink: &'a mut dyn PartSink,
}

impl PartSink for PrefixedSink<'_> {
    fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.sink.put(&format!("{}{name}", self.prefix), bytes)
    }
}
