//! Answers browsers by HTTP/1.1 on one address, with limits on connections and time.

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

use super::viewed_model::{Refusal, ViewedModel};
use crate::train::event::ControlAction;

/// Threads that answer. Photographs and packed Gaussians take seconds each.
const WORKERS: usize = 8;
const HEAD_BYTES: usize = 16 << 10;
const BODY_BYTES: usize = 4 << 10;

/// Longest time for the head of a request, and for its body.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// Longest life of a connection that has not sent the token.
const ANONYMOUS_TIME: Duration = Duration::from_secs(30);

/// Number of slow answers at once, so that fast ones find a thread.
const SLOW_ANSWERS: usize = 4;

/// A server that cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum ServerError {
    #[error("the page cannot be served: {0}. Try another --port")]
    System(#[from] io::Error),
}

/// A server of one model's page.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

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
    /// Creates a server on an open port.
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

    /// Answers until the process ends or the system refuses.
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
                        connections.start(|slot| connection(stream, shared, slot));
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

async fn connection(stream: TcpStream, shared: Arc<Shared>, slot: ConnectionSlot) {
    let slot = &slot;
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(shared, slot, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    // Errors of clients that left or are too slow need no answer.
    if timeout(ANONYMOUS_TIME, served.as_mut()).await.is_err() && slot.is_authorised() {
        served.await.ok();
    }
}

/// Answers a request. The first one with the token moves its connection to a reserved slot.
async fn respond(shared: Arc<Shared>, slot: &ConnectionSlot, request: Request<Incoming>) -> Reply {
    if let Err((status, why)) = shared.access.check_names(request.headers(), shared.at) {
        return refused(status, why);
    }
    let uri = request.uri();
    let route = Route::of(request.method(), uri.path(), uri.query());
    if route != Ok(Route::Page) {
        // Without the token, even missing paths are not told apart.
        if let Err((status, why)) = shared.access.check_token(request.headers()) {
            return refused(status, why);
        }
        if !slot.authorise() {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open: close some");
        }
    }
    match route {
        Ok(Route::Page) => page(shared.html.clone(), &shared.policy),
        Ok(Route::Query(query)) => {
            // Wait here, where no thread is blocked.
            let _slow = match query.is_slow() {
                true => shared.slow.acquire().await.ok(),
                false => None,
            };
            work(&shared, move |model| answer(model, query)).await
        }
        Ok(Route::Control) => match body_of(request).await {
            Ok(body) => work(&shared, move |model| control(model, &body)).await,
            Err(refusal) => refusal,
        },
        Err((status, why)) => refused(status, why),
    }
}

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

async fn body_of(request: Request<Incoming>) -> Result<Bytes, Reply> {
    let body = Limited::new(request.into_body(), BODY_BYTES);
    match timeout(REQUEST_TIME, body.collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(_)) => Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long")),
        Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

// Slots of connections. Clients with the token have reserved slots that other clients cannot take.

/// Largest number of connections with the token. A browser opens six.
const MAX_AUTHORISED: usize = 64;

/// Largest number of connections without the token. The oldest is dropped for a new one.
const MAX_ANONYMOUS: usize = 256;

#[derive(Debug, Default)]
struct Connections(Mutex<UsedSlots>);

#[derive(Debug, Default)]
struct UsedSlots {
    next: u64,
    /// Connections without the token, the oldest first.
    anonymous: VecDeque<(u64, AbortHandle)>,
    /// Numbers of the connections with the token.
    authorised: Vec<u64>,
}

/// A slot that is freed on drop.
#[derive(Debug)]
struct ConnectionSlot {
    number: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// Starts a task that serves a new connection.
    fn start<F>(self: &Arc<Self>, serve: impl FnOnce(ConnectionSlot) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut used = self.used();
        let number = used.next;
        used.next += 1;
        if used.anonymous.len() >= MAX_ANONYMOUS
            && let Some((_, oldest)) = used.anonymous.pop_front()
        {
            oldest.abort();
        }
        // The task cannot free its slot before the slot exists: freeing waits for the lock.
        let task = tokio::spawn(serve(ConnectionSlot { number, connections: Arc::clone(self) }));
        used.anonymous.push_back((number, task.abort_handle()));
    }

    fn used(&self) -> MutexGuard<'_, UsedSlots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Moves the connection to a reserved slot. Returns false if none is free.
    fn authorise(&self) -> bool {
        let used = &mut *self.connections.used();
        if used.authorised.contains(&self.number) {
            return true;
        }
        let is_free = used.authorised.len() < MAX_AUTHORISED;
        if is_free {
            used.anonymous.retain(|(number, _)| *number != self.number);
            used.authorised.push(self.number);
        }
        is_free
    }

    fn is_authorised(&self) -> bool {
        self.connections.used().authorised.contains(&self.number)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut used = self.connections.used();
        used.anonymous.retain(|(number, _)| *number != self.number);
        used.authorised.retain(|number| *number != self.number);
    }
}

// Access: requests need the token and the address that the server was given.

const TOKEN_BYTES: usize = 16;

/// A secret in the address of a page. Each server has its own.
#[derive(Clone, Debug)]
pub struct AccessToken(String);

impl AccessToken {
    /// Creates a token from the system's random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns the token as text for the address.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns true if the text equals the token, in constant time.
    fn is(&self, text: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differs = own.iter().zip(text).fold(0, |differs, (a, b)| differs | (a ^ b));
        own.len() == text.len() && differs == 0
    }
}

/// Checks of the requests that the server answers.
#[derive(Clone, Debug)]
pub struct Access {
    /// Token that requests of data need.
    pub token: AccessToken,
    /// Host names of the server beside its addresses.
    pub hosts: Vec<String>,
}

/// The status and the reason of a reply to a request that is not answered.
type NoAnswer = (StatusCode, &'static str);

/// The host is another name. Protects against DNS rebinding.
const OTHER_HOST: NoAnswer = (
    StatusCode::MISDIRECTED_REQUEST,
    "this server does not answer to that name: start it with --host NAME",
);

const OTHER_ORIGIN: NoAnswer = (StatusCode::FORBIDDEN, "another page may not ask this server");

const NO_TOKEN: NoAnswer = (
    StatusCode::UNAUTHORIZED,
    "the token is missing or wrong: open the address that splat view has printed",
);

impl Access {
    /// Fails if the host or the origin is not this server at address `at`.
    fn check_names(&self, headers: &HeaderMap, at: IpAddr) -> Result<(), NoAnswer> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let has_one = headers.get_all(HOST).iter().count() == 1;
        let host = host.filter(|host| has_one && self.is_own_host(host, at)).ok_or(OTHER_HOST)?;
        let is_same = |origin: &[u8]| origin == format!("http://{host}").as_bytes();
        match headers.get(ORIGIN) {
            Some(origin) if !is_same(origin.as_bytes()) => Err(OTHER_ORIGIN),
            _ => Ok(()),
        }
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), NoAnswer> {
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let token = given.and_then(|given| given.strip_prefix(b"Bearer "));
        let is_right = token.is_some_and(|token| self.token.is(token));
        if is_right { Ok(()) } else { Err(NO_TOKEN) }
    }

    /// Returns true if a host with any port is this server; the port may be forwarded. Addresses are safe, because
    /// unlike names they cannot be rebound. A server on loopback accepts only loopback addresses.
    fn is_own_host(&self, host: &str, at: IpAddr) -> bool {
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

// Replies and their common headers.

type Reply = Response<Full<Bytes>>;

const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";
const GLTF: &str = "model/gltf-binary";
const JPEG: &str = "image/jpeg";
const HTML: &str = "text/html; charset=utf-8";

/// Keeps pages of other origins from reading the replies.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

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

/// Builds the reply of the page, whose policy allows no other script.
fn page(html: Bytes, policy: &str) -> Reply {
    let mut reply = reply(StatusCode::OK, HTML, html);
    if let Ok(policy) = HeaderValue::from_str(policy) {
        reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    reply
}

/// Builds a reply with a reason for people.
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

// Routes of requests. None contains a path of the disk.

const WIDTH_PX: u32 = 1600;

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
    /// Returns true if the answer may take seconds.
    fn is_slow(self) -> bool {
        matches!(self, Self::Splats { .. } | Self::Mesh { .. } | Self::Photo { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// The page itself, the only route without the token.
    Page,
    Query(Query),
    /// A command for the run.
    Control,
}

const UNKNOWN: NoAnswer = (StatusCode::NOT_FOUND, "there is nothing of this name");
const NO_NUMBER: NoAnswer = (StatusCode::BAD_REQUEST, "a number of the path is none");
const OTHER_METHOD: NoAnswer = (StatusCode::METHOD_NOT_ALLOWED, "not by this method");

#[derive(Deserialize)]
struct ControlBody {
    action: ControlAction,
}

impl Route {
    /// Finds the route of a path with a query.
    fn of(method: &Method, path: &str, query: Option<&str>) -> Result<Self, NoAnswer> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let data = match parts.as_slice() {
            [""] => return by(method, &Method::GET, Self::Page),
            ["api", "control"] => return by(method, &Method::POST, Self::Control),
            ["api", "scene"] => Query::Scene,
            ["api", "run"] => Query::Run { from: value(query, "from", 0)? },
            ["api", "points"] => Query::Points,
            ["api", "splats", number] => Query::Splats { generation: parsed(number)? },
            ["api", "mesh", number] => Query::Mesh { index: parsed(number)? },
            ["api", "photo", number] => {
                let width_px = value(query, "width", WIDTH_PX)?;
                Query::Photo { index: parsed(number)?, width_px }
            }
            _ => return Err(UNKNOWN),
        };
        by(method, &Method::GET, Self::Query(data))
    }
}

fn by(method: &Method, wanted: &Method, route: Route) -> Result<Route, NoAnswer> {
    if method == wanted { Ok(route) } else { Err(OTHER_METHOD) }
}

/// Returns the number of a key in a query such as `from=7`, or the default.
fn value<N: FromStr>(query: Option<&str>, name: &str, or_else: N) -> Result<N, NoAnswer> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    match pairs.into_iter().find(|(key, _)| *key == name) {
        Some((_, text)) => parsed(text),
        None => Ok(or_else),
    }
}

fn parsed<N: FromStr>(text: &str) -> Result<N, NoAnswer> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or(NO_NUMBER)
}

/// Answers a query. May take seconds.
fn answer(model: &ViewedModel, query: Query) -> Reply {
    let ok = |kind| move |body: Vec<u8>| reply(StatusCode::OK, kind, body);
    let answered: Result<Reply, Refusal> = match query {
        Query::Scene => model.scene().map(String::into_bytes).map(ok(JSON)),
        Query::Run { from } => model.run(from).map(String::into_bytes).map(ok(JSON)),
        Query::Splats { generation } => {
            model.splats(generation).map(|spz| reply(StatusCode::OK, BINARY, spz))
        }
        Query::Points => model.points().map(ok(BINARY)),
        Query::Mesh { index } => model.mesh(index).map(ok(GLTF)),
        Query::Photo { index, width_px } => model.photo(index, width_px).map(ok(JPEG)),
    };
    answered.unwrap_or_else(|(status, why)| refused(status, &why))
}

fn control(model: &ViewedModel, body: &[u8]) -> Reply {
    let Ok(ControlBody { action }) = serde_json::from_slice(body) else {
        return refused(
            StatusCode::BAD_REQUEST,
            "the body must be JSON such as {\"action\": \"pause\"}: pause, resume, checkpoint or stop",
        );
    };
    let requested = model.control(action).map(|id| reply(StatusCode::ACCEPTED, JSON, id));
    requested.unwrap_or_else(|(status, why)| refused(status, &why))
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

    /// Runs all tasks that are ready.
    async fn settle() {
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }

    /// Counts the connections that are served.
    async fn hold(slot: ConnectionSlot, count: Arc<AtomicUsize>) {
        struct Served(Arc<AtomicUsize>, #[expect(dead_code, reason = "held")] ConnectionSlot);
        impl Drop for Served {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
        let _served = Served(count, slot);
        std::future::pending::<()>().await;
    }

    #[test]
    fn anonymous_connections_replace_only_each_other() {
        with_runtime(async |connections| {
            let [trusted, anonymous] = [0, 1].map(|_| Arc::new(AtomicUsize::new(0)));
            for _ in 0..3 {
                let trusted = Arc::clone(&trusted);
                connections.start(async move |slot| {
                    assert!(slot.authorise() && slot.is_authorised());
                    hold(slot, trusted).await;
                });
            }
            settle().await;
            for _ in 0..3 * MAX_ANONYMOUS {
                let anonymous = Arc::clone(&anonymous);
                connections.start(|slot| hold(slot, anonymous));
                settle().await;
            }
            let counts = [&trusted, &anonymous].map(|count| count.load(Ordering::Relaxed));
            assert_eq!(counts, [3, MAX_ANONYMOUS]);
        });
    }

    #[test]
    fn reserved_slots_are_limited_and_reused() {
        with_runtime(async |connections| {
            let slot = |number| ConnectionSlot { number, connections: Arc::clone(connections) };
            let mut slots: Vec<_> = (0..MAX_AUTHORISED as u64).map(slot).collect();
            assert!(slots.iter().all(|slot| slot.authorise() && slot.authorise()));
            let last = slot(1000);
            assert!(!last.authorise() && !last.is_authorised());
            slots.pop();
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
    fn tokens_have_32_digits_and_only_the_whole_one_is_right() {
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
            assert_eq!(ask(wrong), Err(NO_TOKEN), "{wrong}");
        }
        assert_eq!(access.check_token(&HeaderMap::new()), Err(NO_TOKEN));
        let [a, b] = [0, 1].map(|_| AccessToken::random().unwrap());
        assert!(a.text().len() == 32 && a.text().chars().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(a.text(), b.text());
    }

    #[test]
    fn other_hosts_are_refused() {
        let access = access(&["Workstation.lan"]);
        let check = |host: &str, at: [u8; 4]| access.check_names(&names(host, None), at.into());
        for (host, answer) in [
            ("127.0.0.1:7007", Ok(())),
            ("localhost:8080", Ok(())),
            ("localhost", Ok(())),
            ("[::1]:7007", Ok(())),
            ("[::1]", Ok(())),
            ("workstation.lan:7007", Ok(())),
            ("127.0.0.1:", Err(OTHER_HOST)),
            ("127.0.0.1:x", Err(OTHER_HOST)),
            ("evil.example:7007", Err(OTHER_HOST)),
            ("localhost.evil.example:7007", Err(OTHER_HOST)),
            ("192.168.1.2:7007", Err(OTHER_HOST)),
            ("", Err(OTHER_HOST)),
            (":7007", Err(OTHER_HOST)),
            ("localhost:7007:7007", Err(OTHER_HOST)),
        ] {
            assert_eq!(check(host, HERE), answer, "{host}");
        }
        assert_eq!(access.check_names(&HeaderMap::new(), HERE.into()), Err(OTHER_HOST));
        let mut two = names("localhost:7007", None);
        two.append(HOST, HeaderValue::from_static("evil.example:7007"));
        assert_eq!(access.check_names(&two, HERE.into()), Err(OTHER_HOST));
        // A public server accepts its addresses.
        assert_eq!(check("192.168.1.2:7007", [0; 4]), Ok(()));
        assert_eq!(check("evil.example:7007", [0; 4]), Err(OTHER_HOST));
        let of_origin =
            |origin: &str| access.check_names(&names("localhost:7007", Some(origin)), HERE.into());
        assert_eq!(of_origin("http://localhost:7007"), Ok(()));
        for other in
            ["null", "http://evil.example", "https://localhost:7007", "http://127.0.0.1:7007"]
        {
            assert_eq!(of_origin(other), Err(OTHER_ORIGIN), "{other}");
        }
    }

    fn get(path: &str) -> Result<Route, NoAnswer> {
        let (path, query) = path.split_once('?').map_or((path, None), |(a, b)| (a, Some(b)));
        Route::of(&Method::GET, path, query)
    }

    #[test]
    fn paths_have_their_routes() {
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
            assert_eq!(get(path), Ok(Route::Query(query)), "{path}");
        }
        assert_eq!(get("/"), Ok(Route::Page));
        let control = Route::of(&Method::POST, "/api/control", None);
        assert_eq!(control, Ok(Route::Control));
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
            assert!(matches!(get(path), Err(UNKNOWN | NO_NUMBER)), "{path}");
        }
        for path in ["/api/splats/-1", "/api/splats/", "/api/mesh/1e3", "/api/run?from=x"] {
            assert_eq!(get(path), Err(NO_NUMBER), "{path}");
        }
        for (method, path) in [
            (Method::POST, "/"),
            (Method::DELETE, "/api/mesh/0"),
            (Method::GET, "/api/control"),
            (Method::HEAD, "/api/scene"),
        ] {
            assert_eq!(Route::of(&method, path, None), Err(OTHER_METHOD), "{method} {path}");
        }
    }
}
