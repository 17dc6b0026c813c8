//! Answers browsers: HTTP/1.1 on one address, a few at a time, each for a while.

mod guard;
mod reply;
mod routes;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub use guard::{Access, AccessToken};

use self::reply::{Reply, page, refused};
use self::routes::{ApiRoute, Route, answer, control};
use super::viewed_model::ViewedModel;

/// Connections at once. A browser has six.
const CONNECTIONS: usize = 64;

/// Threads that answer; those of photographs and packed Gaussians work for seconds.
const WORKERS: usize = 8;

/// Bytes of the head of a request.
const HEAD_BYTES: usize = 16 << 10;

/// Bytes of what is posted.
const BODY_BYTES: usize = 4 << 10;

/// How long a request may take to come.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// How long a connection may last over which no token has come, so that others get its place.
const STRANGERS_TIME: Duration = Duration::from_secs(30);

/// Answers at once that take seconds each, so that others are not kept waiting.
const SLOW_ANSWERS: usize = 4;

/// A server that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The system refuses what it needs.
    #[error("the page cannot be served: {0}")]
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
            let places = Arc::new(Semaphore::new(CONNECTIONS));
            let shared = Arc::clone(&self.shared);
            tokio::task::spawn_blocking(move || shared.model.prepare());
            loop {
                // Whoever comes later waits for one of the others.
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(connection(stream, Arc::clone(&self.shared), place));
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
async fn connection(stream: TcpStream, shared: Arc<Shared>, place: OwnedSemaphorePermit) {
    let _place = place;
    let is_known = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| {
        let (shared, is_known) = (Arc::clone(&shared), Arc::clone(&is_known));
        async move { Ok::<_, Infallible>(respond(shared, &is_known, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    // A browser that went away, or one that is too slow, has nothing more to be told.
    if timeout(STRANGERS_TIME, served.as_mut()).await.is_err() && is_known.load(Ordering::Relaxed) {
        served.await.ok();
    }
}

/// Answers a request. `is_known` becomes true with the first that has the token.
async fn respond(shared: Arc<Shared>, is_known: &AtomicBool, request: Request<Incoming>) -> Reply {
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
    is_known.store(true, Ordering::Relaxed);
    match route {
        Ok(ApiRoute::Query(query)) => {
            // It waits here, and not where it would take a worker from others.
            let _place = match query.is_slow() {
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
