//! Which path answers what.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::{RawQuery, State as FromState};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ebbtide::flash::Health;
use serde_json::Value;

use super::browse::{self, HttpRefusal};
use super::query::Query;
use super::state::AdminState;
use super::{dashboard, guard, keys, metrics, overview};
use crate::observe::DEFAULT_POOL;

/// With status 200 all the same: a restart, which a supervisor answers other ones with, would empty the memory, too.
const FAILED: &str =
    "degraded: the device of flash has failed, and all is served from memory; replace it and restart\n";
const TROUBLED: &str =
    "degraded: the device of flash had errors, or did nothing for seconds, and is used on; see the system's log\n";

/// The time of `/api/history` without a parameter.
const DEFAULT_RANGE_SECONDS: u64 = 15 * 60;
/// The longest time of `/api/history`: a week, which the history holds.
const MAX_RANGE_SECONDS: u64 = 7 * 24 * 60 * 60;

/// All paths.
pub fn router(state: Arc<AdminState>) -> Router {
    Router::new()
        .route("/", get(dashboard::page))
        .route("/api/overview", get(overview_json))
        .route("/api/history", get(history_json))
        .route("/api/keys", get(keys_json))
        .route("/api/entries", get(entries_json))
        .route("/api/value", get(value_json))
        .route("/api/pools", get(pools_json))
        .route("/api/curves", get(curves_json))
        .route("/api/decisions", get(decisions_json))
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .fallback(unknown)
        .method_not_allowed_fallback(not_get)
        .layer(from_fn_with_state(state.checks_host, guard::guard))
        .with_state(state)
}

async fn overview_json(FromState(state): FromState<Arc<AdminState>>) -> impl IntoResponse {
    Json(overview::overview(&state))
}

/// `?range=SECONDS` selects another time than the last fifteen minutes, `ago=SECONDS` one that ended earlier.
async fn history_json(FromState(state): FromState<Arc<AdminState>>, RawQuery(query): RawQuery) -> Response {
    let times = Query::parse(query.as_deref(), &["range", "ago"]).and_then(|query| {
        let range = query.number("range", "seconds")?.unwrap_or(DEFAULT_RANGE_SECONDS);
        if range > MAX_RANGE_SECONDS {
            return Err(format!("range is at most {MAX_RANGE_SECONDS} seconds\n"));
        }
        Ok((range, query.number("ago", "seconds")?.unwrap_or(0)))
    });
    match times {
        Ok((range, ago)) => Json(overview::history(&state, range, ago)).into_response(),
        Err(refusal) => (StatusCode::BAD_REQUEST, refusal).into_response(),
    }
}

async fn entries_json(FromState(state): FromState<Arc<AdminState>>, RawQuery(query): RawQuery) -> Response {
    json_or_refusal(browse::entries(&state, query.as_deref()).await)
}

async fn value_json(
    FromState(state): FromState<Arc<AdminState>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    json_or_refusal(browse::value(&state, query.as_deref(), &headers))
}

fn json_or_refusal(answer: Result<Value, HttpRefusal>) -> Response {
    answer.map_or_else(IntoResponse::into_response, |answer| Json(answer).into_response())
}

async fn keys_json(FromState(state): FromState<Arc<AdminState>>) -> impl IntoResponse {
    Json(keys::keys(&state))
}

async fn pools_json(FromState(state): FromState<Arc<AdminState>>) -> impl IntoResponse {
    Json(overview::pools(&state))
}

/// `?memory=BYTES` adds the point of another limit, `pool=NAME` selects the curve of another pool than `default`.
async fn curves_json(FromState(state): FromState<Arc<AdminState>>, RawQuery(query): RawQuery) -> Response {
    let asked = Query::parse(query.as_deref(), &["memory", "pool"]).and_then(|query| {
        let pool = String::from_utf8_lossy(query.bytes("pool").unwrap_or(DEFAULT_POOL.as_bytes())).into_owned();
        Ok((pool, query.number("memory", "bytes")?))
    });
    let (pool, memory) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return (StatusCode::BAD_REQUEST, refusal).into_response(),
    };
    match state.shared.sizing.curve(&pool, memory) {
        Some(curve) => Json(curve).into_response(),
        None => {
            (StatusCode::NOT_FOUND, "no pool of this name is profiled; /api/pools has their names\n").into_response()
        }
    }
}

async fn decisions_json(FromState(state): FromState<Arc<AdminState>>) -> impl IntoResponse {
    Json(state.shared.sizing.decisions(state.started_unix.as_millis() as u64))
}

async fn metrics_text(FromState(state): FromState<Arc<AdminState>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::metrics(&state))
}

async fn health(FromState(state): FromState<Arc<AdminState>>) -> impl IntoResponse {
    let good = match state.shared.cache.flash_health() {
        None | Some(Health::Healthy) => "ok\n",
        Some(Health::Degraded) => TROUBLED,
        Some(Health::Failed) => FAILED,
    };
    verdict(!state.shared.is_stopping(), good, "the server is stopping\n")
}

async fn ready(FromState(state): FromState<Arc<AdminState>>) -> impl IntoResponse {
    let shared = &state.shared;
    let accepts = shared.accepting.load(Ordering::Relaxed) && !shared.is_stopping();
    verdict(accepts, "ok\n", "no connections are accepted now\n")
}

fn verdict(is_good: bool, good: &'static str, otherwise: &'static str) -> impl IntoResponse {
    match is_good {
        true => (StatusCode::OK, good),
        false => (StatusCode::SERVICE_UNAVAILABLE, otherwise),
    }
}

async fn unknown() -> Response<Body> {
    let text = "not here; there are / (the dashboard) /api/overview /api/history /api/keys /api/entries /api/value \
         /api/pools /api/curves /api/decisions /metrics /healthz /readyz\n";
    (StatusCode::NOT_FOUND, text).into_response()
}

async fn not_get() -> Response<Body> {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")], "only GET is answered\n").into_response()
}
