//! `splat view`: shows a model or a running training in a browser.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use clap::Args;
use splat_formats::{CameraSplit, SceneCamera};

use super::cfg_args::ConfigText;
use super::exit::{DataError, UsageError};
use super::folder;
use super::output::{print, shell_word};
use super::scene::{absolute, cameras_of};
use crate::config::{Config, Layers, Offset, SceneOptions, resolve};
use crate::dataset::{Dataset, Frame, View, read_test_list};
use crate::export::frame_of_file;
use crate::math::linalg::transpose;
use crate::view::{
    Access, AccessToken, KnownCameras, Server, ShownPhotographs, ViewedModel, ViewedSource,
};

/// Number of ports that are tried in turn.
const PORTS: u16 = 20;

#[derive(Args)]
pub(super) struct ViewerArgs {
    /// Model folder
    #[arg(short, long, visible_alias = "output", value_name = "MODEL")]
    model_path: PathBuf,

    /// Scene folder, for its photographs, where it has been moved
    #[arg(short, long, value_name = "SCENE")]
    source_path: Option<PathBuf>,

    /// Port; where it is taken, the next free one
    ///
    /// 0 takes any.
    #[arg(long, value_name = "PORT", default_value_t = 7007)]
    port: u16,

    /// Address to listen on
    ///
    /// Other machines reach the page on 0.0.0.0 or an address of this one. The connection is not encrypted.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,

    /// Name that the page is reached by; may be given several times
    ///
    /// Requests that name another server are refused.
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    host: Vec<String>,

    /// Only look: no buttons that pause or stop the run
    #[arg(long)]
    read_only: bool,

    /// Only warnings and errors on stderr
    #[arg(long)]
    pub(super) quiet: bool,
}

fn host_name(text: &str) -> Result<String, String> {
    let is_part = |letter: char| letter.is_alphanumeric() || "-._".contains(letter);
    match !text.is_empty() && text.chars().all(is_part) {
        true => Ok(text.to_owned()),
        false => {
            Err("give a name alone, such as workstation.lan, without http:// and port".to_owned())
        }
    }
}

/// Serves the page until the process ends.
pub(super) fn run(args: &ViewerArgs) -> anyhow::Result<()> {
    let source = source(args)?;
    let listener = listen(args)?;
    let at = listener.local_addr()?;
    let token = AccessToken::random()
        .map_err(|error| anyhow::anyhow!("no random token can be made: {error}"))?;
    let mut hosts = args.host.clone();
    let mut name = at.to_string();
    if at.ip().is_unspecified() {
        let own = gethostname::gethostname().to_string_lossy().into_owned();
        name = format!("{}:{}", hosts.first().unwrap_or(&own), at.port());
        hosts.push(own);
    }
    let address = format!("http://{name}/#t={}", token.text());
    let server = Server::new(listener, Access { token, hosts }, ViewedModel::new(source))?;
    print(&address)?;
    if !at.ip().is_loopback() {
        tracing::warn!(
            "the page and its token are not encrypted. On a network with others, leave out --listen and run on the \
             other machine: ssh -N -L {0}:127.0.0.1:{0} {1}",
            at.port(),
            gethostname::gethostname().to_string_lossy()
        );
    }
    tracing::info!("open this address in a browser; Ctrl-C ends it");
    Ok(server.run()?)
}

/// Collects the data of the page.
fn source(args: &ViewerArgs) -> anyhow::Result<ViewedSource> {
    let model_path = absolute(&args.model_path);
    folder::check_not_file(&model_path)?;
    if !model_path.exists() {
        let shown = args.model_path.display();
        return Err(
            DataError(format!("{shown}: there is no such folder. Name a model folder")).into()
        );
    }
    folder::check_readable(&model_path)?;
    let base = folder::read_options(&model_path)?;
    if base.is_none() && !folder::holds_run(&model_path) {
        anyhow::bail!(DataError(format!(
            "{}: holds no model and no run. Train a model there first, or name another folder",
            args.model_path.display()
        )));
    }
    let layers = Layers { base: base.as_ref().map(ConfigText::layer), ..Layers::default() };
    let mut config = resolve(layers)?;
    if let Some(scene) = &args.source_path {
        config.scene.source_path = Some(absolute(scene));
    }
    let frame = shown_frame(&config, &model_path)?;
    let (cameras, photographs) = scene_of(&mut config, &model_path, &frame, args)?;
    let name = model_path.file_name().map_or_else(String::new, |it| it.to_string_lossy().into());
    Ok(ViewedSource {
        title: name,
        primitive: config.optimize.primitive,
        antialiased: config.optimize.antialiasing,
        sh_degree: config.optimize.sh_degree,
        cameras,
        frame,
        photographs,
        accepts_control: config.output.live_control && !args.read_only,
        resume: format!("splat train --resume -m {}", shell_word(&args.model_path)),
        model_path,
    })
}

/// Returns the coordinates of the page: the training's, or else those of the newest PLY.
fn shown_frame(config: &Config, model_path: &Path) -> anyhow::Result<Frame> {
    let Frame { offset, unit } = match folder::point_clouds(model_path).last() {
        Some((_, ply)) => frame_of_file(ply)?,
        None => Frame::SCENE,
    };
    let SceneOptions { offset: kept, unit: kept_unit, .. } = &config.scene;
    Ok(Frame { offset: kept.map_or(offset, |Offset(kept)| kept), unit: kept_unit.unwrap_or(unit) })
}

/// Returns cameras and photographs of the scene, or else the cameras that the model folder records.
fn scene_of(
    config: &mut Config,
    model_path: &Path,
    frame: &Frame,
    args: &ViewerArgs,
) -> anyhow::Result<(KnownCameras, ShownPhotographs)> {
    let mut read = || {
        read_test_list(&mut config.scene)?;
        let (offset, unit) = (Some(Offset(frame.offset)), Some(frame.unit));
        Dataset::load(&SceneOptions { depths: None, offset, unit, ..config.scene.clone() })
    };
    let why = match read() {
        Ok(dataset) => return Ok((cameras_in(&dataset), ShownPhotographs::of(dataset.sources))),
        // A scene that the user names must be readable.
        Err(error) if args.source_path.is_some() => return Err(error.into()),
        Err(error) => error,
    };
    tracing::warn!("{why}. The page has no photographs; -s SCENE says where the scene is");
    Ok((
        KnownCameras::in_order(cameras_of(model_path, u32::MAX, frame)),
        ShownPhotographs::default(),
    ))
}

/// Converts the cameras of a scene for the page.
fn cameras_in(dataset: &Dataset) -> KnownCameras {
    let on_page = |(index, view): (usize, &View)| SceneCamera {
        name: view.name.clone(),
        position: view.pose.centre_world(),
        rotation: transpose(&view.pose.rotation),
        focal_px: view.camera.focal_px,
        principal_px: view.camera.centre_px,
        size_px: [view.camera.width, view.camera.height],
        split: match dataset.test.binary_search(&index) {
            Ok(_) => CameraSplit::HeldOut,
            Err(_) => CameraSplit::Training,
        },
    };
    KnownCameras::in_order(dataset.views.iter().enumerate().map(on_page).collect())
}

/// Opens the port, or the next free one.
fn listen(args: &ViewerArgs) -> Result<TcpListener, UsageError> {
    let ViewerArgs { listen, port, .. } = *args;
    let last = if port == 0 { 0 } else { port.saturating_add(PORTS - 1) };
    let mut refusal = None;
    for tried in port..=last {
        match TcpListener::bind(SocketAddr::new(listen, tried)) {
            Ok(listener) => {
                if tried != port {
                    tracing::info!("--port {port}: cannot be had, so {tried} is used");
                }
                return Ok(listener);
            }
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    let why = refusal.map_or_else(String::new, |error| error.to_string());
    Err(UsageError(format!(
        "--listen {listen} --port {port}: cannot be opened: {why}. Name an address of this machine, and a \
         free port above 1023 or 0 for any"
    )))
}
