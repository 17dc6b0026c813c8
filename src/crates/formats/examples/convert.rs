//! Converts a file of Gaussians: `convert IN OUT [CAMERAS.json]`. The JSON, a list of `SceneCamera`, is for a page.

use std::path::PathBuf;
use std::process::ExitCode;

use splat_formats::{SplatFormat, SpzOptions, SpzVersion, read, write};

fn main() -> ExitCode {
    match run() {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, Box<dyn std::error::Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [from, to, cameras @ ..] = arguments.as_slice() else {
        return Err("usage: convert IN OUT [CAMERAS.json]".into());
    };
    let found = read(from)?;
    found.notes.iter().for_each(|note| eprintln!("{note}"));
    let is_v4 = to.to_string_lossy().ends_with("v4.spz");
    let v4 = SpzOptions { version: SpzVersion::V4, ..SpzOptions::default() };
    let format = if is_v4 { Some(SplatFormat::Spz(v4)) } else { SplatFormat::of_name(to) };
    let mut format = format.ok_or("OUT: give a name that ends in that of a format")?;
    if let (SplatFormat::Html(options), [list]) = (&mut format, cameras) {
        options.cameras = serde_json::from_slice(&std::fs::read(list)?)?;
    }
    let report = write(to, &found.splats, &format)?;
    report.notes.iter().for_each(|note| eprintln!("{note}"));
    Ok(serde_json::to_string(&report)?)
}
