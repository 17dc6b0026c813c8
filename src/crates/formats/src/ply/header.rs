//! The header of a PLY of Gaussians.

use splat_mesh::file::ply::{PlyElement, PlyEncoding, PlyHeader, PlyProperty, Scalar};

use crate::fault::FormatFault;

/// The comment by which viewers know Gaussians of Mip-Splatting.
pub const MIP_COMMENT: &str = "SplatRenderMode: mip";

/// The comment by which viewers know surfels.
pub const SURFELS_COMMENT: &str = "SplatRenderMode: 2dgs";

/// Columns that point clouds and meshes do not have.
const OF_GAUSSIANS: [&str; 4] = ["scale_0", "rot_0", "opacity", "f_dc_0"];

/// Returns the column of this name, of one of these types.
pub(super) fn column<'a>(
    element: &'a PlyElement,
    name: &str,
    kinds: &[Scalar],
) -> Result<&'a PlyProperty, FormatFault> {
    let mut named = element.properties.iter().filter(|property| property.name == name);
    let Some(found) = named.next() else {
        let is_of_gaussians = OF_GAUSSIANS.into_iter().any(|name| element.has(name));
        return Err(FormatFault::Unsupported(if is_of_gaussians {
            format!("has no column `{name}`, which Gaussians need: export all columns")
        } else {
            format!(
                "has no column `{name}`, so it is a point cloud or a mesh: give a PLY of Gaussians"
            )
        }));
    };
    if named.next().is_some() {
        return Err(FormatFault::damaged(format!("lists the column `{name}` twice")));
    }
    if !kinds.contains(&found.scalar) || found.list.is_some() {
        let list = if found.list.is_some() { "list of " } else { "" };
        return Err(FormatFault::damaged(format!(
            "has another layout than that of Gaussians: the column `{name}` is of type {list}{}",
            found.scalar.name()
        )));
    }
    Ok(found)
}

/// Returns the element of this name and its index.
pub(super) fn element<'a>(
    header: &'a PlyHeader,
    name: &str,
) -> Result<(usize, &'a PlyElement), FormatFault> {
    let mut elements = header.elements.iter().enumerate();
    elements
        .find(|(_, element)| element.name == name)
        .ok_or_else(|| FormatFault::damaged(format!("no `element {name}` stands in its header")))
}

/// Returns the least number of bytes of an element's rows.
pub(super) fn least_bytes(element: &PlyElement, encoding: PlyEncoding) -> u64 {
    let row: usize = match encoding {
        // A character and a space each.
        PlyEncoding::Ascii => 2 * element.properties.len(),
        _ => {
            let lengths = element.properties.iter().filter_map(|it| it.list).map(Scalar::bytes);
            element.row_bytes + lengths.sum::<usize>()
        }
    };
    element.rows.saturating_mul(row as u64)
}

/// Checks that a file is long enough for its elements up to this index.
pub(super) fn check_length(
    header: &PlyHeader,
    last: usize,
    file_bytes: u64,
) -> Result<(), FormatFault> {
    let elements = header.elements.iter().take(last + 1);
    let needed =
        elements.fold(0_u64, |sum, it| sum.saturating_add(least_bytes(it, header.encoding)));
    // The last line of a text may have no end.
    let found = file_bytes.saturating_sub(header.bytes);
    let room = found + u64::from(header.encoding == PlyEncoding::Ascii);
    if needed > room {
        return Err(FormatFault::truncated("its table of Gaussians", needed, found));
    }
    Ok(())
}

/// True if the Gaussians want the 2D filter of Mip-Splatting, as Brush and others say it or as Postshot
/// does; the last word counts.
pub(super) fn is_antialiased(header: &PlyHeader) -> bool {
    let mut said = header.comments.iter().filter_map(|comment| {
        let comment = comment.to_ascii_lowercase();
        let (key, value) = comment.split_once(' ')?;
        match key {
            "splatrendermode:" => Some(value == "mip"),
            "antialiased" => Some(value == "1"),
            _ => None,
        }
    });
    said.next_back().unwrap_or(false)
}
