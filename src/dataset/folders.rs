//! Finds models and photographs of a scene, and describes a folder without a scene.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::colmap::{self, FoundModel};
use super::error::DatasetError;
use super::finder::{
    Finder, ForeignName, FoundFiles, Reach, Wanted, extension_of, first_few, photographs_in,
};
use super::shot::UNREAD_EXTENSIONS;
use super::transforms;
use crate::files::{entries, shell_word};

const DEFAULT_FOLDER: &str = "images";

/// Other folders of photographs, in search order.
const OTHER_FOLDERS: [&str; 6] = ["input", "image", "imgs", "photos", "rgb", "color"];

/// Largest number of pictures in a folder of results, such as a preview of a model.
const MAX_RESULT_IMAGES: usize = 3;

/// Folder of COLMAP models of distorted photographs, below the scene.
const DISTORTED: &str = "distorted";

/// Cameras that Metashape exports.
const METASHAPE: &str = "cameras.xml";

/// Files that a folder without a scene lacks, for its error.
const SOUGHT: &str = ": no sparse/0, no transforms.json";

#[derive(Debug)]
pub(super) struct Located {
    /// Folder of most photographs.
    pub(super) folder: PathBuf,
    pub(super) files: FoundFiles,
    /// True if a file may be a resized copy of its camera's photograph.
    pub(super) may_be_scaled: bool,
    pub(super) warnings: Vec<String>,
}

pub(super) fn has_transforms(root: &Path) -> bool {
    [transforms::BLENDER_TRAIN, transforms::NERFSTUDIO].iter().any(|name| root.join(name).is_file())
}

/// Finds the COLMAP model of a scene without a transforms file: in a usual folder, else in any.
pub(super) fn model(root: &Path, images: &str) -> Option<FoundModel> {
    usual_model(root).or_else(|| model_anywhere(root, images))
}

fn usual_model(root: &Path) -> Option<FoundModel> {
    colmap::find(root, has_transforms(root))
}

/// Finds the COLMAP model of a scene in an unusual folder, beside its photographs.
fn model_anywhere(root: &Path, images: &str) -> Option<FoundModel> {
    let own = beside_model(root, images);
    if own.is_empty() || has_transforms(root) {
        return None;
    }
    // Other paths, such as `.` or absolute ones, exist in every folder.
    let mut parts = Path::new(images).components();
    let name = match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => images,
        _ => DEFAULT_FOLDER,
    };
    let is_other_scene = |folder: &Path| !beside_model(folder, name).is_empty();
    let holds_photographs = |folder: &Path| {
        own.iter().any(|own| own == folder) || photographs_in(folder) > MAX_RESULT_IMAGES
    };
    colmap::find_anywhere(root, &is_other_scene, &holds_photographs)
}

/// Lists the existing folders that may hold the photographs of a scene.
fn beside_model(root: &Path, images: &str) -> Vec<PathBuf> {
    let mut folders = vec![root.join(images)];
    folders.extend(beside(root));
    folders.retain(|folder| folder.is_dir());
    folders
}

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

/// Finds the photographs of a transforms file. A named folder replaces the frames' own paths.
pub(super) fn of_transforms(
    root: &Path,
    images: &str,
    names: &[&str],
) -> Result<Located, DatasetError> {
    let expected = root.join(images);
    if images != DEFAULT_FOLDER {
        DatasetError::check_folder(&expected)?;
        if !expected.is_dir() {
            return Err(missing(root, expected));
        }
        // Also below this folder if a name is an absolute path.
        let below: Vec<String> =
            names.iter().map(|name| ForeignName::new(name).after_parts(0)).collect();
        let below: Vec<&str> = below.iter().map(String::as_str).collect();
        let mut files =
            Finder::new(expected.clone(), Reach::Anywhere).find(&below, Wanted::Photograph);
        // The user named this folder, so nothing is elsewhere.
        files.elsewhere = 0;
        return Ok(Located { folder: expected, files, may_be_scaled: true, warnings: Vec::new() });
    }
    let mut files = Finder::new(root.to_owned(), Reach::Paths).find(names, Wanted::Photograph);
    if expected.is_dir() && files.count() < names.len() {
        fill(&mut files, names, &Finder::new(expected, Reach::Anywhere));
    }
    if files.count() == 0 {
        for folder in beside(root) {
            fill(&mut files, names, &Finder::new(folder.clone(), Reach::Anywhere));
            if files.count() > 0 {
                let warnings = moved(root, &root.join(DEFAULT_FOLDER), &folder);
                let warnings = warnings.into_iter().collect();
                return Ok(Located { folder, files, may_be_scaled: true, warnings });
            }
        }
    }
    let folder = root.to_owned();
    Ok(Located { folder, files, may_be_scaled: false, warnings: Vec::new() })
}

/// Searches another folder for the names without a file.
fn fill(files: &mut FoundFiles, names: &[&str], finder: &Finder) {
    let without: Vec<usize> = (0..names.len()).filter(|&at| files.paths[at].is_none()).collect();
    let sought: Vec<&str> = without.iter().map(|&at| names[at]).collect();
    let found = finder.find(&sought, Wanted::Photograph);
    files.elsewhere += found.count();
    for (at, path) in without.into_iter().zip(found.paths) {
        files.paths[at] = path;
    }
}

/// True if a folder exists that may hold the photographs of a COLMAP model.
pub(super) fn has_photographs(root: &Path, model: &Path, images: &str) -> bool {
    folders(root, model, images).iter().any(|folder| images != DEFAULT_FOLDER || folder != root)
}

/// Lists the existing folders that may hold the photographs of a model, likeliest first.
fn folders(root: &Path, model: &Path, images: &str) -> Vec<PathBuf> {
    let above = model.ancestors().skip(1).take_while(|folder| folder.starts_with(root));
    let mut folders: Vec<PathBuf> = above.map(|folder| folder.join(images)).collect();
    if images == DEFAULT_FOLDER {
        // The photographs of such a model are distorted, unlike those of `images`.
        if model.starts_with(root.join(DISTORTED)) {
            let at = folders.len().saturating_sub(1);
            folders.insert(at, root.join(OTHER_FOLDERS[0]));
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

/// Lists the existing folders besides the default: reduced copies last, the largest first.
fn beside(root: &Path) -> Vec<PathBuf> {
    let names = names_in(root);
    let others = [DEFAULT_FOLDER].into_iter().chain(OTHER_FOLDERS).flat_map(|other| {
        names.iter().filter(move |name| name.eq_ignore_ascii_case(other) && *name != DEFAULT_FOLDER)
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

/// Warns of photographs without a camera.
fn unused(finder: &Finder, located: &Located) -> Option<String> {
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
    let is_scene =
        |folder: &&Path| folder.join(DEFAULT_FOLDER).is_dir() && usual_model(folder).is_some();
    if others.is_empty()
        && let Some(scene) = root.ancestors().skip(1).take(2).find(is_scene)
    {
        others = format!(", or use -s {}", shell_word(scene));
    }
    DatasetError::ImagesMissing { path, others }
}

/// Lists the folders of a scene that hold photographs, after a colon; empty if there are none.
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
        has_transforms(&folder) || usual_model(&folder).is_some()
    };
    let scene = names.iter().find(is_scene).map(|name| root.join(name));
    let above = root
        .ancestors()
        .skip(1)
        .take(2)
        .find(|folder| !folder.as_os_str().is_empty() && usual_model(folder).is_some());
    let path = root.to_owned();
    let remedy = match (scene.as_deref(), above) {
        (Some(scene), _) | (None, Some(scene)) => format!("Use -s {}", shell_word(scene)),
        (None, None) => match foreign(root, &names) {
            Some((program, remedy)) => {
                let content = format!("{program}'s data");
                return DatasetError::NotAScene { path, content, sought: "", remedy };
            }
            None => unsolved(root, &names),
        },
    };
    let described = names.iter().map(|name| match photographs_in(&root.join(name)) {
        0 => format!("{name}/"),
        count => format!("{name}/ ({count} photographs)"),
    });
    let described: Vec<String> = described.collect();
    let content = match (described.is_empty(), photographs_in(root)) {
        (false, _) => first_few(&described),
        (true, 0) => match first_of(root, &VIDEOS).or_else(|| first_of(root, &UNREAD_EXTENSIONS)) {
            Some(file) => format!("no folders, {}", file.file_name().unwrap_or_default().display()),
            None => "no folders".to_owned(),
        },
        (true, count) => format!("{count} photographs"),
    };
    DatasetError::NotAScene { path, content, sought: SOUGHT, remedy }
}

/// Returns the program whose data a folder holds, and the command that converts the data to a scene.
fn foreign(root: &Path, names: &[String]) -> Option<(&'static str, String)> {
    /// Files that identify a program's data, the program, and the subcommand for its data.
    const PROGRAMS: [(&[&str], &str, &str); 7] = [
        (&["keyframes/cameras"], "Polycam", "polycam"),
        (&["keyframes/corrected_cameras"], "Polycam", "polycam"),
        (&["metadata", "rgb"], "Record3D", "record3d"),
        (&["metadata.json", "rgb"], "Record3D", "record3d"),
        (&["reconstruction.json"], "OpenSfM", ""),
        (&["odm_report"], "OpenDroneMap", "odm"),
        (&[METASHAPE], "Metashape", "metashape"),
    ];
    let is_there =
        |(marks, ..): &&(&[&str], _, _)| marks.iter().all(|mark| root.join(mark).exists());
    let (_, program, command) = PROGRAMS.iter().find(is_there)?;
    let shown = shell_word(root);
    let processed = shell_word(&root.join("processed"));
    let data = match *program {
        "OpenSfM" => {
            let remedy = format!("Run opensfm export_colmap {shown} && splat train -s {shown}");
            return Some((program, remedy));
        }
        // ns-process-data does not search subfolders for photographs.
        "Metashape" => {
            let photographs = photographs_of(root, names).unwrap_or_else(|| root.to_owned());
            let xml = shell_word(&root.join(METASHAPE));
            format!("{} --xml {xml}", shell_word(&photographs))
        }
        _ => shown,
    };
    let remedy = format!(
        "Run ns-process-data {command} --data {data} --output-dir {processed} && splat train -s {processed}"
    );
    Some((program, remedy))
}

/// Returns a folder of photographs of a scene without cameras.
fn photographs_of(root: &Path, names: &[String]) -> Option<PathBuf> {
    let below = names.iter().map(|name| root.join(name));
    below.chain([root.to_owned()]).find(|folder| photographs_in(folder) > 0)
}

/// Returns the remedy for a folder without cameras.
fn unsolved(root: &Path, names: &[String]) -> String {
    if let Some(name) = misnamed_transforms(root) {
        return format!("Rename {name} to {}", transforms::NERFSTUDIO);
    }
    let solve = |folder: &Path| {
        format!(
            "colmap automatic_reconstructor --dense 0 --workspace_path {} --image_path {}",
            shell_word(root),
            shell_word(folder)
        )
    };
    if let Some(folder) = photographs_of(root, names) {
        return format!("Run {}", solve(&folder));
    }
    let below = names.iter().map(|name| root.join(name));
    let folders: Vec<PathBuf> = std::iter::once(root.to_owned()).chain(below).collect();
    let images = root.join("images");
    let made = shell_word(&images);
    if let Some(video) = folders.iter().find_map(|folder| first_of(folder, &VIDEOS)) {
        let video = shell_word(&video);
        return format!(
            "Run mkdir -p {made} && ffmpeg -i {video} -r 2 {made}/%05d.jpg, then this again"
        );
    }
    if let Some(raw) = folders.iter().find_map(|folder| first_of(folder, &UNREAD_EXTENSIONS)) {
        let folder = shell_word(raw.parent().unwrap_or(root));
        let shown = raw.extension().unwrap_or_default().display();
        return format!(
            "Run mkdir -p {made} && magick mogrify -format jpg -path {made} {folder}/*.{shown}, then this again"
        );
    }
    "Give the folder that holds sparse and images after -s".to_owned()
}

/// Extensions of videos, lower case.
const VIDEOS: [&str; 8] = ["mp4", "mov", "m4v", "avi", "mkv", "webm", "mts", "insv"];

/// Returns the first file, by name, with one of these extensions.
fn first_of(folder: &Path, extensions: &[&str]) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    files.filter(|path| path.is_file() && extensions.contains(&extension_of(path).as_str())).min()
}

/// Returns a file whose name is nearly that of a transforms file.
fn misnamed_transforms(root: &Path) -> Option<String> {
    let entries = entries(root).into_iter();
    let mut names = entries.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    names.find(|name| {
        let name = name.to_lowercase();
        name.starts_with("transforms") && name.ends_with(".json")
    })
}

/// Lists the names of the folders in a folder, sorted; empty if it cannot be listed.
fn names_in(folder: &Path) -> Vec<String> {
    let folders = entries(folder).into_iter().filter(|path| path.is_dir());
    folders.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
}
