//! Synthetic scenes on disk, of which each is drawn once in a test program: many tests want the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use splat::synth::{SynthOptions, write_scene};

/// Contents of a scene's files, by their paths in its folder.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Scenes by their options.
static DRAWN: Mutex<BTreeMap<String, Arc<OnceLock<Files>>>> = Mutex::new(BTreeMap::new());

/// Writes the scene of these options, as `splat synth` does.
pub fn write_synthetic(folder: &Path, options: &SynthOptions) {
    let scene = Arc::clone(DRAWN.lock().unwrap().entry(format!("{options:?}")).or_default());
    for (name, content) in scene.get_or_init(|| drawn(options)) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

fn drawn(options: &SynthOptions) -> Files {
    let folder = tempfile::tempdir().unwrap();
    write_scene(folder.path(), options).unwrap();
    let folders = ["images", "sparse/0"].map(|name| folder.path().join(name));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    paths
        .map(|path| {
            let content = fs::read(&path).unwrap();
            (path.strip_prefix(folder.path()).unwrap().to_owned(), content)
        })
        .collect()
}
