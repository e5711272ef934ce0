//! Freshness: which responses may be cached, and for how long. RFC 9111, sections 3 and 4, for a shared cache.

use hyper::header::{AGE, AUTHORIZATION, CACHE_CONTROL, HeaderMap, HeaderName, PRAGMA, SET_COOKIE, VARY};
use hyper::{Method, StatusCode};
use std::time::Duration;

/// A directive of `Cache-Control` with its value, if it has one.
fn directives(headers: &HeaderMap) -> impl Iterator<Item = (&str, Option<&str>)> {
    let texts = headers.get_all(CACHE_CONTROL).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(|directive| match directive.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim().trim_matches('"'))),
        None => (directive.trim(), None),
    })
}

fn has(headers: &HeaderMap, names: &[&str]) -> bool {
    directives(headers).any(|(found, _)| names.iter().any(|name| found.eq_ignore_ascii_case(name)))
}

fn seconds(headers: &HeaderMap, name: &str) -> Option<u64> {
    let mut found = directives(headers).filter(|(found, _)| found.eq_ignore_ascii_case(name));
    found.next().and_then(|(_, value)| value?.parse().ok())
}

/// Whether the cache may answer a request, and keep its response.
pub fn may_use_cache(method: &Method, headers: &HeaderMap) -> bool {
    let is_read = method == Method::GET || method == Method::HEAD;
    let wants_origin = has(headers, &["no-store", "no-cache"]) || seconds(headers, "max-age") == Some(0);
    is_read && !wants_origin && !headers.contains_key(AUTHORIZATION) && !headers.contains_key(PRAGMA)
}

/// How long a response stays fresh, less its age; `None` if it must not be kept. Responses that name no `max-age` are
/// not kept.
pub fn lifetime(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let is_known = matches!(status.as_u16(), 200 | 203 | 301 | 308 | 404 | 410);
    let is_refused = has(headers, &["no-store", "no-cache", "private"]) || headers.contains_key(SET_COOKIE);
    if !is_known || is_refused || varies(headers) {
        return None;
    }
    let max_age = seconds(headers, "s-maxage").or_else(|| seconds(headers, "max-age"))?;
    let left = max_age.saturating_sub(age(headers));
    (left > 0).then(|| Duration::from_secs(left))
}

/// Seconds since the origin, or a cache before it, has made the response.
pub fn age(headers: &HeaderMap) -> u64 {
    headers.get(AGE).and_then(|value| value.to_str().ok()?.trim().parse().ok()).unwrap_or(0)
}

/// Whether the response depends on headers of the request. The proxy asks for no encoding, so that one does not count.
fn varies(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(VARY).into_iter().map(|value| value.to_str().unwrap_or("*"));
    texts.flat_map(|text| text.split(',')).any(|name| !name.trim().eq_ignore_ascii_case("accept-encoding"))
}

/// Removes the headers that concern one connection: RFC 9110, section 7.6.1.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all("connection")
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let fixed = ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];
    for name in named.iter().map(HeaderName::as_str).chain(fixed) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_lifetime_follows_the_headers() {
        type Lines = &'static [(&'static str, &'static str)];
        let cases: [(u16, Lines, Option<u64>); 16] = [
            (200, &[("cache-control", "max-age=60")], Some(60)),
            (200, &[("cache-control", "public, Max-Age=\"60\"")], Some(60)),
            (200, &[("cache-control", "max-age=60"), ("cache-control", "s-maxage=5")], Some(5)),
            (200, &[("cache-control", "max-age=60"), ("age", "20")], Some(40)),
            (200, &[("cache-control", "max-age=60"), ("age", "60")], None),
            (200, &[("cache-control", "max-age=0")], None),
            (200, &[("cache-control", "max-age=x")], None),
            (200, &[], None),
            (200, &[("cache-control", "max-age=60, private")], None),
            (200, &[("cache-control", "max-age=60, no-store")], None),
            (200, &[("cache-control", "max-age=60"), ("set-cookie", "a=b")], None),
            (200, &[("cache-control", "max-age=60"), ("vary", "Accept-Encoding")], Some(60)),
            (200, &[("cache-control", "max-age=60"), ("vary", "Accept-Encoding, Cookie")], None),
            (404, &[("cache-control", "max-age=60")], Some(60)),
            (206, &[("cache-control", "max-age=60")], None),
            (500, &[("cache-control", "max-age=60")], None),
        ];
        for (status, lines, expected) in cases {
            let found = lifetime(StatusCode::from_u16(status).unwrap(), &headers(lines));
            assert_eq!(found, expected.map(Duration::from_secs), "{status} {lines:?}");
        }
    }

    #[test]
    fn some_requests_go_to_the_origin() {
        assert!(may_use_cache(&Method::GET, &headers(&[("accept", "*/*")])));
        assert!(may_use_cache(&Method::HEAD, &headers(&[("cache-control", "max-age=5")])));
        assert!(!may_use_cache(&Method::POST, &headers(&[])));
        for line in [("cache-control", "No-Cache"), ("cache-control", "max-age=0"), ("authorization", "x")] {
            assert!(!may_use_cache(&Method::GET, &headers(&[line])), "{line:?}");
        }
    }

    #[test]
    fn headers_of_a_connection_are_removed() {
        let mut found = headers(&[("connection", "close, x-mine"), ("x-mine", "1"), ("te", "a"), ("etag", "\"1\"")]);
        remove_hop_by_hop(&mut found);
        assert_eq!(found, headers(&[("etag", "\"1\"")]));
    }
}
