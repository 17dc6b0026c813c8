//! Streamed SOG, read: the finest level.

use super::meta::{LOD_META_NAME, StreamedMeta, StreamedNode, StreamedRun, VERSION};
use crate::fault::FormatFault;
use crate::folder::{PartSource, check_name};
use crate::json::parse_json;
use crate::sog::read_sog;
use crate::splats::{CheckedSplats, SplatColumns, Splats};
use splat_mesh::narrow::to_u32;

/// Bytes of `lod-meta.json`: a tree of 10,000 boxes, more than the largest scenes have.
const MOST_META_BYTES: u64 = 4 << 20;

/// Reads the finest level of a streamed SOG from its parts; a scene around it, if there is one, is
/// left out.
pub fn read_streamed(parts: &mut dyn PartSource) -> Result<CheckedSplats, FormatFault> {
    let meta: StreamedMeta =
        parse_json(LOD_META_NAME, &parts.get(LOD_META_NAME, MOST_META_BYTES)?)?;
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
        let found = read_sog(&mut ChunkSource::new(name, parts)?)?;
        all.dropped += found.dropped;
        if found.dropped > 0 {
            return Err(FormatFault::damaged(format!("has rows in {name} that cannot be drawn")));
        }
        append(&mut columns, chosen(name, &found.splats, runs)?)?;
    }
    all.splats = Splats::from_columns(columns.unwrap_or_default())?.splats;
    if let Some(&expected) = meta.counts.first()
        && expected != all.splats.len() as u64
    {
        return Err(FormatFault::damaged(format!(
            "announces {expected} Gaussians in its finest level, but names {}",
            all.splats.len()
        )));
    }
    if meta.lod_levels > 1 {
        all.notes.push(format!("of {} levels of detail the finest is read", meta.lod_levels));
    }
    Ok(all)
}

/// Runs of level 0 by file. The tree is no deeper than the JSON may be.
fn collect_finest(node: &StreamedNode, runs: &mut [Vec<StreamedRun>]) -> Result<(), FormatFault> {
    if let Some(run) = node.lods.get(&0) {
        let file = runs.get_mut(run.file).ok_or_else(|| {
            FormatFault::damaged(format!("names file {}, which is not in its list", run.file))
        })?;
        file.push(*run);
    }
    node.children.iter().try_for_each(|child| collect_finest(child, runs))
}

/// The rows of runs, which must not name one twice.
fn chosen(name: &str, splats: &Splats, runs: &[StreamedRun]) -> Result<Splats, FormatFault> {
    let mut order = Vec::new();
    for run in runs {
        let end = run.offset.checked_add(run.count).filter(|&end| end <= splats.len());
        let Some(end) = end.filter(|_| order.len() + run.count <= splats.len()) else {
            return Err(FormatFault::damaged(format!(
                "names {} rows from {} of {name}, which has {}",
                run.count,
                run.offset,
                splats.len()
            )));
        };
        order.extend(to_u32(run.offset)..to_u32(end));
    }
    Ok(splats.rows(&order))
}

fn append(to: &mut Option<SplatColumns>, more: Splats) -> Result<(), FormatFault> {
    let more = more.into_columns();
    let Some(to) = to else {
        *to = Some(more);
        return Ok(());
    };
    if to.sh_degree != more.sh_degree {
        return Err(FormatFault::damaged(format!(
            "has files of SH degree {} and {}",
            to.sh_degree, more.sh_degree
        )));
    }
    to.means.extend(more.means);
    to.log_scales.extend(more.log_scales);
    to.rotations.extend(more.rotations);
    to.opacity_logits.extend(more.opacity_logits);
    to.sh_dc.extend(more.sh_dc);
    to.sh_rest.extend(more.sh_rest);
    Ok(())
}

/// The parts in a folder of the others.
struct ChunkSource<'a> {
    folder: &'a str,
    parts: &'a mut dyn PartSource,
}

impl<'a> ChunkSource<'a> {
    /// The folder of a file name as the list has it: `folder/meta.json`.
    fn new(name: &'a str, parts: &'a mut dyn PartSource) -> Result<Self, FormatFault> {
        let folder = name.strip_suffix("/meta.json").unwrap_or(name);
        check_name(folder)?;
        Ok(Self { folder, parts })
    }
}

impl PartSource for ChunkSource<'_> {
    fn get(&mut self, name: &str, most_bytes: u64) -> Result<Vec<u8>, FormatFault> {
        self.parts.get(&format!("{}/{name}", self.folder), most_bytes)
    }

    fn total_bytes(&self) -> u64 {
        self.parts.total_bytes()
    }
}
