//! The origin: requests, and bodies that are read in parts. Each wait is bounded.

use super::freshness;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{ACCEPT_ENCODING, HOST, HeaderMap, HeaderName, HeaderValue, VIA};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// How long the origin may take for its headers, and between two pieces of a body.
const PATIENCE: Duration = Duration::from_secs(30);
/// Headers of a client that must not reach the origin when the response is for all clients.
const OF_ONE_CLIENT: [&str; 8] = [
    "cookie",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
    "upgrade-insecure-requests",
];

/// Why the origin gave no response.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    #[error("the origin cannot be reached: {0}")]
    Unreachable(BoxError),
    #[error("the origin has sent nothing for {} s", PATIENCE.as_secs())]
    Timeout,
    #[error("the body of the origin ended early: {0}")]
    Body(BoxError),
    #[error("the origin has changed the object, or cannot send a part of it")]
    Changed,
}

/// An origin that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the origin {0:?} is not of the form http://host:port")]
pub struct NoOrigin(String);

pub struct Origin {
    authority: Authority,
    host: HeaderValue,
    client: Client<HttpConnector, Body>,
}

impl Origin {
    pub fn new(url: &str) -> Result<Self, NoOrigin> {
        let refuse = || NoOrigin(url.to_owned());
        let parts = url.parse::<Uri>().map_err(|_| refuse())?.into_parts();
        if parts.scheme != Some(Scheme::HTTP) || parts.path_and_query.is_some_and(|path| path != "/") {
            return Err(refuse());
        }
        let authority = parts.authority.ok_or_else(refuse)?;
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| refuse())?;
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(PATIENCE));
        connector.set_nodelay(true);
        Ok(Self { authority, host, client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// Sends a request as the client sent it, its body included.
    pub async fn forward(&self, request: Request<Incoming>) -> Result<Response<Incoming>, OriginError> {
        let (mut parts, body) = request.into_parts();
        freshness::remove_hop_by_hop(&mut parts.headers);
        let has_body = !body.is_end_stream();
        let body = if has_body { body.map_err(BoxError::from).boxed_unsync() } else { empty() };
        let path = parts.uri.into_parts().path_and_query;
        self.send(parts.method, path, parts.headers, body).await
    }

    /// Asks for an object in the name of all clients: without what concerns one of them, and without an encoding.
    pub async fn fetch(&self, path: PathAndQuery, client: &HeaderMap) -> Result<Response<Incoming>, OriginError> {
        let mut headers = client.clone();
        freshness::remove_hop_by_hop(&mut headers);
        OF_ONE_CLIENT.iter().for_each(|name| drop(headers.remove(*name)));
        headers.remove(ACCEPT_ENCODING);
        self.send(hyper::Method::GET, Some(path), headers, empty()).await
    }

    /// Asks for a part of an object.
    pub async fn fetch_part(
        &self,
        path: PathAndQuery,
        headers: [(HeaderName, HeaderValue); 2],
    ) -> Result<Response<Incoming>, OriginError> {
        self.send(hyper::Method::GET, Some(path), HeaderMap::from_iter(headers), empty()).await
    }

    async fn send(
        &self,
        method: hyper::Method,
        path: Option<PathAndQuery>,
        mut headers: HeaderMap,
        body: Body,
    ) -> Result<Response<Incoming>, OriginError> {
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.authority.clone()).path_and_query(path);
        headers.insert(HOST, self.host.clone());
        headers.append(VIA, HeaderValue::from_static("1.1 ebbtide"));
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri.build().map_err(|error| OriginError::Unreachable(error.into()))?;
        *request.headers_mut() = headers;
        match timeout(PATIENCE, self.client.request(request)).await {
            Err(_) => Err(OriginError::Timeout),
            Ok(Err(error)) => Err(OriginError::Unreachable(error.into())),
            Ok(Ok(mut response)) => {
                freshness::remove_hop_by_hop(response.headers_mut());
                Ok(response)
            }
        }
    }
}

pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Reads a body in parts of the caller's sizes.
pub struct PartReader {
    body: Incoming,
    /// Bytes that were received after the end of the last part.
    rest: Bytes,
}

impl PartReader {
    pub fn new(body: Incoming) -> Self {
        Self { body, rest: Bytes::new() }
    }

    /// Appends `length` bytes to `part`, fewer at the end of the body.
    pub async fn read(&mut self, length: usize, part: &mut Vec<u8>) -> Result<(), OriginError> {
        self.take(length, |bytes| part.extend_from_slice(bytes)).await
    }

    pub async fn skip(&mut self, length: u64) -> Result<(), OriginError> {
        self.take(usize::try_from(length).unwrap_or(usize::MAX), |_| {}).await
    }

    async fn take(&mut self, length: usize, mut consume: impl FnMut(&[u8])) -> Result<(), OriginError> {
        let mut left = length;
        // Ends with the body; a frame without bytes costs the origin one, too.
        while left > 0 {
            if self.rest.is_empty() {
                match timeout(PATIENCE, self.body.frame()).await {
                    Err(_) => return Err(OriginError::Timeout),
                    Ok(None) => return Ok(()),
                    Ok(Some(Err(error))) => return Err(OriginError::Body(error.into())),
                    Ok(Some(Ok(frame))) => self.rest = frame.into_data().unwrap_or_default(),
                }
            }
            let bytes = self.rest.split_to(left.min(self.rest.len()));
            left -= bytes.len();
            consume(&bytes);
        }
        Ok(())
    }

    /// Undoes the last `read`.
    pub fn put_back(&mut self, mut part: Vec<u8>) {
        part.extend_from_slice(&self.rest);
        self.rest = part.into();
    }

    /// The bytes that were not taken: those received already, and the rest of the body.
    pub fn into_body(self) -> Body {
        Rest(self).boxed_unsync()
    }
}

struct Rest(PartReader);

impl hyper::body::Body for Rest {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.0.rest.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.0.rest)))));
        }
        Pin::new(&mut self.0.body).poll_frame(context).map_err(BoxError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.0.rest.is_empty() && self.0.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (received, left) = (self.0.rest.len() as u64, self.0.body.size_hint());
        let mut sum = SizeHint::new();
        left.upper().into_iter().for_each(|upper| sum.set_upper(upper + received));
        sum.set_lower(left.lower() + received);
        sum
    }
}
