//! A request and its answer: from the cache, from the origin through the cache, or around the cache.

use super::entry::{self, Entry, HEAD_BYTES, Identity, PART_BYTES, Stored};
use super::origin::{Body, BoxError, Origin, OriginError, PartReader, empty};
use super::parts::{self, Object, Parts};
use super::range::{self, Asked};
use super::{conditions, freshness};
use ebbtide::{Cache, Error, LoadError, Loaded};
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ACCEPT_RANGES, AGE, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderName, HeaderValue, RANGE};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// RFC 9211: what the cache has done.
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
const HIT: &str = "ebbtide; hit";
const STORED: &str = "ebbtide; fwd=uri-miss; stored";
const MISS: &str = "ebbtide; fwd=uri-miss";
const BYPASS: &str = "ebbtide; fwd=bypass";
/// How long a path whose response is not to be kept is asked for without a wait for other requests.
const NOT_CACHEABLE: Duration = Duration::from_secs(5);
/// Longer paths are not cached: a key has up to 255 bytes.
const MAX_PATH_BYTES: usize = 250;

pub struct Handler {
    cache: Cache,
    origin: Arc<Origin>,
    parts: Arc<Parts>,
    max_object_bytes: u64,
}

/// Results of the loader of this request beside the value.
enum Fetched {
    /// A response that is not kept, with the start of its body.
    Passed(Response<()>, PartReader),
    Stored,
}

impl Handler {
    pub fn new(cache: Cache, origin: Arc<Origin>, max_object_bytes: u64) -> Self {
        let parts = Arc::new(Parts::new(cache.clone(), Arc::clone(&origin)));
        Self { cache, origin, parts, max_object_bytes }
    }

    pub async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let is_cacheable = freshness::may_use_cache(request.method(), request.headers())
            && path.as_str().len() <= MAX_PATH_BYTES
            && path.as_str().starts_with('/')
            && request.body().is_end_stream();
        let answer = if is_cacheable {
            self.look_up(request, path).await
        } else {
            self.bypass(request, path).await.map_err(LoadError::Loader)
        };
        answer.unwrap_or_else(|error| failed(&error))
    }

    /// Sends the request on. A method that may change the object removes it, after the origin has answered.
    async fn bypass(&self, request: Request<Incoming>, path: PathAndQuery) -> Result<Response<Body>, OriginError> {
        let may_change = !request.method().is_safe();
        let response = self.origin.forward(request).await?;
        if may_change && (response.status().is_success() || response.status().is_redirection()) {
            self.parts.forget(path.as_str().to_owned()).await;
        }
        Ok(with_status(response.map(|body| body.map_err(BoxError::from).boxed_unsync()), BYPASS))
    }

    async fn look_up(
        &self,
        request: Request<Incoming>,
        path: PathAndQuery,
    ) -> Result<Response<Body>, LoadError<OriginError>> {
        if let Some(response) = self.later_range(&request, &path).await {
            return Ok(with_status(response, HIT));
        }
        let mut fetched = None;
        let value = if request.method() == Method::HEAD {
            // The origin answers a HEAD that misses: its GET would cost the body.
            self.cache.get_async(path.as_str()).await
        } else {
            let load = self.load(path.clone(), request.headers(), &mut fetched);
            Some(self.cache.try_get_or_insert_with_async(path.as_str(), load).await?)
        };
        if let Some(Fetched::Passed(response, body)) = fetched {
            let (parts, ()) = response.into_parts();
            return Ok(with_status(Response::from_parts(parts, body.into_body()), MISS));
        }
        match value.and_then(entry::decode) {
            Some(Entry::Response(stored)) => {
                let status = if fetched.is_some() { STORED } else { HIT };
                let head_only = request.method() == Method::HEAD;
                Ok(with_status(self.cached(stored, request.headers(), path, head_only), status))
            }
            Some(Entry::NotCacheable) | None => self.bypass(request, path).await.map_err(LoadError::Loader),
        }
    }

    /// The answer to a range behind the first part of an object in the cache. Its first part is not read.
    async fn later_range(&self, request: &Request<Incoming>, path: &PathAndQuery) -> Option<Response<Body>> {
        let headers = request.headers();
        if request.method() != Method::GET || !headers.contains_key(RANGE) {
            return None;
        }
        let head = self.cache.get_range_async(path.as_str(), 0, HEAD_BYTES).await?;
        let (Entry::Response(stored), _) = entry::decode_head(&head)? else { return None };
        let Asked::Part(range) = asked(&stored, headers, false) else { return None };
        let is_later = range.start >= PART_BYTES as u64;
        is_later.then(|| self.cached(stored, headers, path.clone(), false))
    }

    /// The loader of a path: of several requests that miss it, one runs this.
    async fn load(
        &self,
        path: PathAndQuery,
        headers: &HeaderMap,
        fetched: &mut Option<Fetched>,
    ) -> Result<Loaded, OriginError> {
        let (parts, body) = self.origin.fetch(path.clone(), headers).await?.into_parts();
        let (declared, mut reader) = (body.size_hint().exact(), PartReader::new(body));
        let response = Response::from_parts(parts, ());
        let lifetime = freshness::lifetime(response.status(), response.headers());
        let mut pass = |response, reader| {
            *fetched = Some(Fetched::Passed(response, reader));
            Ok(Loaded::new(entry::encode_not_cacheable()).ttl(NOT_CACHEABLE))
        };
        let Some(lifetime) = lifetime.filter(|_| declared.unwrap_or(0) <= self.max_object_bytes) else {
            return pass(response, reader);
        };
        let mut first = Vec::new();
        reader.read(declared.map_or(PART_BYTES, |length| length.min(PART_BYTES as u64) as usize), &mut first).await?;
        // Without a length, the body is kept only if it ends within the first part.
        if declared.is_none() && first.len() == PART_BYTES {
            reader.put_back(first);
            return pass(response, reader);
        }
        let length = declared.unwrap_or(first.len() as u64);
        if (first.len() as u64) < length.min(PART_BYTES as u64) {
            return Err(OriginError::Changed);
        }
        let now = parts::now();
        let identity = Identity {
            body: RandomState::new().hash_one(now),
            length,
            made_at: now - freshness::age(response.headers()).min(now),
            fresh_until: now + lifetime.as_secs(),
        };
        let mut value = entry::encode(response.status(), response.headers(), identity);
        value.append(&mut first);
        if length > PART_BYTES as u64 {
            self.parts.start_transfer(identity, reader, path.as_str().to_owned());
        }
        *fetched = Some(Fetched::Stored);
        Ok(Loaded::new(value).ttl(lifetime))
    }

    fn cached(&self, stored: Stored, request: &HeaderMap, path: PathAndQuery, head_only: bool) -> Response<Body> {
        let asked = asked(&stored, request, head_only);
        let Stored { status, mut headers, identity, first_part } = stored;
        headers.insert(AGE, parts::now().saturating_sub(identity.made_at).into());
        let mut response = Response::new(empty());
        let is_whole = status == StatusCode::OK;
        let answered = if is_whole && conditions::is_not_modified(request, &headers) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            None
        } else {
            if is_whole {
                headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            }
            let (status, range, content_range) = match asked {
                Asked::Whole => (status, 0..identity.length, None),
                Asked::Part(range) => {
                    let text = format!("bytes {}-{}/{}", range.start, range.end - 1, identity.length);
                    (StatusCode::PARTIAL_CONTENT, range, Some(text))
                }
                Asked::Unsatisfiable => {
                    let text = format!("bytes */{}", identity.length);
                    (StatusCode::RANGE_NOT_SATISFIABLE, 0..0, Some(text))
                }
            };
            *response.status_mut() = status;
            let content_range = content_range.and_then(|text| HeaderValue::from_str(&text).ok());
            content_range.into_iter().for_each(|value| drop(headers.insert(CONTENT_RANGE, value)));
            headers.insert(CONTENT_LENGTH, (range.end - range.start).into());
            Some(range).filter(|range| !head_only && !range.is_empty())
        };
        if let Some(range) = answered {
            let object = Object { path, headers: headers.clone(), identity };
            *response.body_mut() = self.body(object, first_part, range);
        }
        *response.headers_mut() = headers;
        response
    }

    /// The bytes of a range: at once if they lie in the first part, else part by part as the client reads them.
    fn body(&self, object: Object, first_part: Bytes, range: Range<u64>) -> Body {
        if range.end <= first_part.len() as u64 {
            return full(first_part.slice(range.start as usize..range.end as usize));
        }
        let (sender, body) = Channel::new(1);
        tokio::spawn(send_parts(Arc::clone(&self.parts), object, first_part, range, sender));
        body.boxed_unsync()
    }
}

/// The range of an object that a request asks for.
fn asked(stored: &Stored, request: &HeaderMap, head_only: bool) -> Asked {
    let range = request.get(RANGE).and_then(|range| range.to_str().ok());
    let counts = stored.status == StatusCode::OK && !head_only && conditions::range_counts(request, &stored.headers);
    match range.filter(|_| counts) {
        Some(range) => range::asked(Some(range), stored.identity.length),
        None => Asked::Whole,
    }
}

async fn send_parts(
    parts: Arc<Parts>,
    object: Object,
    first_part: Bytes,
    range: Range<u64>,
    mut sender: Sender<Bytes, BoxError>,
) {
    let part_bytes = PART_BYTES as u64;
    for number in range.start / part_bytes..range.end.div_ceil(part_bytes) {
        let offset = number * part_bytes;
        let start = range.start.max(offset) - offset;
        let end = range.end.min(offset + part_bytes) - offset;
        let wanted = start as usize..end as usize;
        let part = match number {
            0 => first_part.slice(wanted),
            _ => match parts.read(&object, number, wanted).await {
                Ok(part) => part,
                // The client sees a body that is shorter than announced, and a closed connection.
                Err(error) => {
                    parts.forget(object.path.as_str().to_owned()).await;
                    return sender.abort(error.into());
                }
            },
        };
        // The client has closed its connection.
        if sender.send_data(part).await.is_err() {
            return;
        }
    }
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn with_status(mut response: Response<Body>, status: &'static str) -> Response<Body> {
    response.headers_mut().insert(CACHE_STATUS, HeaderValue::from_static(status));
    response
}

fn failed(error: &LoadError<OriginError>) -> Response<Body> {
    let status = match error {
        LoadError::Loader(OriginError::Timeout) | LoadError::Cache(Error::LoadTimeout { .. }) => {
            StatusCode::GATEWAY_TIMEOUT
        }
        LoadError::Loader(_) => StatusCode::BAD_GATEWAY,
        LoadError::Cache(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = Response::new(full(format!("{error}\n").into()));
    *response.status_mut() = status;
    with_status(response, MISS)
}
