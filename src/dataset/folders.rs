//! Finds models and photographs of a scene, and lists what a folder without a scene holds.

use std::fs;
use std::path::{Path, PathBuf};

use super::colmap::FoundModel;
use super::error::DatasetError;
use super::finder::{Finder, ForeignName, FoundFiles, Reach, Wanted, photographs_in};
use super::listing::first_few;
use super::{colmap, transforms};

/// The folder of photographs where no other is named.
const USUAL: &str = "images";

/// Folders of photographs beside [`USUAL`], in the order in which they are tried.
const OTHERS: [&str; 6] = ["input", "image", "imgs", "photos", "rgb", "color"];

/// COLMAP models of photographs before their lenses were taken out, below the scene.
const DISTORTED: &str = "distorted";

/// The photographs of a scene.
#[derive(Debug)]
pub(super) struct Located {
    /// The folder that most of them lie in.
    pub(super) folder: PathBuf,
    /// The files of the names.
    pub(super) files: FoundFiles,
    /// True if a file may be a copy of another size than its camera's photograph.
    pub(super) may_be_scaled: bool,
    /// Things the user should know, one sentence each.
    pub(super) warnings: Vec<String>,
}

/// True if the scene has a transforms file.
pub(super) fn has_transforms(root: &Path) -> bool {
    [transforms::BLENDER_TRAIN, transforms::NERFSTUDIO].iter().any(|name| root.join(name).is_file())
}

/// The COLMAP model of a scene, unless a transforms file describes the scene.
pub(super) fn model(root: &Path) -> Option<FoundModel> {
    colmap::find(root, has_transforms(root))
}

/// The COLMAP model of a scene in an unusual folder, beside its photographs.
pub(super) fn model_anywhere(root: &Path, images: &str) -> Option<FoundModel> {
    let has_own = |folder: &Path| !beside_model(folder, images).is_empty();
    has_own(root).then(|| colmap::find_anywhere(root, &has_own)).flatten()
}

/// Folders that exist and may hold the photographs of a scene.
fn beside_model(root: &Path, images: &str) -> Vec<PathBuf> {
    let mut folders = vec![root.join(images)];
    folders.extend(beside(root));
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Finds the photographs of a COLMAP model.
pub(super) fn of_colmap(
    root: &Path,
    model: &Path,
    images: &str,
    names: &[&str],
) -> Result<Located, DatasetError> {
    let expected = root.join(images);
    DatasetError::check_folder(&expected)?;
    let folders = folders(root, model, images);
    let mut first = None;
    for folder in folders {
        let reach = if folder == root { Reach::Paths } else { Reach::Anywhere };
        let finder = Finder::new(folder.clone(), reach);
        let files = finder.find(names, Wanted::Photograph);
        let is_found = files.count() > 0;
        let mut located = Located { folder, files, may_be_scaled: false, warnings: Vec::new() };
        if is_found {
            located.warnings.extend(moved(root, &expected, &located.folder));
            located.warnings.extend(unused(&finder, &located));
            return Ok(located);
        }
        if located.folder != root {
            first.get_or_insert(located);
        }
    }
    first.ok_or_else(|| missing(root, expected))
}

/// Finds the photographs of a transforms file. A folder that is named takes the place of the frames' own.
pub(super) fn of_transforms(
    root: &Path,
    images: &str,
    names: &[&str],
) -> Result<Located, DatasetError> {
    let expected = root.join(images);
    if images != USUAL {
        DatasetError::check_folder(&expected)?;
        if !expected.is_dir() {
            return Err(missing(root, expected));
        }
        // Below this folder even if a name is an absolute path.
        let below: Vec<String> =
            names.iter().map(|name| ForeignName::new(name).after_parts(0)).collect();
        let below: Vec<&str> = below.iter().map(String::as_str).collect();
        let mut files =
            Finder::new(expected.clone(), Reach::Anywhere).find(&below, Wanted::Photograph);
        // Where they are found is what was asked for.
        files.elsewhere = 0;
        return Ok(Located { folder: expected, files, may_be_scaled: true, warnings: Vec::new() });
    }
    let mut files = Finder::new(root.to_owned(), Reach::Paths).find(names, Wanted::Photograph);
    if expected.is_dir() && files.count() < names.len() {
        fill(&mut files, names, &Finder::new(expected, Reach::Anywhere));
    }
    if files.count() > 0 {
        let folder = root.to_owned();
        return Ok(Located { folder, files, may_be_scaled: false, warnings: Vec::new() });
    }
    for folder in beside(root) {
        fill(&mut files, names, &Finder::new(folder.clone(), Reach::Anywhere));
        if files.count() > 0 {
            let warnings = moved(root, &root.join(USUAL), &folder).into_iter().collect();
            return Ok(Located { folder, files, may_be_scaled: true, warnings });
        }
    }
    let folder = root.to_owned();
    Ok(Located { folder, files, may_be_scaled: false, warnings: Vec::new() })
}

/// Looks for the names without a file in another folder.
fn fill(files: &mut FoundFiles, names: &[&str], finder: &Finder) {
    let without: Vec<usize> = (0..names.len()).filter(|&at| files.paths[at].is_none()).collect();
    let sought: Vec<&str> = without.iter().map(|&at| names[at]).collect();
    let found = finder.find(&sought, Wanted::Photograph);
    files.elsewhere += found.count();
    for (at, path) in without.into_iter().zip(found.paths) {
        files.paths[at] = path;
    }
}

/// True if there is a folder that may hold the photographs of a COLMAP model.
pub(super) fn has_photographs(root: &Path, model: &Path, images: &str) -> bool {
    folders(root, model, images).iter().any(|folder| folder != root)
}

/// Folders that exist and may hold the photographs of a model, the likeliest first.
fn folders(root: &Path, model: &Path, images: &str) -> Vec<PathBuf> {
    let above = model.ancestors().skip(1).take_while(|folder| folder.starts_with(root));
    let mut folders: Vec<PathBuf> = above.map(|folder| folder.join(images)).collect();
    if images == USUAL {
        // The lens is still in the photographs of such a model, which are not those of `images`.
        if model.starts_with(root.join(DISTORTED)) {
            let at = folders.len().saturating_sub(1);
            folders.insert(at, root.join(OTHERS[0]));
        }
        folders.extend(beside(root));
        folders.push(root.to_owned());
    }
    if model == root {
        folders.insert(0, root.join(images));
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Folders of photographs beside the usual one that exist: smaller copies last, the largest first.
fn beside(root: &Path) -> Vec<PathBuf> {
    let names = names_in(root);
    let others = [USUAL].into_iter().chain(OTHERS).flat_map(|other| {
        names.iter().filter(move |name| name.eq_ignore_ascii_case(other) && *name != USUAL)
    });
    let mut folders: Vec<PathBuf> = others.map(|name| root.join(name)).collect();
    let copies = names.iter().cloned().filter_map(|name| {
        let divisor: u32 = name.strip_prefix("images_")?.parse().ok()?;
        Some((divisor, name))
    });
    let mut copies: Vec<(u32, String)> = copies.collect();
    copies.sort_unstable();
    folders.extend(copies.into_iter().map(|(_, name)| root.join(name)));
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Warns that the photographs are not where they are expected.
fn moved(root: &Path, expected: &Path, folder: &Path) -> Option<String> {
    (folder != expected).then(|| {
        let why = if expected.is_dir() { "holds none of them" } else { "does not exist" };
        let shown = match folder.strip_prefix(root) {
            Ok(below) if below.as_os_str().is_empty() => folder,
            Ok(below) => below,
            Err(_) => folder,
        };
        format!("the photographs are taken from {}: {} {why}", shown.display(), expected.display())
    })
}

/// Warns that photographs are in no model.
fn unused(finder: &Finder, located: &Located) -> Option<String> {
    if located.folder != finder.folder() {
        return None;
    }
    let [all, unused] = finder.unused(&located.files.paths);
    (unused > 0).then(|| {
        format!(
            "{unused} of the {all} photographs in {} have no camera in the COLMAP model",
            located.folder.display()
        )
    })
}

fn missing(root: &Path, path: PathBuf) -> DatasetError {
    let mut others = with_photographs(root);
    let is_scene = |folder: &&Path| folder.join(USUAL).is_dir() && model(folder).is_some();
    if others.is_empty()
        && let Some(scene) = root.ancestors().skip(1).take(2).find(is_scene)
    {
        others = format!(", or use -s {}", scene.display());
    }
    DatasetError::ImagesMissing { path, others }
}

/// Folders of a scene that hold photographs, after a colon; empty if there are none.
pub(super) fn with_photographs(root: &Path) -> String {
    let mut found = Vec::new();
    for name in names_in(root) {
        let below = names_in(&root.join(&name)).into_iter().map(|inner| format!("{name}/{inner}"));
        let below: Vec<String> = below.collect();
        found.extend(std::iter::once(name).chain(below));
    }
    found.retain(|name| photographs_in(&root.join(name)) > 0);
    if found.is_empty() { String::new() } else { format!(": {}", first_few(&found)) }
}

/// Returns the error of a folder without a scene, with its contents.
pub(super) fn not_a_scene(root: &Path) -> DatasetError {
    let names = names_in(root);
    let is_scene = |name: &&String| {
        let folder = root.join(name);
        has_transforms(&folder) || model(&folder).is_some()
    };
    let scene = names.iter().find(is_scene).map(|name| root.join(name));
    let above = root
        .ancestors()
        .skip(1)
        .take(2)
        .find(|folder| !folder.as_os_str().is_empty() && model(folder).is_some());
    let remedy = match (scene.as_deref(), above) {
        (Some(scene), _) | (None, Some(scene)) => format!("Use -s {}", scene.display()),
        (None, None) => unsolved(root, &names),
    };
    let described = names.iter().map(|name| match photographs_in(&root.join(name)) {
        0 => format!("{name}/"),
        count => format!("{name}/ ({count} photographs)"),
    });
    let described: Vec<String> = described.collect();
    let content = match (described.is_empty(), photographs_in(root)) {
        (false, _) => first_few(&described),
        (true, 0) => "no folders".to_owned(),
        (true, count) => format!("{count} photographs"),
    };
    DatasetError::NotAScene { path: root.to_owned(), content, remedy }
}

/// Says how a folder without a scene becomes one.
fn unsolved(root: &Path, names: &[String]) -> String {
    let shown = root.display();
    /// Files or folders of data of other programs, and the command that makes a scene of the data.
    const PROGRAMS: [(&[&str], &str); 6] = [
        (&["keyframes/cameras"], "Convert Polycam's data: ns-process-data polycam --data"),
        (
            &["keyframes/corrected_cameras"],
            "Convert Polycam's data: ns-process-data polycam --data",
        ),
        (&["metadata", "rgb"], "Convert Record3D's data: ns-process-data record3d --data"),
        (&["reconstruction.json"], "Convert OpenSfM's data: opensfm export_colmap"),
        (&["odm_report"], "Convert OpenDroneMap's data: ns-process-data odm --data"),
        (
            &["cameras.xml"],
            "Convert Metashape's data: ns-process-data metashape --xml cameras.xml --data",
        ),
    ];
    let program =
        PROGRAMS.iter().find(|(marks, _)| marks.iter().all(|mark| root.join(mark).exists()));
    if let Some((_, command)) = program {
        return format!("{command} {shown}");
    }
    if let Some(name) = misnamed_transforms(root) {
        return format!("Rename {name} to {}", transforms::NERFSTUDIO);
    }
    let photographs = names.iter().find(|name| photographs_in(&root.join(name)) > 0);
    match (photographs, photographs_in(root)) {
        (None, 0) => "Give the folder that holds sparse and images after -s".to_owned(),
        (folder, _) => {
            let folder = folder.map_or_else(|| root.to_owned(), |name| root.join(name));
            format!(
                "Solve the cameras: colmap automatic_reconstructor --dense 0 --workspace_path {shown} \
                 --image_path {}",
                folder.display()
            )
        }
    }
}

/// A file that is named nearly as a transforms file.
fn misnamed_transforms(root: &Path) -> Option<String> {
    let names = fs::read_dir(root).ok()?.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort_unstable();
    names.into_iter().find(|name| {
        let name = name.to_lowercase();
        name.starts_with("transforms") && name.ends_with(".json")
    })
}

/// Names of the folders in a folder, in order; none where it cannot be listed.
fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> =
        folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}
