//! The order of the search, over folders that stand for a machine's.

use std::fs;
use std::path::{Path, PathBuf};

use crate::NcclError;
use crate::search::{Candidate, Environment, candidates};

const IN_A_WHEEL: &str = "site-packages/nvidia/nccl/lib/libnccl.so.2";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(file: &Path) {
    fs::write(file, "no library").expect("a file");
}

fn naming(path: &Path) -> Environment {
    Environment { named: Some(path.into()), ..Environment::default() }
}

fn python(prefix: &Path, name: &str) -> Candidate {
    Candidate::File(prefix.join("lib").join(name).join(IN_A_WHEEL))
}

#[test]
fn the_loader_comes_first_then_the_program_then_pythons_environments() {
    let (venv, conda) = (folder(), folder());
    for name in ["python3.9", "python3.12", "pkgconfig"] {
        fs::create_dir_all(venv.path().join("lib").join(name)).expect("a folder");
    }
    let environment = Environment {
        named: None,
        program: Some(PathBuf::from("/opt/program")),
        prefixes: vec![venv.path().into(), conda.path().into()],
    };
    let expected = [
        Candidate::Loader("libnccl.so.2"),
        Candidate::Loader("libnccl.so"),
        Candidate::File("/opt/program/lib/libnccl.so.2".into()),
        Candidate::File("/opt/program/lib/libnccl.so".into()),
        python(venv.path(), "python3.12"),
        python(venv.path(), "python3.9"),
        python(conda.path(), "python3.*"),
    ];
    assert_eq!(candidates(&environment).expect("candidates"), expected);
}

#[test]
fn a_named_file_is_the_only_candidate() {
    let folder = folder();
    let file = folder.path().join("another.so");
    write(&file);
    let mut environment = naming(&file);
    environment.program = Some(folder.path().into());
    assert_eq!(candidates(&environment), Ok(vec![Candidate::File(file)]));
}

#[test]
fn a_named_folder_gives_its_library_the_numbered_one_first() {
    let folder = folder();
    let [numbered, plain] = ["libnccl.so.2", "libnccl.so"].map(|name| folder.path().join(name));
    write(&plain);
    assert_eq!(candidates(&naming(folder.path())), Ok(vec![Candidate::File(plain)]));
    write(&numbered);
    assert_eq!(candidates(&naming(folder.path())), Ok(vec![Candidate::File(numbered)]));
}

#[test]
fn a_relative_name_is_made_absolute() {
    // Tests run in the package's folder.
    let expected = std::env::current_dir().expect("a folder").join("Cargo.toml");
    assert_eq!(candidates(&naming(Path::new("Cargo.toml"))), Ok(vec![Candidate::File(expected)]));
}

#[test]
fn a_name_without_a_library_is_an_error_that_names_it() {
    let folder = folder();
    for path in [folder.path().into(), folder.path().join("nowhere")] {
        let error = candidates(&naming(&path)).expect_err("nothing is there");
        assert_eq!(error, NcclError::NamesNothing { path: path.clone() });
        let said = error.to_string();
        assert!(
            said.contains("SPLAT_NCCL names ") && said.contains(path.to_str().expect("a name"))
        );
    }
}

#[test]
fn empty_variables_count_as_unset() {
    let environment =
        Environment { named: Some("".into()), program: None, prefixes: vec![PathBuf::new()] };
    let loaders = ["libnccl.so.2", "libnccl.so"].map(Candidate::Loader);
    assert_eq!(candidates(&environment), Ok(loaders.to_vec()));
}
