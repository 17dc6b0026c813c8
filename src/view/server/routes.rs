//! What is asked for, by the path of a request. No path of the disk is ever part of it.

use std::str::FromStr;

use hyper::{Method, StatusCode};
use serde::Deserialize;

use super::reply::{BINARY, GLTF, JPEG, JSON, Reply, refused, reply};
use crate::train::event::ControlAction;
use crate::view::viewed_model::{ViewError, ViewedModel};

/// Width of a photograph where none is asked for, px.
const WIDTH_PX: u32 = 1600;

/// Something that can be asked of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query {
    Scene,
    Run { from: usize },
    Splats { generation: u64 },
    Points,
    Mesh { index: usize },
    Photo { index: usize, width_px: u32 },
}

impl Query {
    /// Whether the answer may take seconds.
    pub(super) fn is_slow(self) -> bool {
        matches!(self, Self::Splats { .. } | Self::Mesh { .. } | Self::Photo { .. })
    }
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The page itself, which everybody may have.
    Page,
    /// What needs the token.
    Api(ApiRoute),
}

/// What a request below `/api/` wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiRoute {
    /// Data.
    Query(Query),
    /// Something of a run.
    Control,
}

/// A request that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// There is nothing of this path.
    Unknown,
    /// A number is none.
    NoNumber,
    /// It is there, but not by this method.
    Method,
}

/// What a JSON of `/api/control` says.
#[derive(Deserialize)]
struct ControlBody {
    action: ControlAction,
}

impl Route {
    /// What a path with its query wants.
    pub(super) fn of(method: &Method, path: &str, query: Option<&str>) -> Result<Self, NoRoute> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let data = match parts.as_slice() {
            [""] => return by(method, &Method::GET, Self::Page),
            ["api", "control"] => {
                return by(method, &Method::POST, Self::Api(ApiRoute::Control));
            }
            ["api", "scene"] => Query::Scene,
            ["api", "run"] => Query::Run { from: value(query, "from", 0)? },
            ["api", "points"] => Query::Points,
            ["api", "splats", number] => Query::Splats { generation: parsed(number)? },
            ["api", "mesh", number] => Query::Mesh { index: parsed(number)? },
            ["api", "photo", number] => {
                let width_px = value(query, "width", WIDTH_PX)?;
                Query::Photo { index: parsed(number)?, width_px }
            }
            _ => return Err(NoRoute::Unknown),
        };
        by(method, &Method::GET, Self::Api(ApiRoute::Query(data)))
    }
}

/// A route that is there by one method alone.
fn by(method: &Method, wanted: &Method, route: Route) -> Result<Route, NoRoute> {
    if method == wanted { Ok(route) } else { Err(NoRoute::Method) }
}

impl From<NoRoute> for Reply {
    fn from(none: NoRoute) -> Self {
        match none {
            NoRoute::Unknown => refused(StatusCode::NOT_FOUND, "there is nothing of this name"),
            NoRoute::NoNumber => refused(StatusCode::BAD_REQUEST, "a number of the path is none"),
            NoRoute::Method => refused(StatusCode::METHOD_NOT_ALLOWED, "not by this method"),
        }
    }
}

/// The number that is named in a query, such as `from=7`.
fn value<N: FromStr>(query: Option<&str>, name: &str, or_else: N) -> Result<N, NoRoute> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    match pairs.into_iter().find(|(key, _)| *key == name) {
        Some((_, text)) => parsed(text),
        None => Ok(or_else),
    }
}

fn parsed<N: FromStr>(text: &str) -> Result<N, NoRoute> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or(NoRoute::NoNumber)
}

/// Answers what is asked of a model; it may take seconds.
pub(super) fn answer(model: &ViewedModel, query: Query) -> Reply {
    let ok = |kind| move |body: Vec<u8>| reply(StatusCode::OK, kind, body);
    let answered: Result<Reply, ViewError> = match query {
        Query::Scene => model.scene().map(String::into_bytes).map(ok(JSON)),
        Query::Run { from } => model.run(from).map(String::into_bytes).map(ok(JSON)),
        Query::Splats { generation } => {
            model.splats(generation).map(|spz| reply(StatusCode::OK, BINARY, spz))
        }
        Query::Points => model.points().map(ok(BINARY)),
        Query::Mesh { index } => model.mesh(index).map(ok(GLTF)),
        Query::Photo { index, width_px } => model.photo(index, width_px).map(ok(JPEG)),
    };
    answered.unwrap_or_else(Reply::from)
}

/// Asks a run for what a JSON says.
pub(super) fn control(model: &ViewedModel, body: &[u8]) -> Reply {
    let Ok(ControlBody { action }) = serde_json::from_slice(body) else {
        return refused(
            StatusCode::BAD_REQUEST,
            "the body must be JSON such as {\"action\": \"pause\"}: pause, resume, checkpoint or stop",
        );
    };
    let asked = model.control(action).map(|id| reply(StatusCode::ACCEPTED, JSON, id));
    asked.unwrap_or_else(Reply::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> Result<Route, NoRoute> {
        let (path, query) = path.split_once('?').map_or((path, None), |(a, b)| (a, Some(b)));
        Route::of(&Method::GET, path, query)
    }

    #[test]
    fn paths_name_what_there_is() {
        for (path, query) in [
            ("/api/scene", Query::Scene),
            ("/api/run", Query::Run { from: 0 }),
            ("/api/run?from=812", Query::Run { from: 812 }),
            ("/api/splats/3", Query::Splats { generation: 3 }),
            ("/api/points", Query::Points),
            ("/api/mesh/0", Query::Mesh { index: 0 }),
            ("/api/photo/17", Query::Photo { index: 17, width_px: 1600 }),
            ("/api/photo/17?a=b&width=640", Query::Photo { index: 17, width_px: 640 }),
        ] {
            assert_eq!(get(path), Ok(Route::Api(ApiRoute::Query(query))), "{path}");
        }
        assert_eq!(get("/"), Ok(Route::Page));
        assert_eq!(
            Route::of(&Method::POST, "/api/control", None),
            Ok(Route::Api(ApiRoute::Control))
        );
    }

    #[test]
    fn nothing_else_is_served() {
        for path in [
            "",
            "//",
            "/index.html",
            "/../etc/passwd",
            "/api/../run.jsonl",
            "/api/mesh/../../config.toml",
            "/api/mesh/%2e%2e",
            "/api/photo/0/extra",
            "/api/scene/",
            "/API/scene",
        ] {
            assert!(matches!(get(path), Err(NoRoute::Unknown | NoRoute::NoNumber)), "{path}");
        }
        for path in ["/api/splats/-1", "/api/splats/", "/api/mesh/1e3", "/api/run?from=x"] {
            assert_eq!(get(path), Err(NoRoute::NoNumber), "{path}");
        }
        for (method, path) in [
            (Method::POST, "/"),
            (Method::DELETE, "/api/mesh/0"),
            (Method::GET, "/api/control"),
            (Method::HEAD, "/api/scene"),
        ] {
            assert_eq!(Route::of(&method, path, None), Err(NoRoute::Method), "{method} {path}");
        }
    }
}
