//! Libraries that are none, or not NCCL; and the real one.

use std::fs;

use crate::search::Candidate;
use crate::{Library, NcclError, Version};

#[test]
fn a_file_that_is_no_library_is_unusable_and_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("libnccl.so.2");
    fs::write(&file, "no library").expect("a file");
    let error = Library::first_of(&[Candidate::File(file.clone())]).expect_err("no library");
    assert!(
        matches!(&error, NcclError::Unusable { path, why } if *path == file && !why.is_empty()),
        "{error:?}"
    );
    assert!(error.to_string().contains(file.to_str().expect("a name")));
}

#[test]
fn what_is_nowhere_is_told_with_a_remedy_and_keeps_each_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("libnccl.so.2");
    let places = [Candidate::Loader("libsplat-is-nowhere.so"), Candidate::File(file)];
    let error = Library::first_of(&places).expect_err("nothing is there");
    assert!(
        matches!(&error, NcclError::NotFound { looked_in } if looked_in.len() == 2),
        "{error:?}"
    );
    let said = error.to_string();
    for part in ["2.18", "SPLAT_NCCL"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
}

#[test]
fn the_first_trouble_is_told_whatever_comes_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let [bad, worse, missing] = ["bad", "worse", "missing"].map(|name| folder.path().join(name));
    for file in [&bad, &worse] {
        fs::write(file, "no library").expect("a file");
    }
    let places = [bad.clone(), worse, missing].map(Candidate::File);
    let error = Library::first_of(&places).expect_err("no library");
    assert!(matches!(&error, NcclError::Unusable { path, .. } if *path == bad), "{error:?}");
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn another_library_lacks_the_functions() {
    let error = Library::first_of(&[Candidate::Loader("libc.so.6")]).expect_err("not NCCL");
    let expected = NcclError::MissingSymbol { path: "libc.so.6".into(), symbol: "ncclGetVersion" };
    assert_eq!(error, expected);
}

#[test]
#[ignore = "needs NCCL; set SPLAT_NCCL"]
fn the_real_library_tells_its_version_and_makes_ids_without_a_driver() {
    let library = Library::find().expect("NCCL");
    assert!(library.version() >= Version::OLDEST);
    assert!(library.path().is_file(), "{}", library.path().display());
    let ids = [(); 2].map(|()| library.unique_id().expect("an id").to_bytes());
    assert_ne!(ids[0], ids[1]);
    assert!(std::ptr::eq(library, Library::find().expect("NCCL")));
    println!("NCCL {} of {}", library.version(), library.path().display());
}
