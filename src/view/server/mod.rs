//! Answers browsers: HTTP/1.1 on one address, a few at a time, each for a while.

mod connections;
mod guard;
mod reply;
mod routes;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub use guard::{Access, AccessToken};

use self::connections::{Connections, Place};
use self::reply::{Reply, page, refused};
use self::routes::{ApiRoute, Route, answer, control};
use super::viewed_model::ViewedModel;

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
