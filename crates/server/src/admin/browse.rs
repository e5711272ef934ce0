//! `/api/entries`, the keys that hold a text, and `/api/value`, one value.
//!
//! Values are personal data more often than keys. They are served on a loopback address only, and only to a request
//! with the header `X-Ebbtide-Confirm: value`: no link and no page of another site can send it.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::key_search::{KeySearch, SearchSlice};
use super::query::Query;
use super::state::AdminState;
use crate::sync::lock;

/// Maximum number of bytes of a value in an answer.
const MAX_VALUE_BYTES: usize = 16 << 10;
/// Maximum wait for a slice on flash: a device that hangs fails its reads after 30 s, and browsers wait for less.
const FLASH_PATIENCE: Duration = Duration::from_secs(4);

/// A refusal: status and text of the answer.
pub type HttpRefusal = (StatusCode, String);

/// `/api/entries?filter=TEXT` begins, and `?next=TOKEN` continues.
pub async fn entries(state: &AdminState, query: Option<&str>) -> Result<Value, HttpRefusal> {
    let search = search(state, query)?;
    let (slice, rest) = if search.waits() { slice_on_flash(state, search).await? } else { search.advance() };
    lock(&state.searches).keep(rest);
    Ok(json!({
        "entries": slice.entries,
        "looked_at": slice.looked_at,
        "next": slice.next,
    }))
}

/// The search that a request begins or continues.
fn search(state: &AdminState, query: Option<&str>) -> Result<KeySearch, HttpRefusal> {
    let bad = |text: String| (StatusCode::BAD_REQUEST, text);
    let query = Query::parse(query, &["filter", "next"]).map_err(bad)?;
    if let Some(reason) = state.shared.keys_hidden() {
        return Err((StatusCode::FORBIDDEN, format!("keys are not told: {reason}\n")));
    }
    let mut searches = lock(&state.searches);
    match query.number("next", "an answer before").map_err(bad)? {
        Some(token) => searches.take(token).ok_or_else(|| {
            let gone =
                "this search is over: another one replaced it, or it waited for more than a minute; search again\n";
            (StatusCode::GONE, gone.to_owned())
        }),
        None => {
            let filter = query.bytes("filter").unwrap_or_default();
            searches.start(&state.shared.pools.current(), filter).ok_or_else(|| {
                let text = "too many dumps are running; try again when one has ended\n";
                (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
            })
        }
    }
}

/// The next slice, made by the thread of dumps, which may wait for flash. A search that is not waited for to its end is
/// over.
async fn slice_on_flash(
    state: &AdminState,
    search: KeySearch,
) -> Result<(SearchSlice, Option<KeySearch>), HttpRefusal> {
    let (sender, slice) = oneshot::channel();
    state.shared.dump_thread.send(Box::new(move || drop(sender.send(search.advance()))));
    match timeout(FLASH_PATIENCE, slice).await {
        Ok(Ok(slice)) => Ok(slice),
        Ok(Err(_)) | Err(_) => {
            let text = "flash did not answer in time, or other dumps read it; search again\n";
            Err((StatusCode::SERVICE_UNAVAILABLE, text.to_owned()))
        }
    }
}

/// `/api/value?id=KEY`: the value of a key in memory. Reading it counts no use.
pub fn value(state: &AdminState, query: Option<&str>, headers: &HeaderMap) -> Result<Value, HttpRefusal> {
    let query = Query::parse(query, &["id"]).map_err(|text| (StatusCode::BAD_REQUEST, text))?;
    let Some(key) = query.bytes("id") else {
        return Err((StatusCode::BAD_REQUEST, "the parameter id is missing: the key, percent-encoded\n".to_owned()));
    };
    let forbidden = |reason: &str| Err((StatusCode::FORBIDDEN, format!("values are not told: {reason}\n")));
    if let Some(reason) = state.shared.keys_hidden() {
        return forbidden(reason);
    }
    if !state.checks_host {
        return forbidden("the admin HTTP can be reached from other hosts, and has no passwords");
    }
    if headers.get("x-ebbtide-confirm").is_none_or(|header| header != "value") {
        return forbidden("the request must confirm it with the header X-Ebbtide-Confirm: value");
    }
    let set = state.shared.pools.current();
    let item = set.entries.get(set.prefixes.find(key)).and_then(|entry| entry.pool.peek(key).hit());
    let Some(item) = item else {
        return Err((StatusCode::NOT_FOUND, "the key is not in memory\n".to_owned()));
    };
    let mut bytes = Vec::new();
    for slice in item.slices() {
        bytes.extend_from_slice(&slice[..slice.len().min(MAX_VALUE_BYTES - bytes.len())]);
    }
    let text = str::from_utf8(&bytes).ok().filter(|text| text.chars().all(|c| !c.is_control() || "\n\t\r".contains(c)));
    Ok(json!({
        "value_bytes": item.len(),
        "flags": item.flags(),
        "ttl_seconds": item.ttl().map(|ttl| ttl.as_secs()),
        "is_text": text.is_some(),
        "text": text.map_or_else(|| bytes.escape_ascii().to_string(), str::to_owned),
        "is_cut": bytes.len() < item.len(),
    }))
}
