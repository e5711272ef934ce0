//! Answers no page of another site. There is no authentication, so on the loopback interface only requests whose host
//! is an address or localhost are answered: a page of another site whose name resolves to this address (DNS rebinding)
//! sends that name.

use std::net::IpAddr;

use axum::extract::{Request, State as FromState};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Refuses requests for other hosts if `checks_host`, and forbids browsers to guess the type of an answer.
pub async fn guard(FromState(checks_host): FromState<bool>, request: Request, next: Next) -> Response {
    let named = request.headers().get(header::HOST).map(|host| host.as_bytes());
    let is_ours = named.is_none_or(|host| str::from_utf8(host).is_ok_and(is_local));
    let mut response = if checks_host && !is_ours {
        let text = "this server answers requests for localhost or an IP address; use one of these in the URL\n";
        (StatusCode::FORBIDDEN, text).into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Whether a Host header names an address or localhost, which no foreign page can have been loaded from.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn foreign_names_are_told_from_local_ones() {
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:11212", "[::1]", "[::1]:11212", "10.0.0.1:80"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:11212", "localhost.evil.example", "127.0.0.1.evil.example", "[x]"]
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
