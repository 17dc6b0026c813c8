//! Places with trained models that several tests start from. Each is trained once, when the first test
//! asks for it; no test changes it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::common::program::{TestFolder, files_below};

/// The folder of this process's fixtures. It is locked while the process lives; the next process that
/// finds it unlocked takes it over, so that no folders pile up.
static FOLDER: LazyLock<(PathBuf, File)> = LazyLock::new(|| {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    (0..).find_map(|number: u32| own(parent.join(format!("fixtures-{number}")))).unwrap()
});

/// An empty folder of this name, unless another process uses it.
fn own(folder: PathBuf) -> Option<(PathBuf, File)> {
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.try_lock().ok()?;
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    Some((folder, lock))
}

/// A place of its own with the scene of a fixture and a copy of its model.
pub(crate) fn copy_of(fixture: &TestFolder) -> TestFolder {
    let place = TestFolder::beside(fixture);
    for (path, content) in files_below(&fixture.model()) {
        let copy = place.model().join(path.strip_prefix(fixture.model()).unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::write(copy, content).unwrap();
    }
    place
}

/// A place of this name with what `train` makes of the tiny scene.
pub(crate) fn fixture(name: &str, train: impl FnOnce(&TestFolder)) -> TestFolder {
    fixture_of(name, TestFolder::write_scene, train)
}

/// The same of another scene.
pub(crate) fn fixture_of(
    name: &str,
    write_scene: impl FnOnce(&TestFolder),
    train: impl FnOnce(&TestFolder),
) -> TestFolder {
    let place = TestFolder::lasting(FOLDER.0.join(name));
    write_scene(&place);
    train(&place);
    place
}
