//! Writes a page with cameras: `page IN OUT.html CAMERAS.json`. The JSON is a list of `SceneCamera`.

use std::path::PathBuf;
use std::process::ExitCode;

use splat_formats::{HtmlOptions, SplatFormat, read, write};

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
    let [from, to, cameras] = arguments.as_slice() else {
        return Err("usage: page IN OUT.html CAMERAS.json".into());
    };
    let title = to.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let cameras = serde_json::from_slice(&std::fs::read(cameras)?)?;
    let format = SplatFormat::Html(HtmlOptions { title, cameras, ..HtmlOptions::default() });
    let report = write(to, &read(from)?.splats, &format)?;
    report.notes.iter().for_each(|note| eprintln!("{note}"));
    Ok(serde_json::to_string(&report)?)
}
