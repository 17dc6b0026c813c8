//! An answer, and the headers that all answers have.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};

use super::guard::AccessRefusal;
use crate::view::viewed_model::ViewError;

/// What is sent.
pub(super) type Reply = Response<Full<Bytes>>;

/// Kinds of content.
pub(super) const JSON: &str = "application/json";
pub(super) const BINARY: &str = "application/octet-stream";
pub(super) const GLTF: &str = "model/gltf-binary";
pub(super) const JPEG: &str = "image/jpeg";

const HTML: &str = "text/html; charset=utf-8";

/// For pages of other origins the answers are not there.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// An answer of this kind of content.
pub(super) fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
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
pub(super) fn page(html: Bytes, policy: &str) -> Reply {
    let mut reply = reply(StatusCode::OK, HTML, html);
    if let Ok(policy) = HeaderValue::from_str(policy) {
        reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    reply
}

/// A sentence that says why there is no answer.
pub(super) fn refused(status: StatusCode, why: &str) -> Reply {
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
