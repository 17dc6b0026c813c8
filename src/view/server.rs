//! Answers browsers: HTTP/1.1 on one address, a few at a time, each for a while.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::pin::pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap,
    HeaderName, HeaderValue, ORIGIN, REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::viewed_model::{ViewError, ViewedModel};
use crate::train::event::ControlAction;

/// Threads that answer; those of photographs and packed Gaussians work for seconds.
const WORKERS: usize = 8;

/// Bytes of the head of a request.
const HEAD_BYTES: usize = 16 << 10;

/// Bytes of what is posted.
const BODY_BYTES: usize = 4 << 10;

/// Time for the head of a request, and for its body.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// Longest life of a connection that has not sent the token.
const STRANGERS_TIME: Duration = Duration::from_secs(30);

/// Answers at once that take seconds each, so that others are not kept waiting.
const SLOW_ANSWERS: usize = 4;

/// A server that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The system refuses what it needs.
    #[error("the page cannot be served: {0}. Try another --port")]
    System(#[from] io::Error),
}

/// A server of one model's page.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    at: IpAddr,
    access: Access,
    model: ViewedModel,
    html: Bytes,
    policy: String,
    slow: Semaphore,
}

impl Server {
    /// A server on a port that is open, to which the page comes from.
    pub fn new(
        listener: TcpListener,
        access: Access,
        model: ViewedModel,
    ) -> Result<Self, ServerError> {
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?.ip();
        let splat_formats::ServedPage { html, policy } = splat_formats::served_page();
        let shared = Arc::new(Shared {
            at,
            access,
            model,
            html: html.into(),
            policy,
            slow: Semaphore::new(SLOW_ANSWERS),
        });
        Ok(Self { listener, shared })
    }

    /// Answers until the process ends, or the system refuses.
    pub fn run(self) -> Result<(), ServerError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WORKERS)
            .build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let connections = Arc::new(Connections::default());
            let shared = Arc::clone(&self.shared);
            tokio::task::spawn_blocking(move || shared.model.prepare());
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let shared = Arc::clone(&self.shared);
                        connections.start(|place| connection(stream, shared, place));
                    }
                    // One connection failed, or too many files are open for now.
                    Err(error) => {
                        tracing::debug!("a connection was lost: {error}");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        })
    }
}

/// Answers all that comes over a connection.
async fn connection(stream: TcpStream, shared: Arc<Shared>, place: Place) {
    let place = &place;
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(shared, place, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    // A browser that went away, or one that is too slow, has nothing more to be told.
    if timeout(STRANGERS_TIME, served.as_mut()).await.is_err() && place.is_authorised() {
        served.await.ok();
    }
}

/// Answers a request. The first that has the token gives its connection one of the reserved places.
async fn respond(shared: Arc<Shared>, place: &Place, request: Request<Incoming>) -> Reply {
    if let Err(refusal) = shared.access.check_names(request.headers(), shared.at) {
        return refusal.into();
    }
    let uri = request.uri();
    let route = Route::of(request.method(), uri.path(), uri.query());
    let route = match route {
        Ok(Route::Page) => return page(shared.html.clone(), &shared.policy),
        Ok(Route::Api(route)) => Ok(route),
        Err(none) => Err(none),
    };
    // Who has no token learns nothing of what there is.
    if let Err(refusal) = shared.access.check_token(request.headers()) {
        return refusal.into();
    }
    if !place.authorise() {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open: close some");
    }
    match route {
        Ok(ApiRoute::Query(query)) => {
            // It waits here, and not where it would take a worker from others.
            let _slow = match query.is_slow() {
                true => shared.slow.acquire().await.ok(),
                false => None,
            };
            work(&shared, move |model| answer(model, query)).await
        }
        Ok(ApiRoute::Control) => match body_of(request).await {
            Ok(body) => work(&shared, move |model| control(model, &body)).await,
            Err(refusal) => refusal,
        },
        Err(none) => none.into(),
    }
}

/// Has a thread ask the model.
async fn work(
    shared: &Arc<Shared>,
    ask: impl FnOnce(&ViewedModel) -> Reply + Send + 'static,
) -> Reply {
    let shared = Arc::clone(shared);
    let worker = tokio::task::spawn_blocking(move || ask(&shared.model));
    worker.await.unwrap_or_else(|_panic| {
        refused(StatusCode::INTERNAL_SERVER_ERROR, "a defect of this program: please report it")
    })
}

/// What is posted with a request.
async fn body_of(request: Request<Incoming>) -> Result<Bytes, Reply> {
    let body = Limited::new(request.into_body(), BODY_BYTES);
    match timeout(REQUEST_TIME, body.collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(_)) => Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long")),
        Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

// Places of connections: those whose client has sent the token have places of their own, and the others
// cannot take these.

/// Connections of clients with the token. A browser has six.
const AUTHORISED: usize = 64;

/// Connections of other clients. The oldest one is dropped for one more.
const STRANGERS: usize = 256;

/// All connections of a server.
#[derive(Debug, Default)]
struct Connections(Mutex<TakenPlaces>);

#[derive(Debug, Default)]
struct TakenPlaces {
    /// Number of the next connection.
    next: u64,
    /// Connections without the token, the oldest first.
    strangers: VecDeque<(u64, AbortHandle)>,
    /// Numbers of the connections with the token.
    authorised: Vec<u64>,
}

/// A connection's place, which is free again when this value is dropped.
#[derive(Debug)]
struct Place {
    number: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// Starts a task that serves a new connection.
    fn start<F>(self: &Arc<Self>, serve: impl FnOnce(Place) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut taken = self.taken();
        let number = taken.next;
        taken.next += 1;
        if taken.strangers.len() >= STRANGERS
            && let Some((_, oldest)) = taken.strangers.pop_front()
        {
            oldest.abort();
        }
        // The task cannot give its place back before it has one: that waits for the lock.
        let task = tokio::spawn(serve(Place { number, connections: Arc::clone(self) }));
        taken.strangers.push_back((number, task.abort_handle()));
    }

    fn taken(&self) -> MutexGuard<'_, TakenPlaces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Reserves the place for a client with the token. False if all reserved places are taken.
    fn authorise(&self) -> bool {
        let taken = &mut *self.connections.taken();
        if taken.authorised.contains(&self.number) {
            return true;
        }
        let is_free = taken.authorised.len() < AUTHORISED;
        if is_free {
            taken.strangers.retain(|(number, _)| *number != self.number);
            taken.authorised.push(self.number);
        }
        is_free
    }

    /// True if the client has sent the token.
    fn is_authorised(&self) -> bool {
        self.connections.taken().authorised.contains(&self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.connections.taken();
        taken.strangers.retain(|(number, _)| *number != self.number);
        taken.authorised.retain(|number| *number != self.number);
    }
}

// Access: requests with the token, by the address that the server was given.

/// Random bytes of a token.
const TOKEN_BYTES: usize = 16;

/// A secret that stands in the address of a page. Each server has its own.
#[derive(Clone, Debug)]
pub struct AccessToken(String);

impl AccessToken {
    /// A new one, of the system's random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// As it stands in the address.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// True if a text is this one; it takes as long wherever they differ.
    fn is(&self, text: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differs = own.iter().zip(text).fold(0, |differs, (a, b)| differs | (a ^ b));
        own.len() == text.len() && differs == 0
    }
}

/// Whom the server answers.
#[derive(Clone, Debug)]
pub struct Access {
    /// What asks for data has to have.
    pub token: AccessToken,
    /// Names that the server is reached by, beside its addresses.
    pub hosts: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessRefusal {
    /// It was sent to another name, as a page does that made its own name ours.
    Host,
    /// It comes from another page.
    Origin,
    /// It has no token, or a wrong one.
    Token,
}

impl Access {
    /// Fails where a request was not meant for the server at this address.
    fn check_names(&self, headers: &HeaderMap, at: IpAddr) -> Result<(), AccessRefusal> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let has_one = headers.get_all(HOST).iter().count() == 1;
        let host =
            host.filter(|host| has_one && self.is_ours(host, at)).ok_or(AccessRefusal::Host)?;
        let is_same = |origin: &[u8]| origin == format!("http://{host}").as_bytes();
        match headers.get(ORIGIN) {
            Some(origin) if !is_same(origin.as_bytes()) => Err(AccessRefusal::Origin),
            _ => Ok(()),
        }
    }

    /// Fails where a request has not the token.
    fn check_token(&self, headers: &HeaderMap) -> Result<(), AccessRefusal> {
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let token = given.and_then(|given| given.strip_prefix(b"Bearer "));
        let is_right = token.is_some_and(|token| self.token.is(token));
        if is_right { Ok(()) } else { Err(AccessRefusal::Token) }
    }

    /// True if a name, with any port, is one of the server's: the port may be one that is forwarded. An
    /// address cannot be made somebody else's, as a name can; of this machine alone, only its own are right.
    fn is_ours(&self, host: &str, at: IpAddr) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.parse::<u16>().is_ok() => name,
            _ => host,
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let is_address = match bare.parse::<IpAddr>() {
            Ok(address) => !at.is_loopback() || address.is_loopback(),
            Err(_) => false,
        };
        let named = |known: &str| name.eq_ignore_ascii_case(known);
        is_address || named("localhost") || self.hosts.iter().any(|known| named(known))
    }
}

// An answer, and the headers that all answers have.

/// What is sent.
type Reply = Response<Full<Bytes>>;

/// Kinds of content.
const JSON: &str = "application/json";

const BINARY: &str = "application/octet-stream";

const GLTF: &str = "model/gltf-binary";

const JPEG: &str = "image/jpeg";

const HTML: &str = "text/html; charset=utf-8";

/// For pages of other origins the answers are not there.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// An answer of this kind of content.
fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (RESOURCE_POLICY, "same-origin"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// The page, which runs nothing but itself.
fn page(html: Bytes, policy: &str) -> Reply {
    let mut reply = reply(StatusCode::OK, HTML, html);
    if let Ok(policy) = HeaderValue::from_str(policy) {
        reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    reply
}

/// A sentence that says why there is no answer.
fn refused(status: StatusCode, why: &str) -> Reply {
    let body = serde_json::json!({ "error": why }).to_string();
    let mut reply = reply(status, JSON, body);
    let header = match status {
        StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
        StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, "GET, POST")),
        _ => None,
    };
    if let Some((name, value)) = header {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

impl From<AccessRefusal> for Reply {
    fn from(refusal: AccessRefusal) -> Self {
        match refusal {
            AccessRefusal::Host => refused(
                StatusCode::MISDIRECTED_REQUEST,
                "this server does not answer to that name: start it with --host NAME",
            ),
            AccessRefusal::Origin => {
                refused(StatusCode::FORBIDDEN, "another page may not ask this server")
            }
            AccessRefusal::Token => refused(
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong: open the address that splat view has printed",
            ),
        }
    }
}

impl From<ViewError> for Reply {
    fn from(error: ViewError) -> Self {
        let status = match error {
            ViewError::Missing(_) => StatusCode::NOT_FOUND,
            ViewError::Conflict(_) => StatusCode::CONFLICT,
            ViewError::Forbidden(_) => StatusCode::FORBIDDEN,
            ViewError::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        refused(status, &error.to_string())
    }
}

// Routes of requests. No path of the disk is ever part of one.

/// Width of a photograph where none is asked for, px.
const WIDTH_PX: u32 = 1600;

/// Something that can be asked of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Query {
    Scene,
    Run { from: usize },
    Splats { generation: u64 },
    Points,
    Mesh { index: usize },
    Photo { index: usize, width_px: u32 },
}

impl Query {
    /// True if the answer may take seconds.
    fn is_slow(self) -> bool {
        matches!(self, Self::Splats { .. } | Self::Mesh { .. } | Self::Photo { .. })
    }
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// The page itself, which everybody may have.
    Page,
    /// What needs the token.
    Api(ApiRoute),
}

/// What a request below `/api/` wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApiRoute {
    /// Data.
    Query(Query),
    /// Something of a run.
    Control,
}

/// A request that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoRoute {
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
    fn of(method: &Method, path: &str, query: Option<&str>) -> Result<Self, NoRoute> {
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
fn answer(model: &ViewedModel, query: Query) -> Reply {
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
fn control(model: &ViewedModel, body: &[u8]) -> Reply {
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::header::HeaderValue;

    use super::*;

    fn with_runtime(test: impl AsyncFnOnce(&Arc<Connections>)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(test(&Arc::default()));
    }

    /// Lets all tasks run that can.
    async fn settle() {
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }

    /// Counts the connections of a kind that are served.
    async fn hold(place: Place, count: Arc<AtomicUsize>) {
        struct Served(Arc<AtomicUsize>, #[expect(dead_code, reason = "held")] Place);
        impl Drop for Served {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
        let _served = Served(count, place);
        std::future::pending::<()>().await;
    }

    #[test]
    fn strangers_push_each_other_out_and_nobody_with_the_token() {
        with_runtime(async |connections| {
            let [friends, strangers] = [0, 1].map(|_| Arc::new(AtomicUsize::new(0)));
            for _ in 0..3 {
                let friends = Arc::clone(&friends);
                connections.start(async move |place| {
                    assert!(place.authorise() && place.is_authorised());
                    hold(place, friends).await;
                });
            }
            settle().await;
            for _ in 0..3 * STRANGERS {
                let strangers = Arc::clone(&strangers);
                connections.start(|place| hold(place, strangers));
                settle().await;
            }
            let counts = [&friends, &strangers].map(|count| count.load(Ordering::Relaxed));
            assert_eq!(counts, [3, STRANGERS]);
        });
    }

    #[test]
    fn reserved_places_end_and_come_back() {
        with_runtime(async |connections| {
            let place = |number| Place { number, connections: Arc::clone(connections) };
            let mut places: Vec<_> = (0..AUTHORISED as u64).map(place).collect();
            assert!(places.iter().all(|place| place.authorise() && place.authorise()));
            let last = place(1000);
            assert!(!last.authorise() && !last.is_authorised());
            places.pop();
            assert!(last.authorise());
        });
    }

    const HERE: [u8; 4] = [127, 0, 0, 1];

    fn access(hosts: &[&str]) -> Access {
        let token = AccessToken::random().unwrap();
        Access { token, hosts: hosts.iter().map(ToString::to_string).collect() }
    }

    fn names(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        headers
    }

    #[test]
    fn a_token_is_32_digits_and_never_the_same() {
        let [a, b] = [0, 1].map(|_| AccessToken::random().unwrap());
        assert!(a.text().len() == 32 && a.text().chars().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(a.text(), b.text());
    }

    #[test]
    fn only_the_whole_token_is_right() {
        let access = access(&[]);
        let right = access.token.text().to_owned();
        let ask = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            access.check_token(&headers)
        };
        assert_eq!(ask(&format!("Bearer {right}")), Ok(()));
        let longer = format!("Bearer {right}0");
        let shorter = format!("Bearer {}", &right[1..]);
        for wrong in ["", "Bearer ", right.as_str(), longer.as_str(), shorter.as_str()] {
            assert_eq!(ask(wrong), Err(AccessRefusal::Token), "{wrong}");
        }
        assert_eq!(access.check_token(&HeaderMap::new()), Err(AccessRefusal::Token));
    }

    #[test]
    fn names_of_others_are_refused() {
        let access = access(&["Workstation.lan"]);
        let check = |host: &str| access.check_names(&names(host, None), HERE.into());
        for ours in [
            "127.0.0.1:7007",
            "localhost:8080",
            "localhost",
            "[::1]:7007",
            "[::1]",
            "workstation.lan:7007",
        ] {
            assert_eq!(check(ours), Ok(()), "{ours}");
        }
        for other in [
            "127.0.0.1:",
            "127.0.0.1:x",
            "evil.example:7007",
            "localhost.evil.example:7007",
            "192.168.1.2:7007",
            "",
            ":7007",
            "localhost:7007:7007",
        ] {
            assert_eq!(check(other), Err(AccessRefusal::Host), "{other}");
        }
        assert_eq!(access.check_names(&HeaderMap::new(), HERE.into()), Err(AccessRefusal::Host));
        let mut two = names("localhost:7007", None);
        two.append(HOST, HeaderValue::from_static("evil.example:7007"));
        assert_eq!(access.check_names(&two, HERE.into()), Err(AccessRefusal::Host));
    }

    #[test]
    fn a_server_for_others_is_reached_by_its_addresses() {
        let at = [0, 0, 0, 0].into();
        let check = |host: &str| access(&[]).check_names(&names(host, None), at);
        assert_eq!(check("192.168.1.2:7007"), Ok(()));
        assert_eq!(check("evil.example:7007"), Err(AccessRefusal::Host));
    }

    #[test]
    fn pages_of_others_are_refused() {
        let check = |origin: &str| {
            let headers = names("localhost:7007", Some(origin));
            access(&[]).check_names(&headers, HERE.into())
        };
        assert_eq!(check("http://localhost:7007"), Ok(()));
        for other in
            ["null", "http://evil.example", "https://localhost:7007", "http://127.0.0.1:7007"]
        {
            assert_eq!(check(other), Err(AccessRefusal::Origin), "{other}");
        }
    }

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
